"""Deletes rows whose time is over, a bounded number in one transaction. Each scan follows an index by age and continues
at a position, because rows that are kept regardless of their age would be scanned again and again."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from datetime import datetime

from mainstay.control.store.engine.contract import Row, Transaction, encode_json
from mainstay.control.store.engine.records import to_microseconds, to_time
from mainstay.control.store.events import EventCheckpoint, lock_chain, read_checkpoint, save_checkpoint
from mainstay.control.store.jobs import ACTIVE_STATUSES
from mainstay.control.store.subscriptions import lowest_acknowledged

# In one transaction: deleted rows, which writers wait for, and rows that are only read.
DELETED_AT_ONCE = 200
SCANNED_AT_ONCE = 1000
SERVICES_AT_ONCE = 20


@dataclass(frozen=True, slots=True)
class ScanPosition:
    """Behind the row with this time and id."""

    at: int = 0
    id: str = ""


START = ScanPosition()


@dataclass(frozen=True, slots=True)
class RetentionPass:
    finished_at: datetime
    position: ScanPosition


async def read_passes(tx: Transaction) -> dict[str, RetentionPass]:
    rows = await tx.fetch("SELECT kind, finished_at, position_at, position_id FROM retention_passes")
    return {
        row["kind"]: RetentionPass(to_time(row["finished_at"]), ScanPosition(row["position_at"], row["position_id"]))
        for row in rows
    }


async def save_pass(tx: Transaction, kind: str, retention_pass: RetentionPass) -> None:
    await tx.execute(
        "INSERT INTO retention_passes (kind, finished_at, position_at, position_id)"
        " VALUES (:kind, :finished_at, :at, :id) ON CONFLICT (kind) DO UPDATE"
        " SET finished_at = :finished_at, position_at = :at, position_id = :id",
        kind=kind,
        finished_at=to_microseconds(retention_pass.finished_at),
        at=retention_pass.position.at,
        id=retention_pass.position.id,
    )


# Returns where the next transaction continues. None: nothing is left.
Deletion = Callable[[Transaction, datetime, ScanPosition], Awaitable[ScanPosition | None]]


def _deletion(table: str, expired: str, order: str, key: str = "id") -> Deletion:
    """Deletes rows that nothing keeps once they have expired."""
    statement = (
        f"DELETE FROM {table} WHERE {key} IN (SELECT {key.strip('()')} FROM {table} WHERE {expired}"
        f" ORDER BY {order} LIMIT {DELETED_AT_ONCE})"
    )

    async def delete(tx: Transaction, before: datetime, _after: ScanPosition) -> ScanPosition | None:
        deleted = await tx.execute(statement, before=to_microseconds(before))
        return START if deleted == DELETED_AT_ONCE else None

    return delete


delete_metrics = _deletion("metric_entries", "created_at < :before", "created_at, id")
# Readings for jobs that ended long ago, so that no second event of them is due.
delete_vault_readings = _deletion("vault_readings", "read_at < :before", "read_at", "(reference, job_id)")
delete_closed_orphans = _deletion(
    "orphans", "closed_at IS NOT NULL AND closed_at < :before AND created_at < :before", "created_at, id"
)
delete_enrolment_codes = _deletion("host_enrolment_codes", "expires_at < :before", "expires_at")


_HAS_ORPHAN = (
    "(services.orphan = 1 OR EXISTS"
    " (SELECT 1 FROM orphans WHERE orphans.service_id = services.id AND orphans.closed_at IS NULL))"
)
_IS_LIVING = f"(services.is_terminal = 0 OR {_HAS_ORPHAN})"
_LATER = "later.service_id = jobs.service_id AND (later.created_at, later.id) > (jobs.created_at, jobs.id)"
_IS_LAST = f"NOT EXISTS (SELECT 1 FROM jobs AS later WHERE {_LATER})"
_HAS_LAST_REPORT = f"(jobs.report IS NOT NULL AND NOT EXISTS (SELECT 1 FROM jobs AS later WHERE {_LATER} AND later.report IS NOT NULL))"
# The provenance of a property contains the id of the job that set it.
_IS_ORIGIN = "services.provenance LIKE '%\"' || jobs.id || '\"%'"


async def delete_jobs(tx: Transaction, before: datetime, after: ScanPosition) -> ScanPosition | None:
    """Ended jobs, and runs without jobs. Of a living service the last job, the last job with a report and the jobs that
    set its properties are kept."""
    kept = f"({_IS_LAST} OR {_HAS_LAST_REPORT} OR {_IS_ORIGIN})"
    rows = await _scan_jobs(tx, before, after, kept, "1 = 1", SCANNED_AT_ONCE)
    expired = [row for row in rows if not row["is_kept"]][:DELETED_AT_ONCE]
    if expired:
        await _delete_ids(tx, "jobs", [row["id"] for row in expired])
        await tx.execute(
            f"DELETE FROM runs WHERE id IN (SELECT value FROM {tx.json_items}(:ids))"
            " AND NOT EXISTS (SELECT 1 FROM jobs WHERE jobs.run_id = runs.id)",
            ids=encode_json([row["run_id"] for row in expired]),
        )
    return _next_position(rows, expired, DELETED_AT_ONCE)


def _next_position(rows: Sequence[Row], expired: Sequence[Row], limit: int) -> ScanPosition | None:
    """Behind the last deleted row if more may be expired, else behind the last row of the scan."""
    last = expired[-1] if len(expired) == limit else rows[-1] if len(rows) == SCANNED_AT_ONCE else None
    return None if last is None else ScanPosition(last["created_at"], last["id"])


async def empty_reports(tx: Transaction, before: datetime, after: ScanPosition) -> ScanPosition | None:
    """Reports of ended jobs; of a living service the last one is kept."""
    rows = await _scan_jobs(tx, before, after, _HAS_LAST_REPORT, "jobs.report IS NOT NULL", DELETED_AT_ONCE)
    await tx.execute(
        f"UPDATE jobs SET report = NULL WHERE id IN (SELECT value FROM {tx.json_items}(:ids))",
        ids=encode_json([row["id"] for row in rows if not row["is_kept"]]),
    )
    if len(rows) < DELETED_AT_ONCE:
        return None
    return ScanPosition(rows[-1]["created_at"], rows[-1]["id"])


async def _scan_jobs(
    tx: Transaction, before: datetime, after: ScanPosition, kept: str, condition: str, limit: int
) -> Sequence[Row]:
    """The next jobs by age. `kept`: which jobs a living service keeps; active and recent ones are kept as well."""
    return await tx.fetch(
        f"SELECT jobs.id, jobs.run_id, jobs.created_at, CASE WHEN jobs.status IN {ACTIVE_STATUSES}"
        " OR coalesce(jobs.completed_at, jobs.updated_at) >= :before"
        f" OR ({_IS_LIVING} AND {kept}) THEN 1 ELSE 0 END AS is_kept"
        " FROM jobs JOIN services ON services.id = jobs.service_id"
        f" WHERE {condition} AND jobs.created_at < :before AND (jobs.created_at, jobs.id) > (:at, :id)"
        f" ORDER BY jobs.created_at, jobs.id LIMIT {limit}",
        slow=True,
        before=to_microseconds(before),
        at=after.at,
        id=after.id,
    )


async def delete_services(tx: Transaction, before: datetime, after: ScanPosition) -> ScanPosition | None:
    """Terminal services without an open orphan, after the rows that belong to them."""
    rows = await tx.fetch(
        f"SELECT id, created_at, CASE WHEN {_HAS_ORPHAN} OR updated_at >= :before THEN 1 ELSE 0 END AS is_kept"
        " FROM services WHERE is_terminal = 1 AND created_at < :before AND (created_at, id) > (:at, :id)"
        f" ORDER BY created_at, id LIMIT {SCANNED_AT_ONCE}",
        slow=True,
        before=to_microseconds(before),
        at=after.at,
        id=after.id,
    )
    expired = [row for row in rows if not row["is_kept"]][:SERVICES_AT_ONCE]
    ids = [row["id"] for row in expired]
    if ids:
        if not await _delete_rows_of_services(tx, ids):
            return after
        await _delete_ids(tx, "services", ids)
    return _next_position(rows, expired, SERVICES_AT_ONCE)


# What a service may have many of, and the key of such a row. The rest is deleted with the service.
_ROWS_OF_SERVICES = (
    ("metric_entries", "id"),
    ("jobs", "id"),
    ("runs", "id"),
    ("service_states", "(service_id, entered_at, ordinal)"),
)


async def _delete_rows_of_services(tx: Transaction, service_ids: Sequence[str]) -> bool:
    """Returns whether none is left."""
    for table, key in _ROWS_OF_SERVICES:
        deleted = await tx.execute(
            f"DELETE FROM {table} WHERE {key} IN (SELECT {key.strip('()')} FROM {table}"
            f" WHERE service_id IN (SELECT value FROM {tx.json_items}(:ids)) LIMIT {DELETED_AT_ONCE})",
            ids=encode_json(service_ids),
        )
        if deleted == DELETED_AT_ONCE:
            return False
    return True


@dataclass(frozen=True, slots=True)
class DeletedEvents:
    # The last deleted event.
    last_id: str
    last: EventCheckpoint
    has_more: bool


async def delete_events(tx: Transaction, before: datetime, seen_after: datetime) -> DeletedEvents | None:
    """Deletes hashed events from the front and saves the last of them. The newest event is always kept, because
    numbers continue after it, and so are events that a subscriber seen after a time has not acknowledged. None: there
    was nothing to delete."""
    await lock_chain(tx)
    checkpoint = await read_checkpoint(tx)
    acknowledged = await lowest_acknowledged(tx, seen_after)
    rows = await tx.fetch(
        "SELECT id, sequence_number, created_at, hash FROM events WHERE sequence_number > :last"
        f" ORDER BY sequence_number LIMIT {DELETED_AT_ONCE + 1}",
        last=0 if checkpoint is None else checkpoint.sequence_number,
    )
    expired: list[Row] = []
    # Without the last row: it may be the newest event.
    for row in rows[:-1]:
        number = row["sequence_number"]
        is_kept = row["created_at"] >= to_microseconds(before) or row["hash"] is None
        if is_kept or (acknowledged is not None and number > acknowledged):
            break
        expired.append(row)
    if not expired:
        return None
    last = EventCheckpoint(expired[-1]["sequence_number"], expired[-1]["hash"])
    deleted = await tx.execute(
        "DELETE FROM events WHERE sequence_number <= :last AND sequence_number IS NOT NULL", last=last.sequence_number
    )
    await save_checkpoint(tx, last)
    return DeletedEvents(expired[-1]["id"], last, deleted == DELETED_AT_ONCE)


async def _delete_ids(tx: Transaction, table: str, ids: Sequence[str]) -> None:
    await tx.execute(
        f"DELETE FROM {table} WHERE id IN (SELECT value FROM {tx.json_items}(:ids))", ids=encode_json(ids)
    )
