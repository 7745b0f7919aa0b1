"""Text in messages: shortened, and never a secret."""

from __future__ import annotations

REDACTED = "[redacted]"


class Tainted(str):
    """Text that comes from a secret: it is sent to the host and never shown."""

    __slots__ = ()

    def __repr__(self) -> str:
        return REDACTED


def shorten(text: str, limit: int = 60) -> str:
    """Shortens text for a message; replaces all of a secret."""
    if isinstance(text, Tainted):
        return REDACTED
    return text if len(text) <= limit else text[: limit - 1] + "…"
