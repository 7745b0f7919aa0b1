"""What can be wanted of a host. One file is one type; this folder is the registry."""

from __future__ import annotations

from importlib import import_module

TYPE_CHECKING = False
if TYPE_CHECKING:
    from mainstay.converge.contract import ResourceType


def find(name: str) -> ResourceType | None:
    """The type of that name, loaded on first need."""
    if not name.isidentifier() or name.startswith("_"):
        return None
    path = f"{__name__}.{name}"
    try:
        found: ResourceType = import_module(path).TYPE
    except ModuleNotFoundError as error:
        if error.name == path:
            return None
        raise
    return found


def names() -> list[str]:
    from pkgutil import iter_modules

    return sorted(module.name for module in iter_modules(__path__))
