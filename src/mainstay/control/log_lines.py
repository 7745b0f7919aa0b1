"""Log lines as text for people, where no terminal shows them in colours. Every request writes one, so this is the format
of structlog's ConsoleRenderer without its columns and styles: it takes a fifth of the time."""

from __future__ import annotations

import re
from collections.abc import MutableMapping
from typing import Any

# Of the longest level; of most messages.
LEVEL_WIDTH, MESSAGE_WIDTH = 9, 30
# A value with one of these is quoted, so that a line can be split again and no value adds a line.
_QUOTED = re.compile("[ \t=\r\n\"']")


def render_line(_logger: object, _method: str, event: MutableMapping[str, Any]) -> str:
    """A processor of structlog, the last one. Others have added `timestamp`, `level` and, after an error, `exception`."""
    exception = event.pop("exception", None)
    time, level, message = (event.pop(name) for name in ("timestamp", "level", "event"))
    members = " ".join([f"{name}={_text(event[name])}" for name in sorted(event)])
    line = f"{time} [{level:<{LEVEL_WIDTH}}] {message!s:<{MESSAGE_WIDTH}} {members}".rstrip(" ")
    return line if exception is None else f"{line}\n{exception}"


def _text(value: object) -> str:
    return value if isinstance(value, str) and not _QUOTED.search(value) else repr(value)
