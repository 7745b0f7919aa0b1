"""Views of rows with the names of related rows, such as `participant: {id, name}` of an agent.

They cost one query per page. Lists filter and sort by the columns of the row, never by these members."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import msgspec

from mainstay.control.access import Role
from mainstay.control.operations.machinery.unit_of_work import UnitOfWork
from mainstay.control.operations.machinery.views import Named
from mainstay.control.store.engine.paging import CursorPage, Listing, Page
from mainstay.control.store.engine.records import Record, Table
from mainstay.control.store.related_names import read_related_names

V = TypeVar("V", bound=Record)


@dataclass(frozen=True, slots=True)
class RelatedRow:
    # The column that holds its id.
    column: str
    table: Table[Any]
    # Shown as its name alone, without the id.
    name_only: bool = False
    # Roles that see null instead, because the related row is not theirs to read.
    hidden_from: frozenset[Role] = frozenset()


@dataclass(frozen=True, slots=True)
class EmbeddedNames(Generic[V]):
    """`view` is the row with one more member for each of `related`; a member is None if there is no related row."""

    table: Table[Any]
    view: type[V]
    related: Mapping[str, RelatedRow]

    async def show_all(self, work: UnitOfWork, rows: Sequence[Record]) -> list[V]:
        role = work.required_caller.role
        seen = {name: each for name, each in self.related.items() if role not in each.hidden_from}
        named = {member: (each.column, each.table) for member, each in seen.items()}
        names = await read_related_names(work.tx, self.table, rows, named)
        return [self._show(row, names.get(row.id, {})) for row in rows]

    async def show(self, work: UnitOfWork, row: Record) -> V:
        return (await self.show_all(work, [row]))[0]

    async def page(self, work: UnitOfWork, listing: Listing) -> Page[V] | CursorPage[V]:
        found = await work.page(self.table, listing)
        return msgspec.structs.replace(found, items=await self.show_all(work, found.items))

    def _show(self, row: Record, names: Mapping[str, str | None]) -> V:
        members: dict[str, Any] = {
            member: _member(each, row, names.get(member)) for member, each in self.related.items()
        }
        return self.view(**msgspec.structs.asdict(row), **members)


def _member(related: RelatedRow, row: Record, name: str | None) -> Named | str | None:
    if name is None or related.name_only:
        return name
    return Named(getattr(row, related.column), name)
