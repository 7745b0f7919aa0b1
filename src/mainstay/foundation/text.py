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


def without_removed_lines(diff: str) -> str:
    """Replaces the removed lines of a unified diff, and leaves out how many lines the old file has."""
    shown: list[str] = []
    is_removed = False
    lines = diff.split("\n")
    for index, line in enumerate(lines):
        # A removed line may look like a header, so only the first line can be one.
        is_header = index == 0 and len(lines) > 1 and lines[1].startswith("+++ ")
        if line.startswith("-") and not is_header:
            if not is_removed:
                shown.append(f"-{REDACTED}")
            is_removed = True
        elif not (is_removed and line.startswith("\\")):
            is_removed = False
            shown.append(f"@@ {line[line.find('+') :]}" if line.startswith("@@ -") else line)
    return "\n".join(shown)
