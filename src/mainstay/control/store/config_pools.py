"""Config pools and their values. A value belongs to one agent at most."""

from __future__ import annotations

from datetime import datetime

from mainstay.control.store.engine.contract import Transaction
from mainstay.control.store.engine.declared_structs import row_of
from mainstay.control.store.engine.records import Record, Table
from mainstay.control.store.list_pools import ListedValues
from mainstay.nouns.config_pools import NOUN


@row_of(NOUN)
class ConfigPool(Record, frozen=True, kw_only=True):
    name: str
    type: str
    property_type: str
    generator_type: str
    generator_config: dict[str, object] | None = None
    # None: global.
    participant_id: str | None = None


class ConfigPoolValue(Record, frozen=True, kw_only=True):
    name: str
    value: object
    config_pool_id: str
    # The owner of the pool.
    participant_id: str | None = None
    # None: the value is free.
    agent_id: str | None = None
    property_name: str | None = None
    allocated_at: datetime | None = None


CONFIG_POOLS = Table("config_pools", "config_pool", ConfigPool)
CONFIG_POOL_VALUES = Table("config_pool_values", "config_pool_value", ConfigPoolValue)
AGENT_VALUES = ListedValues(CONFIG_POOL_VALUES, "config_pool_id", "agent_id", "agents")
count_values = AGENT_VALUES.count


async def find_conflicting(tx: Transaction, pool_type: str, participant_id: str | None) -> ConfigPool | None:
    """A pool because of which the participant, or None for global, cannot have one of this type."""
    scope = "" if participant_id is None else " AND (participant_id IS NULL OR participant_id = :participant_id)"
    return await CONFIG_POOLS.first(
        tx,
        f"type = :type{scope} ORDER BY participant_id IS NULL DESC, created_at, id LIMIT 1",
        type=pool_type,
        participant_id=participant_id,
    )


async def delete_free_values(tx: Transaction, pool_id: str) -> None:
    """An allocated value stays and refuses the deletion of its pool, also one that is being allocated now."""
    await tx.execute(
        "DELETE FROM config_pool_values WHERE config_pool_id = :pool_id AND agent_id IS NULL", pool_id=pool_id
    )


async def find_pool(tx: Transaction, provider_id: str, pool_type: str, *, or_global: bool) -> ConfigPool | None:
    """The pool of the provider; with `or_global`, else the global one."""
    or_none = " OR participant_id IS NULL" if or_global else ""
    return await CONFIG_POOLS.first(
        tx,
        f"type = :type AND (participant_id = :provider_id{or_none}) ORDER BY participant_id IS NULL LIMIT 1",
        type=pool_type,
        provider_id=provider_id,
    )


async def values_with_holders(tx: Transaction, pool_id: str, limit: int) -> list[tuple[ConfigPoolValue, str]]:
    return await AGENT_VALUES.with_holders(tx, [pool_id], limit)
