"""Figures of the whole plane for its metrics. Each query reads an index of few rows, an index range, or a small table;
only living services are counted one by one, along an index that covers the query."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from mainstay.control.store.engine.contract import Row, Transaction
from mainstay.control.store.engine.records import to_microseconds
from mainstay.control.store.jobs import ACTIVE_STATUSES
from mainstay.control.store.services import DRIFTED, UNHELD_REPAIR, UNKNOWN_OFFLINE, UNKNOWN_REPORTED


async def count_jobs(tx: Transaction, since: datetime) -> Sequence[Row]:
    """By status and service type: active jobs, and with `recent` 1 those created since a time that have ended."""
    return await tx.fetch(
        "SELECT counted.recent, counted.status, service_types.name AS service_type, sum(counted.number) AS number"
        " FROM (SELECT 0 AS recent, jobs.status, services.service_type_id, count(*) AS number FROM jobs"
        f" JOIN services ON services.id = jobs.service_id WHERE jobs.status IN {ACTIVE_STATUSES}"
        " GROUP BY jobs.status, services.service_type_id"
        " UNION ALL SELECT 1 AS recent, jobs.status, services.service_type_id, count(*) AS number FROM jobs"
        f" JOIN services ON services.id = jobs.service_id WHERE jobs.status NOT IN {ACTIVE_STATUSES}"
        " AND jobs.created_at >= :since GROUP BY jobs.status, services.service_type_id) AS counted"
        " JOIN service_types ON service_types.id = counted.service_type_id"
        " GROUP BY counted.recent, counted.status, service_types.name",
        slow=True,
        since=to_microseconds(since),
    )


async def count_services(tx: Transaction) -> Sequence[Row]:
    """Living services by type and state."""
    return await tx.fetch(
        "SELECT service_types.name AS service_type, counted.state, counted.number FROM"
        " (SELECT service_type_id, status AS state, count(*) AS number FROM services WHERE is_terminal = 0"
        " GROUP BY service_type_id, status) AS counted"
        " JOIN service_types ON service_types.id = counted.service_type_id",
        slow=True,
    )


async def count_troubles(tx: Transaction) -> Row:
    """`oldest` is the creation of the oldest queued job; None: no job is queued."""
    rows = await tx.fetch(
        "SELECT (SELECT min(created_at) FROM jobs WHERE status = 'Pending' AND waiting_for IS NULL) AS oldest,"
        f" (SELECT count(*) FROM services WHERE {DRIFTED}) AS drifted,"
        f" (SELECT count(*) FROM services WHERE {UNHELD_REPAIR}) AS unheld_repairs,"
        f" (SELECT count(*) FROM services WHERE {UNKNOWN_REPORTED})"
        f" + (SELECT count(*) FROM services WHERE {UNKNOWN_OFFLINE}) AS unknown,"
        " (SELECT count(*) FROM services WHERE failed_job_id IS NOT NULL) AS failed,"
        " (SELECT count(*) FROM orphans WHERE closed_at IS NULL) AS orphans,"
        " (SELECT count(*) FROM events WHERE sequence_number IS NULL)"
        " + (SELECT count(*) FROM events WHERE hash IS NULL AND sequence_number IS NOT NULL) AS unchained",
        slow=True,
    )
    return rows[0]


async def read_lags(tx: Transaction, seen_after: datetime, limit: int) -> dict[str, int]:
    """Subscriber → events that it has not acknowledged, for those seen after a time; the furthest behind first."""
    rows = await tx.fetch(
        "SELECT subscriber_id, (SELECT coalesce(max(sequence_number), 0) FROM events) - last_sequence AS lag"
        " FROM event_subscriptions WHERE lease_expires_at > :seen_after"
        f" ORDER BY last_sequence, subscriber_id LIMIT {int(limit)}",
        seen_after=to_microseconds(seen_after),
    )
    return {row["subscriber_id"]: max(row["lag"], 0) for row in rows}
