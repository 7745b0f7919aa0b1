"""Lists the modules of a folder that is a registry. The standard library's way loads half of itself first."""

from __future__ import annotations

import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable


def module_names(folders: Iterable[str]) -> list[str]:
    files = {name for folder in folders for name in os.listdir(folder)}
    return sorted(name.removesuffix(".py") for name in files if name.endswith(".py") and not name.startswith("_"))
