"""Pools in pages: the picture of their values, and values added as a text of lines and ranges."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec
from markupsafe import Markup

from mainstay.control.operations.machinery.pool_allocation import Subnet
from mainstay.control.web.contract import ApiRefusal, PageCall
from mainstay.control.web.drawings.pool_cells import MAX_CELLS, NEARLY_FULL, PoolCell, draw_pool_bar, draw_pool_cells
from mainstay.control.web.noun_pages import read_document

MOST_ADDED = 1000
MOST_REFUSED = 20
RANGE = re.compile(r"(\d{1,18})\s*(?:-|–|\.\.|to)\s*(\d{1,18})")


@dataclass(frozen=True, slots=True)
class HeldValue:
    """A value of a pool. `holder` "": it is free."""

    id: str
    text: str
    holder: str = ""
    href: str = ""


@dataclass(frozen=True, slots=True)
class PoolPicture:
    total: int
    used: int
    # (kind, word) of a state
    state: tuple[str, str]
    drawing: Markup


@dataclass(frozen=True, slots=True)
class AddedValues:
    added: int
    # (line, message)
    refused: list[tuple[str, str]]
    # The lines that were not added.
    left: str


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


def _read_lines(text: str, property_type: str) -> Iterator[tuple[str, list[object] | str]]:
    """(line, its values, or why it has none). A range such as 8100-8199 is one line."""
    for line in (each.strip() for each in text.splitlines()):
        if not line:
            continue
        try:
            yield line, _line_values(line, property_type)
        except ValueError as error:
            yield line, str(error)


def _line_values(line: str, property_type: str) -> list[object]:
    found = RANGE.fullmatch(line)
    if property_type in ("integer", "number") and found is not None:
        first, last = int(found[1]), int(found[2])
        if not first <= last < first + MOST_ADDED:
            raise ValueError(f"a range has 1 to {MOST_ADDED} values")
        return list(range(first, last + 1))
    if property_type == "string":
        return [*_addresses(line)] or [line]
    return [read_document(line)]


def _addresses(line: str) -> Iterator[str]:
    """192.0.2.10-192.0.2.20"""
    first, dash, last = line.partition("-")
    if not dash:
        return
    try:
        low, high = ipaddress.ip_address(first.strip()), ipaddress.ip_address(last.strip())
    except ValueError:
        return
    if low.version != high.version or not 0 <= int(high) - int(low) < MOST_ADDED:
        raise ValueError(f"a range has 1 to {MOST_ADDED} values")
    for number in range(int(low), int(high) + 1):
        yield str(type(low)(number))


async def add_values(call: PageCall, api: str, pool: Mapping[str, Any], member: str) -> AddedValues:
    """Adds each value of the form by itself. Lines with a refused value stay in the form."""
    added, refused = 0, list[tuple[str, str]]()
    for line, values in _read_lines(call.posted("values"), str(pool["propertyType"])):
        if isinstance(values, str):
            refused.append((line, values))
            continue
        if added + len(values) > MOST_ADDED:
            refused.append((line, f"at most {MOST_ADDED} values at once; add the rest with another form"))
            continue
        for value in values:
            body = {"name": value_text(value)[:255], "value": value, member: pool["id"]}
            try:
                await call.api("POST", api, body)
                added += 1
            except ApiRefusal as refusal:
                if refusal.status not in (400, 409):
                    raise
                message = "; ".join(fault for _, fault in refusal.faults) or str(refusal)
                refused.append((line if len(values) == 1 else value_text(value), message))
    return AddedValues(added, refused[:MOST_REFUSED], "\n".join(dict.fromkeys(line for line, _ in refused)))
