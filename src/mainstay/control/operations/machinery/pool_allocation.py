"""Allocates pool values and frees them. Lists allocate in the order of creation, subnets the lowest address first.

Free addresses of a subnet are stored as ranges, so allocation costs the same for a /24 and for an IPv6 /32."""

from __future__ import annotations

import hashlib
import ipaddress
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

import msgspec

from mainstay.control.domain.placement import PoolNeed, PoolRoom, PoolRooms
from mainstay.control.domain.properties.contract import PoolAnswer, PoolProblem, PoolQuestion, Unknown
from mainstay.control.domain.properties.evaluation import PoolTake
from mainstay.control.domain.values import integer_problem, is_integer, is_number, json_problem, number_problem
from mainstay.control.operations.machinery.bounds import MAX_VALUE_BYTES, refuse_large
from mainstay.control.operations.machinery.refusals import BadInput, Conflict
from mainstay.control.operations.machinery.unit_of_work import UnitOfWork
from mainstay.control.store import config_pools
from mainstay.control.store import service_pools as store
from mainstay.control.store.config_pools import AGENT_VALUES, ConfigPool, ConfigPoolValue
from mainstay.control.store.service_pools import (
    SERVICE_POOL_VALUES,
    SERVICE_POOLS,
    SERVICE_VALUES,
    ServicePool,
    ServicePoolValue,
)

Network = ipaddress.IPv4Network | ipaddress.IPv6Network
CONFIG_KEYS = {"cidr", "excludeFirst", "excludeLast"}
PoolAnswers = dict[str, PoolAnswer | PoolProblem]


P = TypeVar("P", ServicePool, ConfigPool)


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


def capacity(generator_type: str, generator_config: dict[str, object] | None, stored: int) -> int:
    """The size of a list pool, or the addresses of a subnet, of which only used ones are stored."""
    return parse_subnet(generator_config).size if generator_type == "subnet" else stored


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


def check_value(pool: ServicePool | ConfigPool, value: object) -> None:
    """Refuses a value that the pool cannot contain."""
    refuse_large("value", value, MAX_VALUE_BYTES)
    if not _fits(pool.property_type, value):
        found = integer_problem(value) if pool.property_type == "integer" else number_problem(value)
        raise BadInput(f"pool {pool.type} contains values of type {pool.property_type}, got {found}")


def _fits(kind: str, value: object) -> bool:
    if kind == "string":
        return isinstance(value, str)
    if kind == "boolean":
        return isinstance(value, bool)
    if kind == "integer":
        return is_integer(value)
    return json_problem(value) is None if kind == "json" else is_number(value)


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
) -> tuple[PoolAnswers, tuple[str, ...]]:
    """Allocates a value for each question and returns the ids of the rows. Without a service it only checks the pools."""
    if pool_set_id is None:
        return {question.path: PoolProblem.NO_POOL_SET for question in questions}, ()
    pools = {question.path: await store.find_pool(work.tx, pool_set_id, question.pool_type) for question in questions}

    async def take(pool: ServicePool, question: PoolQuestion) -> ServicePoolValue | None:
        return await _take(work, pool, str(service_id), question)

    return await _allocate(questions, pools, None if service_id is None else take, PoolProblem.NO_POOL)


async def answer_for_agent(
    work: UnitOfWork, agent_id: str, provider_id: str, questions: Sequence[PoolQuestion], *, or_global: bool
) -> tuple[PoolAnswers, tuple[str, ...]]:
    """Takes values for the configuration of an agent, from the provider's pools or, with `or_global`, global ones."""
    pools = {
        question.path: await config_pools.find_pool(work.tx, provider_id, question.pool_type, or_global=or_global)
        for question in questions
    }

    async def take(pool: ConfigPool, question: PoolQuestion) -> ConfigPoolValue | None:
        return await AGENT_VALUES.take(work.tx, pool.id, agent_id, question.path, work.now, _wanted_key(question))

    return await _allocate(questions, pools, take, PoolProblem.NO_CONFIG_POOL)


async def _allocate(
    questions: Sequence[PoolQuestion],
    pools: Mapping[str, P | None],
    take: Callable[[P, PoolQuestion], Awaitable[ServicePoolValue | ConfigPoolValue | None]] | None,
    no_pool: PoolProblem,
) -> tuple[PoolAnswers, tuple[str, ...]]:
    """Questions are answered in the order of pool ids, so that two requests cannot deadlock. `take` None: only checks."""
    found = [(pool, question) for question in questions if (pool := pools[question.path]) is not None]
    answers: PoolAnswers = {question.path: no_pool for question in questions if pools[question.path] is None}
    taken: list[str] = []
    for pool, question in sorted(found, key=lambda each: each[0].id):
        if take is None or pool.property_type != question.property_type:
            answers[question.path] = PoolAnswer(pool.property_type, Unknown.COUNTED)
            continue
        value = await take(pool, question)
        if value is None:
            answers[question.path] = PoolProblem.EXHAUSTED
        else:
            answers[question.path] = PoolAnswer(pool.property_type, value.value)
            taken.append(value.id)
    return answers, tuple(taken)


def _wanted_key(question: PoolQuestion) -> str | None:
    return None if question.wanted is None else value_key(question.wanted)


async def _take(
    work: UnitOfWork, pool: ServicePool, service_id: str, question: PoolQuestion
) -> ServicePoolValue | None:
    if pool.generator_type == "list":
        key = _wanted_key(question)
        return await SERVICE_VALUES.take(work.tx, pool.id, service_id, question.path, work.now, key)
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
        **work.new_record(),
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


async def release(work: UnitOfWork, values: Sequence[ServicePoolValue]) -> None:
    for value in sorted(values, key=lambda value: value.service_pool_id):
        pool = await SERVICE_POOLS.find(work.tx, value.service_pool_id, lock=True)
        if pool is None or pool.generator_type == "list":
            await SERVICE_VALUES.free(work.tx, value.id, work.now)
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


async def release_by_id(work: UnitOfWork, ids: Sequence[str]) -> None:
    found = [await SERVICE_POOL_VALUES.find(work.tx, value_id, lock=True) for value_id in ids]
    await release(work, [value for value in found if value is not None])


async def release_replaced(
    work: UnitOfWork, agent_id: str, leaving: Sequence[PoolTake], taken: Sequence[str]
) -> None:
    """Gives back values that are no longer in the configuration of the agent."""
    paths = {take.path for take in leaving}
    if paths:
        for value in await AGENT_VALUES.held_by(work.tx, agent_id):
            if value.property_name in paths and value.id not in taken:
                await AGENT_VALUES.free(work.tx, value.id, work.now)


async def release_of_agent(work: UnitOfWork, agent_id: str) -> None:
    for value in await AGENT_VALUES.held_by(work.tx, agent_id):
        await AGENT_VALUES.free(work.tx, value.id, work.now)


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


async def find_rooms(work: UnitOfWork, pool_set_ids: Sequence[str], needs: Sequence[PoolNeed]) -> PoolRooms:
    """What the pools of these sets have for an order. Nothing is taken."""
    by_type = {need.pool_type: need for need in needs}
    most = max(need.count for need in needs)
    pools = await store.find_pools_with_room(work.tx, pool_set_ids, list(by_type), most)
    lacking_given = await _lacking_given([pool for pool, _ in pools], by_type, work)
    found: dict[tuple[str, str], PoolRoom] = {}
    for pool, counted in pools:
        free = counted
        if pool.generator_type == "subnet" and 0 < counted < by_type[pool.type].count:
            # A range has at least one address, so fewer ranges than needed addresses may be enough.
            free = await store.count_free_addresses(work.tx, pool.id, most)
        found[pool.service_pool_set_id, pool.type] = PoolRoom(
            pool.id, pool.property_type, free, pool.id not in lacking_given
        )
    return found


async def _lacking_given(pools: Sequence[ServicePool], needs: Mapping[str, PoolNeed], work: UnitOfWork) -> set[str]:
    """Ids of pools in which a value that the order gives is not free."""
    lacking: set[str] = set()
    for pool_type, need in needs.items():
        for value in need.given:
            of_type = [pool for pool in pools if pool.type == pool_type]
            lists = [pool.id for pool in of_type if pool.generator_type == "list"]
            lacking.update(set(lists) - await store.find_with_free_value(work.tx, lists, value_key(value)))
            for pool in of_type:
                if pool.generator_type == "subnet":
                    number = _parse_address(value, parse_subnet(pool.generator_config))
                    if number is None or await store.range_holding(work.tx, pool.id, number) is None:
                        lacking.add(pool.id)
    return lacking


async def count_used(work: UnitOfWork, pool_ids: Sequence[str]) -> dict[str, tuple[int, int]]:
    """(allocated, total) of each pool."""
    counts = await store.count_many(work.tx, pool_ids)
    found: dict[str, tuple[int, int]] = {}
    for pool in (await SERVICE_POOLS.many(work.tx, pool_ids)).values():
        stored, allocated = counts.get(pool.id, (0, 0))
        found[pool.id] = allocated, capacity(pool.generator_type, pool.generator_config, stored)
    return found
