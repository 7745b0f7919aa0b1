"""Allocates pool values and frees them. Lists allocate in the order of creation, subnets the lowest address first.

Free addresses of a subnet are stored as ranges, so allocation costs the same for a /24 and for an IPv6 /32."""

from __future__ import annotations

import hashlib
import ipaddress
from collections.abc import Sequence
from dataclasses import dataclass

import msgspec

from mainstay.control.domain.properties.contract import PoolAnswer, PoolProblem, PoolQuestion, Unknown
from mainstay.control.operations.machinery.refusals import BadInput, Conflict
from mainstay.control.operations.machinery.unit_of_work import UnitOfWork, new_id
from mainstay.control.store import service_pools as store
from mainstay.control.store.service_pools import (
    SERVICE_POOL_VALUES,
    SERVICE_POOLS,
    ServicePool,
    ServicePoolValue,
)

Network = ipaddress.IPv4Network | ipaddress.IPv6Network
CONFIG_KEYS = {"cidr", "excludeFirst", "excludeLast"}


@dataclass(frozen=True, slots=True)
class Subnet:
    network: Network
    first: int
    last: int

    def address(self, number: int) -> str:
        kind = ipaddress.IPv4Address if self.network.version == 4 else ipaddress.IPv6Address
        return str(kind(number))

    @property
    def size(self) -> int:
        return max(0, self.last - self.first + 1)


def parse_subnet(config: dict[str, object] | None) -> Subnet:
    if config is None:
        raise BadInput("a subnet pool needs generatorConfig with cidr")
    unknown = [key for key, value in config.items() if key not in CONFIG_KEYS and value is not None]
    if unknown:
        raise BadInput(f"unknown key in generatorConfig: {', '.join(sorted(unknown))}")
    cidr = config.get("cidr")
    try:
        network = ipaddress.ip_network(cidr if isinstance(cidr, str) else "", strict=True)
    except ValueError as error:
        raise BadInput(f"generatorConfig.cidr is not a network: {error}") from None
    skipped = [_count(config, key) for key in ("excludeFirst", "excludeLast")]
    first = int(network.network_address) + skipped[0]
    last = int(network.broadcast_address) - skipped[1]
    if first > last:
        raise BadInput("generatorConfig excludes every address of the network")
    return Subnet(network, first, last)


def _count(config: dict[str, object], key: str) -> int:
    value = config.get(key)
    if value is None:
        return 0
    if isinstance(value, bool) or not isinstance(value, int | float) or value < 0 or value != int(value):
        raise BadInput(f"generatorConfig.{key} must be a non-negative integer")
    return int(value)


def value_key(value: object) -> str:
    """Equal for equal JSON values. A digest, because index entries are limited in size."""
    return hashlib.sha256(msgspec.json.encode(_normalize(value), order="sorted")).hexdigest()


def _normalize(value: object) -> object:
    if isinstance(value, float) and value.is_integer() and abs(value) <= 2**53:
        return int(value)
    if isinstance(value, dict):
        return {name: _normalize(item) for name, item in value.items()}
    if isinstance(value, list):
        return [_normalize(item) for item in value]
    return value


async def answer(
    work: UnitOfWork, pool_set_id: str | None, questions: Sequence[PoolQuestion], service_id: str | None
) -> tuple[dict[str, PoolAnswer | PoolProblem], tuple[str, ...]]:
    """Allocates a value for each question and returns the ids of the rows. Without a service it only checks the pools.

    Questions are answered in the order of pool ids, so that two orders cannot deadlock."""
    answers: dict[str, PoolAnswer | PoolProblem] = {}
    taken: list[str] = []
    if pool_set_id is None:
        return {question.path: PoolProblem.NO_POOL_SET for question in questions}, ()
    asked: list[tuple[ServicePool, PoolQuestion]] = []
    for question in questions:
        pool = await store.find_pool(work.tx, pool_set_id, question.pool_type)
        if pool is None:
            answers[question.path] = PoolProblem.NO_POOL
        else:
            asked.append((pool, question))
    for pool, question in sorted(asked, key=lambda each: each[0].id):
        if service_id is None or pool.property_type != question.property_type:
            answers[question.path] = PoolAnswer(pool.property_type, Unknown.COUNTED)
        else:
            value = await _take(work, pool, service_id, question)
            answers[question.path] = (
                PoolProblem.EXHAUSTED if value is None else PoolAnswer(pool.property_type, value.value)
            )
            taken += [] if value is None else [value.id]
    return answers, tuple(taken)


async def _take(
    work: UnitOfWork, pool: ServicePool, service_id: str, question: PoolQuestion
) -> ServicePoolValue | None:
    if pool.generator_type == "list":
        key = None if question.wanted is None else value_key(question.wanted)
        return await store.take_listed(work.tx, pool.id, service_id, question.path, work.now, key)
    # The lock on the pool protects its ranges.
    await SERVICE_POOLS.find(work.tx, pool.id, lock=True)
    subnet = parse_subnet(pool.generator_config)
    number = None
    if question.wanted is not None:
        number = _parse_address(question.wanted, subnet)
        if number is None:
            return None
    found = await store.range_holding(work.tx, pool.id, number)
    if found is None:
        return None
    first, last = found
    number = first if number is None else number
    await store.remove_range(work.tx, pool.id, first)
    await store.add_range(work.tx, pool.id, first, number - 1)
    await store.add_range(work.tx, pool.id, number + 1, last)
    address = subnet.address(number)
    value = ServicePoolValue(
        id=new_id(),
        created_at=work.now,
        updated_at=work.now,
        name=address,
        value=address,
        service_pool_id=pool.id,
        provider_id=pool.provider_id,
        service_id=service_id,
        property_name=question.path,
        allocated_at=work.now,
    )
    await SERVICE_POOL_VALUES.insert(work.tx, value, value_key=value_key(address))
    return value


def _parse_address(value: object, subnet: Subnet) -> int | None:
    """The address as a number. None: not an address of this subnet, or not in canonical form."""
    if not isinstance(value, str):
        return None
    try:
        address = ipaddress.ip_address(value)
    except ValueError:
        return None
    if address.version != subnet.network.version or str(address) != value:
        return None
    return int(address) if subnet.first <= int(address) <= subnet.last else None


async def give_back(work: UnitOfWork, values: Sequence[ServicePoolValue]) -> None:
    for value in sorted(values, key=lambda value: value.service_pool_id):
        pool = await SERVICE_POOLS.find(work.tx, value.service_pool_id, lock=True)
        if pool is None or pool.generator_type == "list":
            await store.free_value(work.tx, value.id, work.now)
            continue
        await SERVICE_POOL_VALUES.delete(work.tx, value.id)
        number = _parse_address(value.value, parse_subnet(pool.generator_config))
        if number is not None:
            await _free_address(work, pool.id, number)


async def _free_address(work: UnitOfWork, pool_id: str, number: int) -> None:
    """Adds the address to the free ranges and merges it with adjacent ranges."""
    first = last = number
    below = await store.range_holding(work.tx, pool_id, number - 1) if number else None
    if below is not None:
        first = below[0]
        await store.remove_range(work.tx, pool_id, first)
    above = await store.range_starting(work.tx, pool_id, number + 1)
    if above is not None:
        last = above
        await store.remove_range(work.tx, pool_id, number + 1)
    await store.add_range(work.tx, pool_id, first, last)


async def give_back_by_id(work: UnitOfWork, ids: Sequence[str]) -> None:
    found = [await SERVICE_POOL_VALUES.find(work.tx, value_id, lock=True) for value_id in ids]
    await give_back(work, [value for value in found if value is not None])


async def lay_out_ranges(work: UnitOfWork, pool: ServicePool) -> None:
    """Computes the free ranges of a subnet: all addresses except the allocated ones."""
    subnet = parse_subnet(pool.generator_config)
    taken: list[int] = []
    values = await SERVICE_POOL_VALUES.all_by(work.tx, "service_pool_id", pool.id, limit=10_000_000)
    for value in values:
        number = _parse_address(value.value, subnet)
        if number is None:
            raise Conflict(
                f"{value.name} is allocated to service {value.service_id} and is outside of the new range",
                code="pool_in_use",
            )
        taken.append(number)
    await store.clear_ranges(work.tx, pool.id)
    start = subnet.first
    for number in sorted(taken):
        await store.add_range(work.tx, pool.id, start, number - 1)
        start = number + 1
    await store.add_range(work.tx, pool.id, start, subnet.last)
