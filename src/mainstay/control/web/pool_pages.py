"""The page of a pool, for pools of services and of agents: its picture, its values and their holders, and forms that
add and remove values. Values are added as a text of lines and ranges."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass

from mainstay.control.access import with_article
from mainstay.control.web.contract import ApiRefusal, PageAnswer, PageCall, WebPage
from mainstay.control.web.noun_pages import (
    Confirmation,
    ConfirmedRequest,
    NounPages,
    Row,
    confirmed_pages,
    may_row,
    read_document,
    wire_name,
)
from mainstay.control.web.views.pools import HeldValue, PoolPicture, value_text

MOST_ADDED = 1000
MOST_REFUSED = 20
RANGE = re.compile(r"(\d{1,18})\s*(?:-|–|\.\.|to)\s*(\d{1,18})")


@dataclass(frozen=True, slots=True)
class ShownPool:
    picture: PoolPicture
    # What the pool belongs to: word, name, and address of its page.
    scope: tuple[str, str, str]
    values: Sequence[HeldValue]
    # Cursor of the next page of values. None: there is none.
    older: str | None = None


@dataclass(frozen=True, slots=True)
class AddedValues:
    added: int
    # (line, message)
    refused: list[tuple[str, str]]
    # The lines that were not added.
    left: str


@dataclass(frozen=True, slots=True)
class PoolPages:
    """The pages of one kind of pool, which `noun` has the list and the forms of."""

    noun: NounPages
    # The noun that takes values: service or agent.
    holder: str
    read: Callable[[PageCall, Row], Awaitable[ShownPool]]

    def pages(self) -> tuple[WebPage, ...]:
        write = (f"{self.noun.noun}_value", "write")
        path = f"{self.noun.path}/{{id}}"
        return (
            WebPage(method="GET", path=path, act=self._show, access=(self.noun.noun, "read")),
            WebPage(method="POST", path=path, act=self._add, access=write),
            *confirmed_pages(f"{_values(self.noun.path)}/{{id}}/delete", write, self._confirm_removal),
        )

    async def _show(self, call: PageCall, added: AddedValues | None = None) -> PageAnswer:
        noun, pool = self.noun, await call.api("GET", f"{self.noun.api}/{call.path['id']}")
        may_write = may_row(call, noun.noun, pool)
        values = {
            "pool": pool,
            "shown": await self.read(call, pool),
            "holder_word": self.holder.capitalize(),
            "after": call.asked("after"),
            "base": noun.target(pool),
            "values_base": _values(noun.path),
            "crumbs": noun.crumbs(),
            "is_list": pool["generatorType"] == "list",
            "may_write": may_write,
            "may_add": may_write and pool["generatorType"] == "list",
            "added": added,
            "topics": f"{noun.noun} {noun.noun}_value {self.holder}",
        }
        return PageAnswer("pool.html", values, status=400 if added is not None and added.refused else 200)

    async def _add(self, call: PageCall) -> PageAnswer:
        pool = await call.api("GET", f"{self.noun.api}/{call.path['id']}")
        added = await _add_values(call, _values(self.noun.api), pool, wire_name(f"{self.noun.noun}_id"))
        if added.refused:
            return await self._show(call, added)
        count = "A value is" if added.added == 1 else f"{added.added} values are"
        return PageAnswer(redirect=self.noun.target(pool), notice=f"{count} added to {pool['name']}")

    async def _confirm_removal(self, call: PageCall) -> tuple[Confirmation, ConfirmedRequest]:
        address = f"{_values(self.noun.api)}/{call.path['id']}"
        value = await call.api("GET", address)
        pool = await call.api("GET", f"{self.noun.api}/{value[wire_name(f'{self.noun.noun}_id')]}")
        leaves = f"{value['name']} leaves the pool {pool['name']}."
        effects = [f"{leaves} While {with_article(self.holder)} has it, this is refused."]
        request = ConfirmedRequest("DELETE", address, self.noun.target(pool), f"{value['name']} is removed")
        return Confirmation(f"Remove {value['name']}", "Remove the value", effects, self.noun.crumbs(pool)), request


def _values(pools: str) -> str:
    """The address of values: /pool-values beside /pools."""
    return f"{pools[:-1]}-values"


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


async def _add_values(call: PageCall, api: str, pool: Row, member: str) -> AddedValues:
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
