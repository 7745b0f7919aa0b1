"""Faults of a document: a path and a message each. Every check collects all faults."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import NamedTuple

# A key comes from a request and may be as long as its body; paths show only its start.
MAX_SHOWN_KEY = 200
# Limits the size of the response, which could be many times the size of the request.
MAX_LISTED = 100
AMBIGUOUS = frozenset(".[]\"'\\ \t\r\n")


class PathFault(NamedTuple):
    """A tuple for speed: a document may have thousands of faults."""

    path: str
    message: str

    def __str__(self) -> str:
        # The specification's messages about permissions begin with the path.
        if not self.path or self.message.startswith(f"{self.path}: "):
            return self.message
        return f"{self.path}: {self.message}"


def listed(faults: Sequence[PathFault]) -> list[PathFault]:
    """The first faults, and a last entry with the number of the others."""
    more = len(faults) - MAX_LISTED
    return [*faults[:MAX_LISTED], PathFault("", f"and {more} more")] if more > 0 else list(faults)


def below(name: str, faults: Iterable[PathFault]) -> list[PathFault]:
    """Faults of a member of a document, with the paths that they have in the document."""
    return [PathFault(f"{name}.{fault.path}".rstrip("."), fault.message) for fault in faults]


def locate(parent: str, key: str | int) -> str:
    """The path of a member or item: `databaseConfig.port`, `ports[2]`, and `tags["a.b"]` for an ambiguous name."""
    if type(key) is int:
        return f"{parent}[{key}]"
    if _is_plain(key):
        return f"{parent}.{key}" if parent else key  # type: ignore[return-value]
    shortened = key if len(key) <= MAX_SHOWN_KEY else f"{key[:MAX_SHOWN_KEY]}…"  # type: ignore[arg-type, index]
    return f"{parent}[{json.dumps(shortened)}]"


@lru_cache(maxsize=4096)
def _is_plain(key: str) -> bool:
    return 0 < len(key) <= MAX_SHOWN_KEY and key.isprintable() and AMBIGUOUS.isdisjoint(key)
