"""Config pools and their values, as their owner manages them. Allocation is in `machinery/pool_allocation.py`."""

from __future__ import annotations

import msgspec

from mainstay.control.access import Role
from mainstay.control.operations.machinery import pool_allocation
from mainstay.control.operations.machinery.bodies import Body, Id, Name, change_of, new_of, with_given
from mainstay.control.operations.machinery.bounds import MAX_VALUE_BYTES, refuse_unusable
from mainstay.control.operations.machinery.named_rows import find_named, find_own
from mainstay.control.operations.machinery.refusals import BadInput, InUse, NotPermitted
from mainstay.control.operations.machinery.unit_of_work import UnitOfWork
from mainstay.control.store.config_pools import (
    AGENT_VALUES,
    CONFIG_POOL_VALUES,
    CONFIG_POOLS,
    ConfigPool,
    ConfigPoolValue,
    delete_free_values,
    find_conflicting,
)
from mainstay.control.store.participants import PARTICIPANTS
from mainstay.nouns.config_pools import NOUN


@new_of(NOUN)
class NewConfigPool(Body, frozen=True, kw_only=True):
    type: str
    generator_config: dict[str, object] | None = None
    # None: global.
    participant_id: str | None = None


@change_of(NOUN)
class ConfigPoolChange(Body, frozen=True, kw_only=True):
    generator_config: dict[str, object] | None = None


class NewConfigPoolValue(Body, frozen=True, kw_only=True):
    name: Name
    value: object
    config_pool_id: Id


async def create_pool(work: UnitOfWork, wanted: NewConfigPool) -> ConfigPool:
    participant_id = None if wanted.participant_id is None else wanted.participant_id.lower()
    caller = work.required_caller
    if caller.role is not Role.ADMIN and participant_id != caller.participant_id:
        raise NotPermitted(
            "only an admin creates global config pools and those of others; set participantId to your own participant"
        )
    if participant_id is not None:
        await find_named(work, PARTICIPANTS, participant_id)
    refuse_unusable("generatorConfig", wanted.generator_config, MAX_VALUE_BYTES)
    await _refuse_other_scope(work, wanted.type, participant_id)
    given = {**msgspec.structs.asdict(wanted), "participant_id": participant_id}
    return await work.insert(CONFIG_POOLS, ConfigPool(**work.new_record(), **given))


async def _refuse_other_scope(work: UnitOfWork, pool_type: str, participant_id: str | None) -> None:
    """A type exists either globally or with participants, so that an agent never depends on which is found first."""
    # One after the other: no index can compare a global pool with those of participants.
    await work.tx.lock(f"config pools of type {pool_type}")
    found = await find_conflicting(work.tx, pool_type, participant_id)
    if found is not None:
        scope = "global" if found.participant_id is None else f"participant {found.participant_id}"
        raise BadInput(f"config pool of type {pool_type} already exists in {scope} scope")


async def change_pool(work: UnitOfWork, before: ConfigPool, wanted: ConfigPoolChange) -> ConfigPool:
    refuse_unusable("generatorConfig", wanted.generator_config, MAX_VALUE_BYTES)
    return await work.update(CONFIG_POOLS, before, with_given(before, wanted))


async def delete_pool(work: UnitOfWork, pool: ConfigPool) -> None:
    holders = await AGENT_VALUES.holders(work.tx, pool.id)
    if holders:
        raise InUse(f"config pool {pool.id}", {"agents": holders})
    await delete_free_values(work.tx, pool.id)
    await work.delete(CONFIG_POOLS, pool)


async def create_value(work: UnitOfWork, wanted: NewConfigPoolValue) -> ConfigPoolValue:
    refusal = "the config pool must be your own"
    pool = await find_own(work, CONFIG_POOLS, wanted.config_pool_id, "participant_id", refusal)
    pool_allocation.check_value(pool, wanted.value)
    value = ConfigPoolValue(
        **work.new_record(),
        name=wanted.name,
        value=wanted.value,
        config_pool_id=pool.id,
        participant_id=pool.participant_id,
    )
    return await work.insert(CONFIG_POOL_VALUES, value, value_key=pool_allocation.value_key(wanted.value))


async def delete_value(work: UnitOfWork, value: ConfigPoolValue) -> None:
    if value.agent_id is not None:
        raise BadInput(
            f"{value.name} is allocated to agent {value.agent_id}; delete the agent first",
            code="in_use",
            details={"dependants": {"agents": [value.agent_id]}},
        )
    await work.delete(CONFIG_POOL_VALUES, value)
