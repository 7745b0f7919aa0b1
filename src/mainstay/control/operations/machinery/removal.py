"""Refuses the deletion of a row that others refer to."""

from __future__ import annotations

from typing import TypeVar

from mainstay.control.operations.machinery.refusals import InUse
from mainstay.control.operations.machinery.unit_of_work import UnitOfWork
from mainstay.control.store.engine.records import Record, Table, referring_ids

R = TypeVar("R", bound=Record)


async def refuse_if_needed(work: UnitOfWork, table: Table[R], record: R, columns: dict[str, tuple[str, str]]) -> None:
    """`columns`: name of the dependants → (table, column that refers to this record)."""
    found = {
        noun: await referring_ids(work.tx, other, column, record.id) for noun, (other, column) in columns.items()
    }
    if any(found.values()):
        raise InUse(f"{table.noun.replace('_', ' ')} {record.id}", found)
