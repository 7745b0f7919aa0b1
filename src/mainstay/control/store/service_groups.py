"""Service groups: a consumer's services that belong together."""

from __future__ import annotations

from mainstay.control.store.engine.contract import Transaction
from mainstay.control.store.engine.declared_structs import row_of
from mainstay.control.store.engine.records import Record, Table
from mainstay.nouns.service_groups import NOUN


@row_of(NOUN)
class ServiceGroup(Record, frozen=True, kw_only=True):
    name: str
    consumer_id: str


SERVICE_GROUPS = Table("service_groups", "service_group", ServiceGroup)


async def find_group_named(tx: Transaction, consumer_id: str, name: str) -> ServiceGroup | None:
    """The oldest group of the consumer with this name."""
    return await SERVICE_GROUPS.first(
        tx,
        "consumer_id = :consumer_id AND name = :name ORDER BY created_at, id LIMIT 1",
        consumer_id=consumer_id,
        name=name,
    )
