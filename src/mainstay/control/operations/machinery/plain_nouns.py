"""Creates, changes and deletes rows of nouns without rules of their own: the owner is the caller or chosen by an admin."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Generic, TypeVar

import msgspec

from mainstay import nouns
from mainstay.control.operations.machinery.bodies import Body, change_of, new_of, with_given
from mainstay.control.operations.machinery.bounds import MAX_VALUE_BYTES, refuse_unusable
from mainstay.control.operations.machinery.named_rows import find_named, refuse_for_others, refuse_if_needed
from mainstay.control.operations.machinery.unit_of_work import UnitOfWork
from mainstay.control.store.engine.records import Record, Table
from mainstay.control.store.participants import PARTICIPANTS

R = TypeVar("R", bound=Record)


@dataclass(frozen=True)
class PlainNoun(Generic[R]):
    """The bodies and operations of a noun that its declaration has everything about."""

    noun: nouns.Noun
    table: Table[R]
    # What refuses a deletion: name of the dependants → (table, column that refers to the row).
    dependants: Mapping[str, tuple[str, str]] = field(default_factory=dict)
    # In the names of its bodies. Empty: as the row.
    name: str = ""

    @cached_property
    def new_body(self) -> type[Body]:
        return new_of(self.noun)(_empty_body(f"New{self.name or self.table.record.__name__}"))

    @cached_property
    def change_body(self) -> type[Body]:
        return change_of(self.noun)(_empty_body(f"{self.name or self.table.record.__name__}Change"))

    async def create(self, work: UnitOfWork, wanted: Body) -> R:
        return await create_row(work, self.noun, self.table, wanted)

    async def change(self, work: UnitOfWork, before: R, wanted: Body) -> R:
        _refuse_unusable_values(self.noun, wanted)
        return await work.update(self.table, before, with_given(before, wanted))

    async def delete(self, work: UnitOfWork, row: R) -> None:
        await refuse_if_needed(work, self.table, row, self.dependants)
        await work.delete(self.table, row)


def _empty_body(name: str) -> type[Body]:
    return msgspec.defstruct(name, (), bases=(Body,), module=__name__, frozen=True, kw_only=True)  # type: ignore[return-value]


async def create_row(work: UnitOfWork, noun: nouns.Noun, table: Table[R], wanted: Body, **resolved: Any) -> R:
    """`resolved`: columns that the body does not hold as they are stored."""
    given = {**msgspec.structs.asdict(wanted), **resolved}
    if noun.owner is not None:
        owner_id = given[noun.owner.field] = given[noun.owner.field].lower()
        refuse_for_others(work, owner_id, f"{noun.shown}s")
        await find_named(work, PARTICIPANTS, owner_id)
    _refuse_unusable_values(noun, wanted)
    values = {name: value for name, value in given.items() if name in table.kinds}
    return await work.insert(table, table.record(**work.new_record(), **values))


def _refuse_unusable_values(noun: nouns.Noun, wanted: Body) -> None:
    for each in noun.members:
        if each.kind in (nouns.ANY, nouns.OBJECT):
            refuse_unusable(each.name, getattr(wanted, each.field, None), MAX_VALUE_BYTES)
