"""One file is one page, with `PAGES`. The folder is the registry."""

from __future__ import annotations

from functools import cache
from importlib import import_module

from mainstay.control.web.contract import WebPage
from mainstay.foundation.module_names import module_names, registered


@cache
def all_pages() -> tuple[WebPage, ...]:
    found: list[WebPage] = []
    for name in module_names(__path__):
        found += registered(import_module(f"{__name__}.{name}"), "PAGES")
    return tuple(found)
