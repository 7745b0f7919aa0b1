"""Formats tables, trees, progress bars and times for the terminal. Contains nothing about particular lists.

All text passes through `printable`, so that text from a server cannot control the terminal."""

from __future__ import annotations

import os
import sys
from datetime import datetime, timezone

from mainstay.cli.views.run_display import Palette, printable

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from typing import TypeAlias

# A text, or a text and its colour.
Cell: TypeAlias = "str | tuple[str, str]"
GAP = "  "
NOTHING = "-"
MIN_COLUMN_WIDTH = 6
GOOD, BUSY, BAD, DIM, BOLD = "stable", "changed", "failed", "dim", "bold"
UNITS = ((86400, "d"), (3600, "h"), (60, "m"), (1, "s"))
MAX_CELL_WIDTH = 400
SMALL_SECONDS = 10
BAR_WIDTH = 20


def print_table(
    headers: Sequence[str], rows: Sequence[Sequence[Cell]], *, optional_columns: Sequence[str] = ()
) -> None:
    """Prints aligned columns. On a terminal the widest columns shrink until the line fits; where that is not enough,
    optional columns are left out, the first one first."""
    left_out = _left_out(len(headers), optional_columns)
    if left_out:
        kept = [column for column, name in enumerate(headers) if name not in left_out]
        headers, rows = [headers[column] for column in kept], [[row[column] for column in kept] for row in rows]
    palette = Palette(sys.stdout)
    painted = [[_painted_cell(cell) for cell in row] for row in rows]
    texts = [list(headers), *([text for text, _ in row] for row in painted)]
    widths = [max(width_of(line[column]) for line in texts) for column in range(len(headers))]
    limit = terminal_width()
    if limit is not None:
        shrink_to_fit(widths, limit - len(GAP) * (len(widths) - 1))
    print(GAP.join(palette.paint(_pad(*each), BOLD) for each in zip(headers, widths)).rstrip())
    for row in painted:
        cells = (palette.paint(_pad(text, width), colour) for (text, colour), width in zip(row, widths))
        print(GAP.join(cells).rstrip())


def _left_out(columns: int, optional_columns: Sequence[str]) -> Sequence[str]:
    """The optional columns without which the others fit the terminal at their least width."""
    limit = terminal_width()
    count = 0
    while limit is not None and count < len(optional_columns):
        shown = columns - count
        if shown * MIN_COLUMN_WIDTH + (shown - 1) * len(GAP) <= limit:
            break
        count += 1
    return optional_columns[:count]


def _painted_cell(cell: Cell) -> tuple[str, str]:
    text, colour = cell if isinstance(cell, tuple) else (cell, "")
    return (truncate(printable(text).replace("\t", " "), MAX_CELL_WIDTH), colour) if text else (NOTHING, DIM)


def shrink_to_fit(widths: list[int], limit: int) -> None:
    while sum(widths) > limit and max(widths) > MIN_COLUMN_WIDTH:
        widths[widths.index(max(widths))] -= 1


def _pad(text: str, width: int) -> str:
    shown = truncate(text, width)
    return shown + " " * (width - width_of(shown))


def truncate(text: str, width: int) -> str:
    if width_of(text) <= width:
        return text
    kept = ""
    for character in text:
        if width_of(kept + character) > width - 1:
            break
        kept += character
    return kept + "…"


def width_of(text: str) -> int:
    """The number of terminal columns of a text."""
    if text.isascii():
        return len(text)
    from unicodedata import combining, east_asian_width

    return sum(0 if combining(each) else 2 if east_asian_width(each) in "WF" else 1 for each in text)


def terminal_width() -> int | None:
    """None in a pipe, where nothing is truncated."""
    try:
        return os.get_terminal_size(sys.stdout.fileno()).columns or 80 if sys.stdout.isatty() else None
    except OSError:
        return None


def print_fields(fields: Iterable[tuple[str, Cell]]) -> None:
    """Prints names and values in two columns; omits empty values."""
    palette = Palette(sys.stdout)
    shown = [(name, cell if isinstance(cell, tuple) else (cell, "")) for name, cell in fields if cell]
    width = max((len(name) for name, _ in shown), default=0)
    for name, (text, colour) in shown:
        lines = printable(text, keep_newlines=True).replace("\n", "\n" + " " * width + GAP)
        print(f"{palette.paint(name.ljust(width), BOLD)}{GAP}{palette.paint(lines, colour)}")


def tree_lines(value: Mapping[str, object], indent: str = "  ") -> list[str]:
    """An indented tree of a document; values of one level are aligned."""
    width = max((width_of(printable(name)) for name, item in value.items() if not _is_nested(item)), default=0)
    lines: list[str] = []
    for name, item in value.items():
        if isinstance(item, dict) and item:
            lines += [f"{indent}{printable(name)}", *tree_lines(item, indent + "  ")]
        elif _is_nested(item) and isinstance(item, list):
            lines.append(f"{indent}{printable(name)}")
            for number, each in enumerate(item):
                lines += tree_lines({f"[{number}]": each}, indent + "  ")
        else:
            lines.append(f"{indent}{_pad(printable(name), width)}{GAP}{printable(format_value(item))}")
    return lines


def _is_nested(item: object) -> bool:
    if isinstance(item, dict):
        return bool(item)
    return isinstance(item, list) and any(isinstance(each, (dict, list)) for each in item)


def format_value(value: object) -> str:
    """A value as text: strings without quotes, lists of strings with commas, other values as JSON."""
    if value is None:
        return NOTHING
    if isinstance(value, str):
        return value if value else "''"
    if isinstance(value, list) and value and all(isinstance(each, str) and each for each in value):
        return ", ".join(value)
    import json

    return json.dumps(value, ensure_ascii=False)


def progress_bar(share: float) -> str:
    full, empty = ("█", "░") if "utf" in (sys.stdout.encoding or "").lower() else ("#", "-")
    done = round(max(0.0, min(1.0, share)) * BAR_WIDTH)
    return full * done + empty * (BAR_WIDTH - done)


def age(time: object, *, now: datetime | None = None) -> str:
    """Time since `time` in its largest unit; empty if `time` is not a time."""
    then = _parse_time(time)
    return "" if then is None else _in_largest_unit(((now or datetime.now(timezone.utc)) - then).total_seconds())


def _in_largest_unit(seconds: float) -> str:
    for size, unit in UNITS:
        if seconds >= size:
            return f"{int(seconds // size)}{unit}"
    return "0s"


def elapsed(started: object, finished: object) -> str:
    """The duration between two times, below 10 s in tenths; empty if one is not a time."""
    first, last = _parse_time(started), _parse_time(finished)
    if first is None or last is None:
        return ""
    seconds = (last - first).total_seconds()
    if seconds < SMALL_SECONDS:
        return f"{max(0.0, seconds):.1f}s"
    largest = next(size for size, _ in UNITS if seconds >= size)
    rest = seconds % largest
    return _in_largest_unit(seconds) + (_in_largest_unit(rest) if rest >= 1 else "")


def _parse_time(text: object) -> datetime | None:
    try:
        # Before Python 3.11, `fromisoformat` does not accept Z.
        return datetime.fromisoformat(text.replace("Z", "+00:00")) if isinstance(text, str) else None
    except ValueError:
        return None


def local_time(text: object) -> str:
    """A time in the local time zone."""
    time = _parse_time(text)
    return "" if time is None else time.astimezone().strftime("%Y-%m-%d %H:%M:%S")
