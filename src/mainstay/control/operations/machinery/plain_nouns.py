"""Creates and changes rows of nouns without rules of their own: the owner is the caller or chosen by an admin."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

import msgspec

from mainstay import nouns
from mainstay.control.operations.machinery.bodies import Body, with_given
from mainstay.control.operations.machinery.bounds import MAX_VALUE_BYTES, refuse_unusable
from mainstay.control.operations.machinery.named_rows import find_named, refuse_for_others
from mainstay.control.operations.machinery.unit_of_work import UnitOfWork
from mainstay.control.store.engine.records import Record, Table
from mainstay.control.store.participants import PARTICIPANTS

R = TypeVar("R", bound=Record)


def plain_operations(
    noun: nouns.Noun, table: Table[R]
) -> tuple[Callable[[UnitOfWork, Body], Awaitable[R]], Callable[[UnitOfWork, R, Body], Awaitable[R]]]:
    """The functions that create and change a row."""

    async def create(work: UnitOfWork, wanted: Body) -> R:
        return await create_row(work, noun, table, wanted)

    async def change(work: UnitOfWork, before: R, wanted: Body) -> R:
        _refuse_unusable_values(noun, wanted)
        return await work.update(table, before, with_given(before, wanted))

    return create, change


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
