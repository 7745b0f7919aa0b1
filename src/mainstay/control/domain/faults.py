"""What is wrong and where: one fault is a path and a message, and everything that checks collects them all."""

from __future__ import annotations

import json
from dataclasses import dataclass

# A key comes from a user and may be as long as the body; a path that repeats it need not be.
MAX_SHOWN_KEY = 200
AMBIGUOUS = frozenset(".[]\"'\\ \t\r\n")


@dataclass(frozen=True, slots=True)
class Fault:
    path: str
    message: str

    def __str__(self) -> str:
        # The seed's texts about permissions already open with the path.
        if not self.path or self.message.startswith(f"{self.path}: "):
            return self.message
        return f"{self.path}: {self.message}"


def locate(parent: str, key: str | int) -> str:
    """The path of a member or item: `databaseConfig.port`, `ports[2]`, and `tags["a.b"]` where a plain name would mislead."""
    if isinstance(key, int):
        return f"{parent}[{key}]"
    if len(key) > MAX_SHOWN_KEY:
        key = f"{key[:MAX_SHOWN_KEY]}…"
    if not key or not key.isprintable() or not AMBIGUOUS.isdisjoint(key):
        return f"{parent}[{json.dumps(key)}]"
    return f"{parent}.{key}" if parent else key
