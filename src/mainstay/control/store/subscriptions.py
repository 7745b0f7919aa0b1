"""Event subscribers: which instance holds the lease, and the last acknowledged event."""

from __future__ import annotations

from datetime import datetime

from mainstay.control.store.engine.contract import Transaction, fetch_number, fetch_value
from mainstay.control.store.engine.paging import SqlCondition, joined_conditions, walk
from mainstay.control.store.engine.records import to_microseconds
from mainstay.control.store.events import EVENTS, EventRow


async def lease(tx: Transaction, subscriber_id: str, instance_id: str, now: datetime, until: datetime) -> int | None:
    """Takes the lease in one guarded statement; returns the last acknowledged number. None: another holds the lease."""
    return await fetch_value(
        tx,
        "INSERT INTO event_subscriptions (subscriber_id, instance_id, lease_expires_at, last_sequence)"
        " VALUES (:subscriber_id, :instance_id, :until, 0)"
        " ON CONFLICT (subscriber_id) DO UPDATE SET instance_id = :instance_id, lease_expires_at = :until"
        " WHERE event_subscriptions.instance_id = :instance_id OR event_subscriptions.lease_expires_at <= :now"
        " RETURNING last_sequence",
        subscriber_id=subscriber_id,
        instance_id=instance_id,
        until=to_microseconds(until),
        now=to_microseconds(now),
    )


async def acknowledge(tx: Transaction, subscriber_id: str, instance_id: str, sequence: int) -> bool:
    """False if another instance has the lease, or the number is not between the last acknowledged and the newest."""
    changed = await tx.execute(
        "UPDATE event_subscriptions SET last_sequence = :sequence WHERE subscriber_id = :subscriber_id"
        " AND instance_id = :instance_id AND last_sequence < :sequence"
        " AND :sequence <= (SELECT coalesce(max(sequence_number), 0) FROM events)",
        subscriber_id=subscriber_id,
        instance_id=instance_id,
        sequence=sequence,
    )
    return changed > 0


async def events_after(tx: Transaction, sequence: int, limit: int, scope: list[SqlCondition]) -> list[EventRow]:
    _, parameters = joined_conditions(scope)
    ending = f"ORDER BY sequence_number LIMIT {int(limit)}"
    rows = await tx.fetch(
        f"{walk(EVENTS, EVENTS.name, scope, 'sequence_number > :sequence', ending)} {ending}",
        slow=True,
        sequence=sequence,
        **parameters,
    )
    return [EVENTS.decode(row) for row in rows]


async def last_number(tx: Transaction) -> int:
    """The number of the newest event. 0: no event has a number."""
    return await fetch_number(tx, "SELECT max(sequence_number) FROM events")


async def lowest_acknowledged(tx: Transaction, seen_after: datetime) -> int | None:
    """The number up to which every subscriber seen after this time has acknowledged events. None: no such subscriber. A
    lease ends within an hour after the subscriber was seen."""
    return await fetch_value(
        tx,
        "SELECT min(last_sequence) FROM event_subscriptions WHERE lease_expires_at > :seen_after",
        seen_after=to_microseconds(seen_after),
    )
