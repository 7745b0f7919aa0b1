"""Text in messages: shortened, and never a secret."""

from __future__ import annotations

REDACTED = "[redacted]"
LINE_BREAKS = "\n\r\v\f\x85\u2028\u2029"
NOT_IN_A_LINE = "\u061c\u200e\u200f\u2028\u2029\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069"


class Tainted(str):
    """Text that comes from a secret: it is sent to the host and never shown."""

    __slots__ = ()

    def __repr__(self) -> str:
        return REDACTED


class KeptSecret(Tainted):
    """A secret that the current request does not change, so that comparing it with the host answers no guess."""

    __slots__ = ()


class PrivateText(Tainted):
    """Text that a manifest hides (`data` of a sensitive `apply`). Its author may use it in names, which are shown."""

    __slots__ = ()


def line_problem(text: str) -> str | None:
    """Returns why a text is not one plain line, without showing the text; None if it is.

    Control characters, line and paragraph separators, and bidirectional controls become syntax in unit files, logs and
    terminals."""
    if text.isascii() and text.isprintable():
        return None
    for position, character in enumerate(text):
        code = ord(character)
        if code < 0x20 or 0x7F <= code <= 0x9F or character in NOT_IN_A_LINE:
            kind = "a line break" if character in LINE_BREAKS else "the control character"
            return f"contains {kind} U+{code:04X} at position {position + 1}"
    return None


def shorten(text: str, limit: int = 60) -> str:
    """Shortens text for a message; replaces all of a secret."""
    if isinstance(text, Tainted):
        return REDACTED
    return text if len(text) <= limit else text[: limit - 1] + "…"


def keep_end(text: str, limit: int) -> str:
    """The last lines of a text, where a failure names its cause. A line that is too long loses its beginning."""
    if isinstance(text, Tainted):
        return REDACTED
    if len(text) <= limit:
        return text
    end = text[len(text) - limit + 2 :]
    lines = end.partition("\n")[2]
    return f"…\n{lines}" if len(lines) > limit // 2 else f"…{end}"


def keep_ends(text: str, limit: int) -> str:
    """The first line of a text and its last lines."""
    if isinstance(text, Tainted):
        return REDACTED
    if len(text) <= limit:
        return text
    first, _, rest = text.partition("\n")
    first = shorten(first, limit // 2)
    return f"{first}\n{keep_end(rest, limit - len(first) - 1)}" if rest else first


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
