"""Lists the modules of a registry folder without `pkgutil`, which imports much of the standard library."""

from __future__ import annotations

import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable


def module_names(folders: Iterable[str]) -> list[str]:
    files = {name for folder in folders for name in os.listdir(folder)}
    return sorted(name.removesuffix(".py") for name in files if name.endswith(".py") and not name.startswith("_"))
