"""Events: written in the transaction of the change they record, numbered before the next read."""

from __future__ import annotations

from typing import Literal

from mainstay.control.store.engine.contract import Transaction
from mainstay.control.store.engine.paging import SqlCondition
from mainstay.control.store.engine.records import Record, Table


class EventRow(Record, frozen=True, kw_only=True):
    # None until the next read numbers it.
    sequence_number: int | None = None
    type: str
    initiator_type: Literal["user", "system"]
    initiator_id: str
    entity_id: str
    properties: dict[str, object]
    provider_id: str | None = None
    consumer_id: str | None = None
    agent_id: str | None = None
    participant_id: str | None = None


EVENTS = Table("events", "event", EventRow)
NUMBERED = SqlCondition("sequence_number IS NOT NULL")


async def number_events(tx: Transaction) -> None:
    """Gives every committed row its number. The lock is a statement of its own, so that the update sees every number
    that the last holder assigned."""
    await tx.lock("events")
    await tx.execute(
        "UPDATE events SET sequence_number = numbered.number FROM ("
        " SELECT id, (SELECT coalesce(max(sequence_number), 0) FROM events)"
        "  + row_number() OVER (ORDER BY created_at, ordinal, id) AS number"
        " FROM events WHERE sequence_number IS NULL) AS numbered"
        " WHERE events.id = numbered.id"
    )


async def has_unnumbered(tx: Transaction) -> bool:
    return bool(await tx.fetch("SELECT 1 AS found FROM events WHERE sequence_number IS NULL LIMIT 1"))
