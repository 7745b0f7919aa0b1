"""Orphans: clean-ups that an agent owes after a forced delete. Closed rows stay until their service is deleted."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

import msgspec

from mainstay.control.domain.orphans import OrphanReason
from mainstay.control.store.engine.contract import Row, Transaction, Value
from mainstay.control.store.engine.paging import SqlCondition
from mainstay.control.store.engine.records import Record, Table, to_microseconds


class OrphanRow(Record, frozen=True, kw_only=True):
    service_id: str
    service_name: str
    agent_id: str
    provider_id: str
    reason: OrphanReason
    # Clean-ups that failed.
    attempts: int = 0
    last_error: str | None = None


ORPHANS = Table("orphans", "orphan", OrphanRow)
OPEN_ONLY = SqlCondition("closed_at IS NULL")


async def find_open(tx: Transaction, orphan_id: str) -> OrphanRow | None:
    """The orphan, locked until the commit. None: it is closed."""
    rows = await tx.fetch(
        f"SELECT {ORPHANS.select()} FROM orphans WHERE id = :id AND closed_at IS NULL{tx.for_update}", id=orphan_id
    )
    return ORPHANS.decode(rows[0]) if rows else None


async def close(tx: Transaction, orphan_id: str, now: datetime, report: object) -> None:
    """`report` None: the last one is kept."""
    await tx.execute(
        "UPDATE orphans SET closed_at = :now, updated_at = :now, report = coalesce(:report, report) WHERE id = :id",
        id=orphan_id,
        now=to_microseconds(now),
        report=encode_report(report),
    )


def encode_report(report: object) -> str | None:
    return None if report is None else msgspec.json.encode(report).decode()


async def report_of(tx: Transaction, orphan_id: str) -> object | None:
    rows: list[Row] = list(await tx.fetch("SELECT report FROM orphans WHERE id = :id", id=orphan_id))
    text = rows[0]["report"] if rows else None
    return None if text is None else msgspec.json.decode(str(text))


async def open_ids(tx: Transaction, column: str, value: str, limit: int = 10) -> list[str]:
    """Open orphans of an agent or provider, or of the services of a group, type or participant.

    `column` is a literal of this program: `orphans.agent_id`, `services.group_id`, …"""
    rows = await tx.fetch(
        "SELECT orphans.id FROM orphans JOIN services ON services.id = orphans.service_id"
        f" WHERE orphans.closed_at IS NULL AND {column} = :value ORDER BY orphans.created_at, orphans.id LIMIT {limit}",
        value=value,
    )
    return [str(row["id"]) for row in rows]


async def open_ids_of_services(tx: Transaction, service_ids: Sequence[str]) -> list[str]:
    marks: dict[str, Value] = {f"id_{index}": service_id for index, service_id in enumerate(service_ids)}
    if not marks:
        return []
    rows = await tx.fetch(
        f"SELECT id FROM orphans WHERE service_id IN ({', '.join(f':{name}' for name in marks)})"
        " AND closed_at IS NULL ORDER BY created_at, id",
        **marks,  # type: ignore[arg-type]
    )
    return [str(row["id"]) for row in rows]
