"""The resource types. One file is one type; this folder is the registry."""

from __future__ import annotations

from importlib import import_module

from mainstay.converge.contract import ResourceType
from mainstay.foundation.module_names import module_names, registered


def find(name: str) -> ResourceType | None:
    """Returns the type of that name, imported on first use."""
    if not name.isidentifier() or name.startswith("_"):
        return None
    path = f"{__name__}.{name}"
    try:
        found: ResourceType = registered(import_module(path), "TYPE")
    except ModuleNotFoundError as error:
        if error.name == path:
            return None
        raise
    return found


def names() -> list[str]:
    return module_names(__path__)
