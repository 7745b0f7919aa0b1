"""The picture of a pool: how many of its values are used, and by which holder."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import msgspec
from markupsafe import Markup

from mainstay.control.operations.machinery.pool_allocation import Subnet
from mainstay.control.web.drawings.numbers import MAX_CELLS, NEARLY_FULL, PoolCell, draw_pool_bar, draw_pool_cells


@dataclass(frozen=True, slots=True)
class HeldValue:
    """A value of a pool. `holder` "": it is free."""

    id: str
    text: str
    holder: str = ""
    href: str = ""
    # The property that it is allocated for, and since when.
    property_name: str | None = None
    since: object = None


@dataclass(frozen=True, slots=True)
class PoolPicture:
    total: int
    used: int
    # (kind, word) of a state
    state: tuple[str, str]
    drawing: Markup


def value_text(value: object) -> str:
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()


def picture_of(
    name: str, total: int, used: int, cells: Sequence[PoolCell] | None, *, ringed: str | None = None
) -> PoolPicture:
    """`cells` None: too many to draw one by one."""
    drawing = draw_pool_bar(used, total, name) if cells is None else draw_pool_cells(cells, ringed=ringed)
    return PoolPicture(total, used, _state(total, used), drawing)


def _state(total: int, used: int) -> tuple[str, str]:
    free = total - used
    if free <= 0:
        return "bad", "Empty" if total == 0 else "None left"
    shown = "plenty left" if free > 1_000_000 else f"{free:,} left"
    return ("warn" if used / total >= NEARLY_FULL else "done"), shown


def list_cells(values: Sequence[HeldValue]) -> list[PoolCell]:
    return [
        PoolCell(each.text[:100], "used" if each.holder else "free", each.holder[:100], each.href)
        for each in values[:MAX_CELLS]
    ]


def subnet_cells(subnet: Subnet, values: Sequence[HeldValue]) -> list[PoolCell] | None:
    """Every address, with those that are left out. None: too many."""
    network = subnet.network
    if network.num_addresses > MAX_CELLS:
        return None
    held = {each.text: each for each in values}
    cells = []
    for address in network:
        text, number = str(address), int(address)
        found = held.get(text)
        if found is not None:
            cells.append(PoolCell(text, "used", found.holder[:100], found.href))
        else:
            cells.append(PoolCell(text, "free" if subnet.first <= number <= subnet.last else "out"))
    return cells
