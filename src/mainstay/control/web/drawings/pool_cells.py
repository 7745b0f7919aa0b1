"""The values of a pool, one cell each; a bar for a pool with too many."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from markupsafe import Markup

from mainstay.control.domain.lifecycle.drawn_text import printable
from mainstay.control.domain.lifecycle.path_data import number
from mainstay.control.web.drawings.elements import join, picture, tooltip

CellKind = Literal["used", "free", "out"]

MAX_CELLS = 1024
WIDTH = 350.0
# Columns by the most cells: more cells are smaller.
COLUMNS = ((100, 25), (256, 32), (400, 40), (MAX_CELLS, 64))
MARGIN = 2.0
# The label names free values up to this many.
MAX_NAMED_VALUES = 6
NEARLY_FULL = 0.9


@dataclass(frozen=True, slots=True)
class PoolCell:
    """`out`: the value is excluded from the pool, such as a network address."""

    value: str
    kind: CellKind
    # What the pointer shows besides the value, such as the service that has it.
    title: str = ""
    # Empty: the cell is no link.
    href: str = ""


def draw_pool_cells(cells: Sequence[PoolCell], *, ringed: str | None = None) -> Markup:
    """`ringed` is the value that the page is about."""
    if len(cells) > MAX_CELLS:
        raise ValueError(f"{len(cells)} cells: more than {MAX_CELLS} values are drawn with draw_pool_bar")
    columns = next(count for most, count in COLUMNS if len(cells) <= most)
    pitch = WIDTH / columns
    size = pitch - min(2.0, pitch * 0.2)
    places = [((index % columns) * pitch, (index // columns) * pitch) for index in range(len(cells))]
    body = join(_cell(cell, x, y, size) for cell, (x, y) in zip(cells, places, strict=True))
    rings = join(
        _ring(x, y, size)
        for cell, (x, y) in zip(cells, places, strict=True)
        if ringed is not None and cell.value == ringed
    )
    height = max(1, -(-len(cells) // columns)) * pitch
    view_box = (-MARGIN, -MARGIN, WIDTH + 2 * MARGIN, height + 2 * MARGIN)
    links = any(cell.href for cell in cells)
    return picture(view_box, _label(cells), body + rings, kind="pic cells", links=links)


def draw_pool_bar(used: int, total: int, name: str) -> Markup:
    """For a pool of any size, up to the addresses of an IPv6 network."""
    share = 0.0 if total <= 0 else min(1.0, used / total)
    # A single used value of very many is visible.
    shown = max(share * 100, 1.0) if used else 0.0
    kind = "full" if share >= NEARLY_FULL else "use"
    percent = "less than 1 %" if 0 < share < 0.01 else f"{share * 100:.0f} %"
    return Markup('<progress class="{}" max="100" value="{}" aria-label="{} in use">{}</progress>').format(
        kind, number(shown), printable(name), percent
    )


def _label(cells: Sequence[PoolCell]) -> str:
    counted = [cell for cell in cells if cell.kind != "out"]
    free = [cell.value for cell in counted if cell.kind == "free"]
    label = f"{len(counted) - len(free):,} of {len(counted):,} values used"
    if not 0 < len(free) <= MAX_NAMED_VALUES:
        return label
    return f"{label}; free: {', '.join(free)}"


def _cell(cell: PoolCell, x: float, y: float, size: float) -> Markup:
    # The border of a free cell lies inside, so that all cells have the same size.
    inset = 0.5 if cell.kind == "free" else 0.0
    edge = number(size - 2 * inset)
    title = f"{cell.value}: {cell.title}" if cell.title else cell.value
    shape = Markup('<rect class="f-{}" x="{}" y="{}" width="{}" height="{}">{}</rect>').format(
        cell.kind, number(x + inset), number(y + inset), edge, edge, tooltip(title)
    )
    if not cell.href:
        return shape
    return Markup('<a href="{}" aria-label="{}">{}</a>').format(cell.href, printable(title), shape)


def _ring(x: float, y: float, size: float) -> Markup:
    edge = number(size + 4)
    return Markup(
        '<rect x="{}" y="{}" width="{}" height="{}" rx="3" fill="none" stroke="currentColor" stroke-width="1.5"/>'
    ).format(number(x - 2), number(y - 2), edge, edge)
