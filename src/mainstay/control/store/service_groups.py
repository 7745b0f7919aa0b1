"""Service groups: a consumer's services that belong together."""

from __future__ import annotations

from mainstay.control.store.engine.contract import Transaction
from mainstay.control.store.engine.records import Record, Table


class ServiceGroup(Record, frozen=True, kw_only=True):
    name: str
    consumer_id: str


SERVICE_GROUPS = Table("service_groups", "service_group", ServiceGroup)


async def find_group_named(tx: Transaction, consumer_id: str, name: str) -> ServiceGroup | None:
    """The oldest group of the consumer with this name."""
    rows = await tx.fetch(
        f"SELECT {SERVICE_GROUPS.select()} FROM service_groups WHERE consumer_id = :consumer_id AND name = :name"
        " ORDER BY created_at, id LIMIT 1",
        consumer_id=consumer_id,
        name=name,
    )
    return SERVICE_GROUPS.decode(rows[0]) if rows else None
