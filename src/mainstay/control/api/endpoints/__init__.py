"""One file is one group of endpoints with `ENDPOINTS`. Every file in this folder is served."""

from __future__ import annotations

from functools import cache
from importlib import import_module

from mainstay.control.api.contract import Endpoint
from mainstay.foundation.module_names import module_names, registered


@cache
def all_endpoints() -> tuple[Endpoint, ...]:
    found: list[Endpoint] = []
    for name in module_names(__path__):
        found += registered(import_module(f"{__name__}.{name}"), "ENDPOINTS")
    return tuple(found)
