"""What is wrong and where: one fault is a path and a message, and everything that checks collects them all."""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple

# A key comes from a user and may be as long as the body; a path that repeats it need not be.
MAX_SHOWN_KEY = 200
# Nobody reads more, and a body of small faults would make an answer many times its size.
MAX_LISTED = 100
AMBIGUOUS = frozenset(".[]\"'\\ \t\r\n")


class PathFault(NamedTuple):
    """A tuple, because documents with thousands of faults are made of them."""

    path: str
    message: str

    def __str__(self) -> str:
        # The specification's texts about permissions already open with the path.
        if not self.path or self.message.startswith(f"{self.path}: "):
            return self.message
        return f"{self.path}: {self.message}"


def listed(faults: Sequence[PathFault]) -> list[PathFault]:
    """The faults as an answer tells them: the first ones, and how many more there are."""
    more = len(faults) - MAX_LISTED
    return [*faults[:MAX_LISTED], PathFault("", f"and {more} more")] if more > 0 else list(faults)


def locate(parent: str, key: str | int) -> str:
    """The path of a member or item: `databaseConfig.port`, `ports[2]`, and `tags["a.b"]` where a plain name would mislead."""
    if type(key) is int:
        return f"{parent}[{key}]"
    if _is_plain(key):
        return f"{parent}.{key}" if parent else key  # type: ignore[return-value]
    shortened = key if len(key) <= MAX_SHOWN_KEY else f"{key[:MAX_SHOWN_KEY]}…"  # type: ignore[arg-type, index]
    return f"{parent}[{json.dumps(shortened)}]"


@lru_cache(maxsize=4096)
def _is_plain(key: str) -> bool:
    return 0 < len(key) <= MAX_SHOWN_KEY and key.isprintable() and AMBIGUOUS.isdisjoint(key)
