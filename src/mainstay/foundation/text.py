"""Text in messages: shortened, and never a secret."""

from __future__ import annotations

REDACTED = "[redacted]"


class Tainted(str):
    """Text that comes from a secret: it goes to the host, and is shown nowhere."""

    __slots__ = ()

    def __repr__(self) -> str:
        return REDACTED


def shorten(text: str, limit: int = 60) -> str:
    """Text for a message; of a secret not even the beginning."""
    if isinstance(text, Tainted):
        return REDACTED
    return text if len(text) <= limit else text[: limit - 1] + "…"
