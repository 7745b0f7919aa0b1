"""Registry folders: lists their modules without `pkgutil`, which imports much of the standard library, and takes from
each module what it registers."""

from __future__ import annotations

import os
from collections.abc import Iterable
from types import ModuleType

from mainstay.foundation import Any


def module_names(folders: Iterable[str]) -> list[str]:
    files = {name for folder in folders for name in os.listdir(folder)}
    return sorted(name.removesuffix(".py") for name in files if name.endswith(".py") and not name.startswith("_"))


def registered(module: ModuleType, attribute: str) -> Any:
    """What a module registers; a module without it is a mistake of its author, so the message names the file."""
    try:
        return getattr(module, attribute)
    except AttributeError:
        raise ImportError(f"{module.__file__}: define {attribute}, as every file of this folder does") from None
