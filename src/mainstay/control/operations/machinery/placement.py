"""Places orders: asks the tables which agents have room, and tries those that `domain/placement.py` allows, best first.

A capacity is compared under a lock of its agent, and a pool value is taken by one guarded statement; the choice before
that only decides which agents are tried."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from typing import TypeVar

from mainstay.control.access import Role
from mainstay.control.domain.placement import (
    LISTED_REASONS,
    AgentLack,
    Lack,
    PoolNeed,
    PoolRooms,
    ServingAgent,
    SeveralProviders,
    explain_to_customer,
    explain_to_provider,
    find_lack,
    find_move_lack,
    find_several_providers,
    with_tags,
)
from mainstay.control.operations.machinery import pool_allocation
from mainstay.control.operations.machinery.property_decisions import PoolValueMissing
from mainstay.control.operations.machinery.refusals import BadInput
from mainstay.control.operations.machinery.unit_of_work import UnitOfWork
from mainstay.control.store.agents import AgentRow
from mainstay.control.store.placement import is_below_capacity, serving_agents

T = TypeVar("T")
CANDIDATES = 10_000
LISTED_PROVIDERS = 100
# Agents that are tried, if others take their last values at the same time.
MAX_TRIES = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class PlacementRequest:
    type_id: str
    type_name: str
    consumer_id: str
    # None: of any provider.
    provider_id: str | None = None
    tags: Sequence[str] = ()
    # What the order takes from the pools of its agent.
    needs: Sequence[PoolNeed] = ()
    # The agent that a service leaves. None: the service is new.
    moves_from: AgentRow | None = None
    # Agents that owe a clean-up of the service that moves.
    owing: frozenset[str] = frozenset()

    def needs_of(self, agent: ServingAgent) -> Sequence[PoolNeed]:
        """A service that stays in a pool set keeps its values."""
        keeps_set = self.moves_from is not None and self.moves_from.service_pool_set_id == agent.pool_set_id
        return () if keeps_set else self.needs


async def find_candidates(work: UnitOfWork, request: PlacementRequest) -> list[ServingAgent]:
    """At least one agent, best first, all of one provider."""
    found = await _serving(work, request, disabled=False)
    if not found and request.moves_from is not None:
        raise BadInput(f"no other agent of its provider serves service type {request.type_name}", code="no_agent")
    if not found:
        listed = ", ".join(request.tags)
        raise BadInput(f"no agent found for service type {request.type_name} with tags [{listed}]", code="no_agent")
    several = find_several_providers(found)
    if several is not None:
        raise _choose_provider(several)
    return found


async def place(
    work: UnitOfWork,
    request: PlacementRequest,
    candidates: Sequence[ServingAgent],
    take: Callable[[ServingAgent], Awaitable[T]],
) -> T:
    """What `take` returns for the first candidate with room. `take` raises `PoolValueMissing` if others were faster."""
    tries = 0
    for part in (candidates[:MAX_TRIES], candidates[MAX_TRIES:]):
        rooms = await _find_rooms(work, request, part)
        for agent in part:
            if _lack_of(request, agent, rooms) is not None:
                continue
            try:
                return await _try(work, agent, request.needs_of(agent), take)
            except PoolValueMissing:
                tries += 1
                if tries == MAX_TRIES:
                    raise await _no_capacity(work, request, candidates) from None
    raise await _no_capacity(work, request, candidates)


async def _try(
    work: UnitOfWork, agent: ServingAgent, needs: Sequence[PoolNeed], take: Callable[[ServingAgent], Awaitable[T]]
) -> T:
    # A failed try must leave neither values of another pool nor the lock, which could close a circle of waiting orders.
    leaves_something = agent.capacity is not None or sum(need.count for need in needs) > 1
    async with work.tx.savepoint() if leaves_something else nullcontext():
        if agent.capacity is not None and not await is_below_capacity(work.tx, agent.agent_id):
            raise PoolValueMissing
        return await take(agent)


async def admit_named(work: UnitOfWork, agent: AgentRow) -> None:
    """Refuses an order or a move that names an agent without room. Pools refuse by themselves."""
    if agent.draining:
        raise BadInput(
            f"agent {agent.name} is draining: it takes no new services; name another agent, or end the drain",
            code="agent_draining",
        )
    caller = work.required_caller
    if agent.capacity is None or caller.role is Role.ADMIN or caller.participant_id == agent.provider_id:
        return
    if not await is_below_capacity(work.tx, agent.id):
        message = f"agent {agent.name} is at its capacity"
        raise BadInput(
            f"{message}; name another agent, or none",
            code="no_capacity",
            details={"reasons": [{"reason": "capacity", "message": message, "agentId": agent.id, "count": 1}]},
        )


async def _serving(work: UnitOfWork, request: PlacementRequest, *, disabled: bool) -> list[ServingAgent]:
    found = await serving_agents(
        work.tx, request.type_id, request.consumer_id, request.provider_id, CANDIDATES, disabled=disabled
    )
    return [
        each
        for each in with_tags(found, request.tags)
        if request.moves_from is None or each.agent_id != request.moves_from.id
    ]


async def _find_rooms(work: UnitOfWork, request: PlacementRequest, agents: Sequence[ServingAgent]) -> PoolRooms:
    asked = [each for each in agents if each.pool_set_id is not None and request.needs_of(each)]
    sets = dict.fromkeys(str(each.pool_set_id) for each in asked)
    return await pool_allocation.find_rooms(work, list(sets), request.needs) if sets else {}


def _lack_of(request: PlacementRequest, agent: ServingAgent, rooms: PoolRooms) -> Lack | None:
    obstacle = None if request.moves_from is None else find_move_lack(agent, request.owing)
    return obstacle or find_lack(agent, request.needs_of(agent), rooms)


async def _no_capacity(work: UnitOfWork, request: PlacementRequest, candidates: Sequence[ServingAgent]) -> BadInput:
    provider = candidates[0]
    of_provider = replace(request, provider_id=provider.provider_id)
    # Read again: the last room may have gone since the choice.
    agents = [each for off in (False, True) for each in await _serving(work, of_provider, disabled=off)]
    rooms = await _find_rooms(work, request, agents)
    lacks = [(each, _lack_of(request, each, rooms) or _lost_race(request, each)) for each in agents]
    shown = [lack.pool_id for _, lack in lacks[:LISTED_REASONS] if lack.pool_id is not None]
    used = await pool_allocation.count_used(work, shown) if shown else {}
    explained = [AgentLack(agent, lack, used.get(lack.pool_id or "")) for agent, lack in lacks]
    caller = work.required_caller
    if caller.role is Role.ADMIN or caller.participant_id == provider.provider_id:
        sentences, reasons = explain_to_provider(explained)
        whose = "no agent"
    else:
        sentences, reasons = explain_to_customer(explained)
        whose = f"no agent of {provider.provider_name}"
    return BadInput(
        f"{whose} has room for service type {request.type_name}: {sentences}",
        code="no_capacity",
        details={"reasons": reasons},
    )


def _lost_race(request: PlacementRequest, agent: ServingAgent) -> Lack:
    """Others hold the last room, and have not committed yet."""
    needs = request.needs_of(agent)
    return Lack("pool_used_up", needs[0].pool_type) if needs else Lack("capacity")


def _choose_provider(several: SeveralProviders) -> BadInput:
    providers = [{"id": each, "name": name} for each, name in several.names.items()][:LISTED_PROVIDERS]
    listed = ", ".join(f"{each['name']} ({each['id']})" for each in providers)
    more = len(several.names) - len(providers)
    return BadInput(
        f"choose a provider: give providerId or agentId; {listed}{f' and {more} more' if more else ''}",
        code="choose_provider",
        details={"providers": providers},
    )
