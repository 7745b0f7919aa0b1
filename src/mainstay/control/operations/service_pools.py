"""Pool sets, pools and values, as their provider manages them. Allocation is in `machinery/pool_allocation.py`."""

from __future__ import annotations

import msgspec

from mainstay.control.access import Role
from mainstay.control.operations.machinery import pool_allocation
from mainstay.control.operations.machinery.bodies import Body, Id, Name, change_of, new_of, with_given
from mainstay.control.operations.machinery.embedded_names import EmbeddedNames, RelatedRow
from mainstay.control.operations.machinery.named_rows import find_own
from mainstay.control.operations.machinery.plain_nouns import PlainNoun
from mainstay.control.operations.machinery.refusals import BadInput, InUse
from mainstay.control.operations.machinery.unit_of_work import UnitOfWork
from mainstay.control.operations.machinery.views import Named
from mainstay.control.store.orphans import open_ids_of_services
from mainstay.control.store.participants import PARTICIPANTS
from mainstay.control.store.service_pools import (
    SERVICE_POOL_SETS,
    SERVICE_POOL_VALUES,
    SERVICE_POOLS,
    SERVICE_VALUES,
    ServicePool,
    ServicePoolSet,
    ServicePoolValue,
    count_values,
)
from mainstay.control.store.services import SERVICES
from mainstay.nouns import service_pool_sets, service_pools


@new_of(service_pools.NOUN)
class NewPool(Body, frozen=True, kw_only=True):
    service_pool_set_id: str


@change_of(service_pools.NOUN)
class PoolChange(Body, frozen=True, kw_only=True):
    pass


class NewPoolValue(Body, frozen=True, kw_only=True):
    name: Name
    value: object
    service_pool_id: Id


class PoolValueChange(Body, frozen=True, kw_only=True):
    name: Name | None = None


class Usage(msgspec.Struct, frozen=True):
    """Exact integers of any size: an IPv6 network has more addresses than a double can represent."""

    total: int
    allocated: int
    free: int


class ServicePoolSetView(ServicePoolSet, frozen=True, kw_only=True):
    provider: Named | None


class ServicePoolView(ServicePool, frozen=True, kw_only=True):
    service_pool_set_name: str | None


class ServicePoolValueView(ServicePoolValue, frozen=True, kw_only=True):
    # None: the value is free, or the caller is an agent, which must not learn of services of others.
    service: Named | None
    service_pool: Named | None


SETS = PlainNoun(
    service_pool_sets.NOUN,
    SERVICE_POOL_SETS,
    {"servicePools": ("service_pools", "service_pool_set_id"), "agents": ("agents", "service_pool_set_id")},
    "PoolSet",
)
SET_NAMES = EmbeddedNames(
    SERVICE_POOL_SETS, ServicePoolSetView, {"provider": RelatedRow("provider_id", PARTICIPANTS)}
)
POOL_NAMES = EmbeddedNames(
    SERVICE_POOLS,
    ServicePoolView,
    {"service_pool_set_name": RelatedRow("service_pool_set_id", SERVICE_POOL_SETS, name_only=True)},
)
VALUE_NAMES = EmbeddedNames(
    SERVICE_POOL_VALUES,
    ServicePoolValueView,
    {
        "service": RelatedRow("service_id", SERVICES, hidden_from=frozenset({Role.AGENT})),
        "service_pool": RelatedRow("service_pool_id", SERVICE_POOLS),
    },
)


async def create_pool(work: UnitOfWork, wanted: NewPool) -> ServicePool:
    refusal = "the pool set must be your own"
    pool_set = await find_own(work, SERVICE_POOL_SETS, wanted.service_pool_set_id, "provider_id", refusal)
    given = {**msgspec.structs.asdict(wanted), "service_pool_set_id": pool_set.id}
    pool = ServicePool(**work.new_record(), **given, provider_id=pool_set.provider_id)
    _check_generator(pool)
    await work.insert(SERVICE_POOLS, pool)
    if pool.generator_type == "subnet":
        await pool_allocation.lay_out_ranges(work, pool)
    return pool


def _check_generator(pool: ServicePool) -> None:
    if pool.generator_type == "list":
        if pool.generator_config:
            raise BadInput(
                "a list pool has no generatorConfig; create its values with POST /api/v1/service-pool-values"
            )
        return
    if pool.property_type not in ("string", "json"):
        raise BadInput(f"a subnet pool contains strings, so its propertyType cannot be {pool.property_type}")
    pool_allocation.parse_subnet(pool.generator_config)


async def change_pool(work: UnitOfWork, before: ServicePool, wanted: PoolChange) -> ServicePool:
    after = with_given(before, wanted)
    _check_generator(after)
    if after.generator_type == "subnet" and after.generator_config != before.generator_config:
        await pool_allocation.lay_out_ranges(work, after)
    return await work.update(SERVICE_POOLS, before, after)


async def delete_pool(work: UnitOfWork, pool: ServicePool) -> None:
    allocated = await SERVICE_VALUES.holders(work.tx, pool.id)
    if allocated:
        raise InUse(f"service pool {pool.id}", await _holders(work, allocated))
    await work.delete(SERVICE_POOLS, pool)


async def create_value(work: UnitOfWork, wanted: NewPoolValue) -> ServicePoolValue:
    refusal = "the pool must be your own"
    pool = await find_own(work, SERVICE_POOLS, wanted.service_pool_id, "provider_id", refusal)
    if pool.generator_type == "subnet":
        raise BadInput("a subnet pool generates its values; values can be added only to a list pool")
    pool_allocation.check_value(pool, wanted.value)
    value = ServicePoolValue(
        **work.new_record(),
        name=wanted.name,
        value=wanted.value,
        service_pool_id=pool.id,
        provider_id=pool.provider_id,
    )
    return await work.insert(SERVICE_POOL_VALUES, value, value_key=pool_allocation.value_key(wanted.value))


async def change_value(work: UnitOfWork, before: ServicePoolValue, wanted: PoolValueChange) -> ServicePoolValue:
    return await work.update(SERVICE_POOL_VALUES, before, with_given(before, wanted))


async def delete_value(work: UnitOfWork, value: ServicePoolValue) -> None:
    if value.service_id is not None:
        raise InUse(f"{value.name} of pool {value.service_pool_id}", await _holders(work, [value.service_id]))
    await work.delete(SERVICE_POOL_VALUES, value)


async def _holders(work: UnitOfWork, service_ids: list[str]) -> dict[str, list[str]]:
    return {"services": service_ids, "orphans": await open_ids_of_services(work.tx, service_ids)}


async def usage(work: UnitOfWork, pool: ServicePool) -> Usage:
    stored, allocated = await count_values(work.tx, pool.id)
    total = pool_allocation.capacity(pool.generator_type, pool.generator_config, stored)
    return Usage(total, allocated, total - allocated)
