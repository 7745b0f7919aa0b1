"""How lists look: aligned tables cut to the terminal, trees of properties, bars, ages. Knows nothing of what it shows.

All text passes through `printable`, so that nothing which comes from a server can steer the terminal."""

from __future__ import annotations

import os
import sys
from datetime import UTC, datetime

from mainstay.cli.views.run_display import Palette, printable

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    # A text, or a text and its colour.
    Cell = str | tuple[str, str]

GAP = "  "
NOTHING = "-"
NARROWEST = 6
GOOD, BUSY, BAD, DIM, BOLD = "stable", "changed", "failed", "dim", "bold"
UNITS = ((86400, "d"), (3600, "h"), (60, "m"), (1, "s"))
LONGEST_CELL = 400
SMALL_SECONDS = 10


def print_table(headers: Sequence[str], rows: Sequence[Sequence[Cell]]) -> None:
    """Columns as wide as they need to be; on a terminal the widest give way until the line fits."""
    palette = Palette(sys.stdout)
    painted = [[_painted_cell(cell) for cell in row] for row in rows]
    texts = [list(headers), *([text for text, _ in row] for row in painted)]
    widths = [max(width_of(line[column]) for line in texts) for column in range(len(headers))]
    limit = terminal_width()
    if limit is not None:
        fit(widths, limit - len(GAP) * (len(widths) - 1))
    print(GAP.join(palette.paint(_pad(*each), BOLD) for each in zip(headers, widths, strict=True)).rstrip())
    for row in painted:
        cells = (palette.paint(_pad(text, wide), colour) for (text, colour), wide in zip(row, widths, strict=True))
        print(GAP.join(cells).rstrip())


def _painted_cell(cell: Cell) -> tuple[str, str]:
    text, colour = cell if isinstance(cell, tuple) else (cell, "")
    return (cut(printable(text).replace("\t", " "), LONGEST_CELL), colour) if text else (NOTHING, DIM)


def fit(widths: list[int], limit: int) -> None:
    while sum(widths) > limit and max(widths) > NARROWEST:
        widths[widths.index(max(widths))] -= 1


def _pad(text: str, wide: int) -> str:
    shown = cut(text, wide)
    return shown + " " * (wide - width_of(shown))


def cut(text: str, wide: int) -> str:
    if width_of(text) <= wide:
        return text
    kept = ""
    for character in text:
        if width_of(kept + character) > wide - 1:
            break
        kept += character
    return kept + "…"


def width_of(text: str) -> int:
    """How many places of a terminal it takes."""
    if text.isascii():
        return len(text)
    from unicodedata import combining, east_asian_width

    return sum(0 if combining(each) else 2 if east_asian_width(each) in "WF" else 1 for each in text)


def terminal_width() -> int | None:
    """None in a pipe, where nothing is cut."""
    try:
        return os.get_terminal_size(sys.stdout.fileno()).columns or 80 if sys.stdout.isatty() else None
    except OSError:
        return None


def print_fields(fields: Iterable[tuple[str, Cell]]) -> None:
    """Names on the left, values on the right; what is empty is left out."""
    palette = Palette(sys.stdout)
    shown = [(name, cell if isinstance(cell, tuple) else (cell, "")) for name, cell in fields if cell]
    wide = max((len(name) for name, _ in shown), default=0)
    for name, (text, colour) in shown:
        lines = printable(text, keep_newlines=True).replace("\n", "\n" + " " * wide + GAP)
        print(f"{palette.paint(name.ljust(wide), BOLD)}{GAP}{palette.paint(lines, colour)}")


def tree_lines(value: Mapping[str, object], indent: str = "  ") -> list[str]:
    """A document, two places deeper with each level; values that stand beside each other are aligned."""
    wide = max((width_of(printable(name)) for name, item in value.items() if not _is_nested(item)), default=0)
    lines: list[str] = []
    for name, item in value.items():
        if isinstance(item, dict) and item:
            lines += [f"{indent}{printable(name)}", *tree_lines(item, indent + "  ")]
        elif _is_nested(item) and isinstance(item, list):
            lines.append(f"{indent}{printable(name)}")
            for number, each in enumerate(item):
                lines += tree_lines({f"[{number}]": each}, indent + "  ")
        else:
            lines.append(f"{indent}{_pad(printable(name), wide)}{GAP}{printable(plain(item))}")
    return lines


def _is_nested(item: object) -> bool:
    if isinstance(item, dict):
        return bool(item)
    return isinstance(item, list) and any(isinstance(each, (dict, list)) for each in item)


def plain(value: object) -> str:
    """A value as a person would write it."""
    if value is None:
        return NOTHING
    if isinstance(value, str):
        return value if value else "''"
    if isinstance(value, list) and value and all(isinstance(each, str) and each for each in value):
        return ", ".join(value)
    import json

    return json.dumps(value, ensure_ascii=False)


def bar(share: float, wide: int = 20) -> str:
    full, empty = ("█", "░") if "utf" in (sys.stdout.encoding or "").lower() else ("#", "-")
    done = round(max(0.0, min(1.0, share)) * wide)
    return full * done + empty * (wide - done)


def age(time: object, *, now: datetime | None = None) -> str:
    """How long ago it was, in its largest unit; empty if it is no time."""
    then = _read_time(time)
    return "" if then is None else _span(((now or datetime.now(UTC)) - then).total_seconds())


def _span(seconds: float) -> str:
    for size, unit in UNITS:
        if seconds >= size:
            return f"{int(seconds // size)}{unit}"
    return "0s"


def lasted(began: object, ended: object) -> str:
    """How long it took, small times to a tenth; empty if one of them is no time."""
    first, last = _read_time(began), _read_time(ended)
    if first is None or last is None:
        return ""
    seconds = (last - first).total_seconds()
    if seconds < SMALL_SECONDS:
        return f"{max(0.0, seconds):.1f}s"
    largest = next(size for size, _ in UNITS if seconds >= size)
    rest = seconds % largest
    return _span(seconds) + (_span(rest) if rest >= 1 else "")


def _read_time(text: object) -> datetime | None:
    try:
        return datetime.fromisoformat(text) if isinstance(text, str) else None
    except ValueError:
        return None


def clock(text: object) -> str:
    """A moment as a person here reads it."""
    time = _read_time(text)
    return "" if time is None else time.astimezone().strftime("%Y-%m-%d %H:%M:%S")


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"
