"""Placement: which of the agents that may serve an order gets it, why an agent gets none, and which tags only an admin
sets.

Which agents may serve a consumer at all is a condition over tables: `store/placement.py`."""

from __future__ import annotations

import unicodedata
from collections import Counter
from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from mainstay.control.domain.properties.contract import PoolQuestion

# Tags are written by the provider; those with this prefix state what an admin has checked.
ADMIN_TAG_PREFIX = "plane:"
LISTED_SENTENCES = 20
LISTED_REASONS = 100
LackReason = Literal[
    "disabled",
    "draining",
    "capacity",
    "no_pool",
    "pool_type",
    "pool_used_up",
    "value_not_free",
    "offline",
    "no_blueprints",
    "clean_up_owed",
]
_PHRASES: Mapping[LackReason, str] = {
    "disabled": "disabled",
    "draining": "draining",
    "capacity": "at its capacity",
    "no_pool": "no pool {pool}",
    "pool_type": "pool {pool} has values of another type",
    "pool_used_up": "pool {pool} is used up",
    "value_not_free": "pool {pool} does not have the given value free",
    "offline": "not connected",
    "no_blueprints": "does not support blueprints",
    "clean_up_owed": "still owes a clean-up of this service",
}


@dataclass(frozen=True, slots=True)
class ServingAgent:
    """An agent that may serve the order."""

    agent_id: str
    name: str
    status: str
    tags: Sequence[str]
    provider_id: str
    provider_name: str
    pool_set_id: str | None
    # None: unlimited.
    capacity: int | None
    draining: bool
    supports_blueprints: bool
    # Living services and, if the agent has a capacity, moves on their way to it.
    load: int


@dataclass(frozen=True, slots=True)
class SeveralProviders:
    """The order must name one of these: id → name, sorted by name."""

    names: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class PoolNeed:
    """How many values of a pool type an order takes, and which of them it gives."""

    pool_type: str
    property_types: frozenset[str]
    count: int
    given: tuple[object, ...] = ()


@dataclass(frozen=True, slots=True)
class PoolRoom:
    """What a pool has for an order: free values, counted up to the need, and whether all given ones are free."""

    pool_id: str
    property_type: str
    free: int
    has_given: bool


# (pool set, pool type) → the pool.
PoolRooms = Mapping[tuple[str, str], PoolRoom]


@dataclass(frozen=True, slots=True)
class Lack:
    """Why an agent has no room for an order."""

    reason: LackReason
    pool_type: str = ""
    # None: there is no such pool.
    pool_id: str | None = None


def with_tags(candidates: Sequence[ServingAgent], tags: Iterable[str]) -> list[ServingAgent]:
    wanted = frozenset(tags)
    return [each for each in candidates if wanted <= frozenset(each.tags)]


def find_several_providers(candidates: Sequence[ServingAgent]) -> SeveralProviders | None:
    """None: all are agents of one provider."""
    providers = {each.provider_id: each.provider_name for each in candidates}
    if len(providers) < 2:
        return None
    return SeveralProviders(dict(sorted(providers.items(), key=lambda each: (each[1], each[0]))))


def pool_needs(questions: Iterable[PoolQuestion]) -> tuple[PoolNeed, ...]:
    by_type: dict[str, list[PoolQuestion]] = {}
    for question in questions:
        by_type.setdefault(question.pool_type, []).append(question)
    return tuple(
        PoolNeed(
            pool_type,
            frozenset(each.property_type for each in asked),
            len(asked),
            tuple(each.wanted for each in asked if each.wanted is not None),
        )
        for pool_type, asked in by_type.items()
    )


def find_lack(agent: ServingAgent, needs: Sequence[PoolNeed], rooms: PoolRooms) -> Lack | None:
    """None: the agent has room. `rooms` contains the pools of its set that the order needs."""
    if agent.status == "Disabled":
        return Lack("disabled")
    if agent.draining:
        return Lack("draining")
    if agent.capacity is not None and agent.load >= agent.capacity:
        return Lack("capacity")
    for need in needs:
        room = None if agent.pool_set_id is None else rooms.get((agent.pool_set_id, need.pool_type))
        if room is None:
            return Lack("no_pool", need.pool_type)
        if need.property_types != {room.property_type}:
            return Lack("pool_type", need.pool_type)
        if room.free < need.count:
            return Lack("pool_used_up", need.pool_type, room.pool_id)
        if not room.has_given:
            return Lack("value_not_free", need.pool_type, room.pool_id)
    return None


def find_move_lack(agent: ServingAgent, owing: Container[str]) -> Lack | None:
    """Why a service cannot move to the agent, whatever it needs there. `owing`: agents that owe a clean-up of it."""
    if agent.status == "Disabled":
        return Lack("disabled")
    if agent.status != "Connected":
        return Lack("offline")
    if agent.agent_id in owing:
        return Lack("clean_up_owed")
    return None if agent.supports_blueprints else Lack("no_blueprints")


@dataclass(frozen=True, slots=True)
class AgentLack:
    agent: ServingAgent
    lack: Lack
    # (allocated, total) values of the pool. None: the lack is not about a pool.
    used: tuple[int, int] | None = None


def explain_to_provider(lacks: Sequence[AgentLack]) -> tuple[str, list[dict[str, object]]]:
    """A sentence for each agent, joined, and the reasons for programs."""
    sentences = [f"{each.agent.name}: {_detailed(each)}" for each in lacks]
    reasons: list[dict[str, object]] = [
        {"reason": each.lack.reason, "message": sentence, "agentId": each.agent.agent_id, "count": 1}
        for each, sentence in zip(lacks, sentences, strict=True)
    ]
    return _joined(sentences), reasons[:LISTED_REASONS]


def explain_to_customer(lacks: Sequence[AgentLack]) -> tuple[str, list[dict[str, object]]]:
    """A sentence for each reason with the number of agents: no names of agents, no numbers of values."""
    counted = Counter((each.lack.reason, _phrase(each.lack)) for each in lacks)
    sentences = [f"{count} {'agent' if count == 1 else 'agents'}: {phrase}" for (_, phrase), count in counted.items()]
    reasons: list[dict[str, object]] = [
        {"reason": reason, "message": sentence, "count": count}
        for ((reason, _), count), sentence in zip(counted.items(), sentences, strict=True)
    ]
    return _joined(sentences), reasons[:LISTED_REASONS]


def _joined(sentences: Sequence[str]) -> str:
    more = len(sentences) - LISTED_SENTENCES
    return "; ".join(sentences[:LISTED_SENTENCES]) + (f" and {more} more" if more > 0 else "")


def _phrase(lack: Lack) -> str:
    return _PHRASES[lack.reason].format(pool=lack.pool_type)


def _detailed(found: AgentLack) -> str:
    phrase = _phrase(found.lack)
    if found.lack.reason == "capacity":
        return f"{phrase} of {found.agent.capacity}"
    if found.lack.reason != "pool_used_up" or found.used is None:
        return phrase
    allocated, total = found.used
    if allocated < total:
        phrase = f"pool {found.lack.pool_type} has too few free values"
    return f"{phrase} ({allocated} of {total})"


def admin_tags(tags: Iterable[str]) -> frozenset[str]:
    """The tags that only an admin sets, including those that merely look like one."""
    return frozenset(tag for tag in tags if _plain(tag).startswith(ADMIN_TAG_PREFIX))


def _plain(tag: str) -> str:
    return unicodedata.normalize("NFKC", tag).strip().casefold()
