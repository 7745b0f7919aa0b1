"""The clock of the database, and the times that move when it steps."""

from __future__ import annotations

from datetime import datetime, timedelta

from mainstay.control.store.engine.contract import Transaction, fetch_number
from mainstay.control.store.engine.records import to_microseconds, to_time
from mainstay.control.store.jobs import ACTIVE_STATUSES

MOVED_JOBS = (
    "UPDATE jobs SET claimed_at = claimed_at + :step, updated_at = updated_at + :step,"
    f" lease_expires_at = lease_expires_at + :step, deadline_at = deadline_at + :step WHERE status IN {ACTIVE_STATUSES}"
)
MOVED = (
    MOVED_JOBS,
    "UPDATE agents SET last_status_update = last_status_update + :step WHERE status = 'Connected'",
    "UPDATE event_subscriptions SET lease_expires_at = lease_expires_at + :step",
    "UPDATE plan_requests SET deadline_at = deadline_at + :step",
)


async def read_database_time(tx: Transaction) -> datetime:
    """The clock of PostgreSQL, which all replicas share."""
    return to_time(await fetch_number(tx, "SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint"))


async def last_step(tx: Transaction) -> int:
    return await fetch_number(tx, "SELECT max(number) FROM clock_steps")


async def move_times(tx: Transaction, number: int, step: timedelta, now: datetime) -> None:
    """Moves deadlines, leases and last signs of life, so that as much time is left as before the step."""
    microseconds = step // timedelta(microseconds=1)
    for statement in MOVED:
        await tx.execute(statement, step=microseconds)
    await tx.execute(
        "INSERT INTO clock_steps (number, noticed_at, microseconds) VALUES (:number, :now, :step)",
        number=number,
        now=to_microseconds(now),
        step=microseconds,
    )
