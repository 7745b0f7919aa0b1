"""Rows that a request names: they must exist, participants create only below their own, and a row that others refer
to is not deleted."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeVar

from mainstay.control.access import Role
from mainstay.control.operations.machinery.refusals import BadInput, InUse, NotPermitted
from mainstay.control.operations.machinery.unit_of_work import UnitOfWork
from mainstay.control.store.engine.records import Record, Table, referring_ids

R = TypeVar("R", bound=Record)


async def find_named(work: UnitOfWork, table: Table[R], record_id: str, *, lock: bool = False) -> R:
    return _required(table, record_id, await table.find(work.tx, record_id.lower(), lock=lock))


async def find_own(work: UnitOfWork, table: Table[R], record_id: str, owner: str, refusal: str) -> R:
    """`owner` is the column of the participant. A participant does not learn whether a row of others exists."""
    found = await table.find(work.tx, record_id.lower())
    caller = work.required_caller
    if caller.role is not Role.ADMIN and (found is None or getattr(found, owner) != caller.participant_id):
        raise NotPermitted(refusal)
    return _required(table, record_id, found)


def _required(table: Table[R], record_id: str, found: R | None) -> R:
    if found is None:
        raise BadInput(f"there is no {table.noun.replace('_', ' ')} {record_id}")
    return found


def refuse_for_others(work: UnitOfWork, participant_id: str, things: str) -> None:
    caller = work.required_caller
    if caller.role is not Role.ADMIN and participant_id != caller.participant_id:
        raise NotPermitted(f"you can create {things} only for your own participant")


async def refuse_if_needed(
    work: UnitOfWork, table: Table[R], record: R, columns: Mapping[str, tuple[str, str]]
) -> None:
    """`columns`: name of the dependants → (table, column that refers to this record)."""
    found = {
        noun: await referring_ids(work.tx, other, column, record.id) for noun, (other, column) in columns.items()
    }
    if any(found.values()):
        raise InUse(f"{table.noun.replace('_', ' ')} {record.id}", found)
