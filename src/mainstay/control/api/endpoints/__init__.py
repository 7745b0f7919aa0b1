"""One file is one group of endpoints; each offers `ENDPOINTS`, and whatever stands here is served."""

from __future__ import annotations

import pkgutil
from functools import cache
from importlib import import_module

from mainstay.control.api.contract import Endpoint


@cache
def all_endpoints() -> tuple[Endpoint, ...]:
    found: list[Endpoint] = []
    for module in sorted(pkgutil.iter_modules(__path__), key=lambda module: module.name):
        found += import_module(f"{__name__}.{module.name}").ENDPOINTS
    return tuple(found)
