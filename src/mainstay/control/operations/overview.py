"""The overview: what needs attention, worst first, and the figures beside it. For the rows that a caller may read."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Literal

import msgspec

from mainstay.control.domain.conditions import REPAIR_DOES_NOT_HOLD, find_in_sync
from mainstay.control.domain.lifecycle.state_kind import StateKind, kind_of_state
from mainstay.control.domain.lifecycle.transitions import available_actions
from mainstay.control.operations.doctor import NEARLY_EMPTY_SHARE, STUCK_AFTER
from mainstay.control.operations.machinery import pool_allocation
from mainstay.control.operations.machinery.consumer_view import consumer_conditions, first_line, sees_host
from mainstay.control.operations.machinery.unit_of_work import UnitOfWork
from mainstay.control.operations.machinery.views import JobView, show_jobs
from mainstay.control.store import overview as store
from mainstay.control.store.agent_types import granted_by_migration
from mainstay.control.store.agents import OFFLINE, count_by_status
from mainstay.control.store.doctor import secrets_without_owner, waiting_jobs
from mainstay.control.store.engine.contract import Row, decode_optional
from mainstay.control.store.engine.records import to_time
from mainstay.control.store.overview import Scope
from mainstay.control.store.service_types import SERVICE_TYPES, ServiceTypeRow
from mainstay.control.store.services import count_unknown_by_agent

MAX_FINDINGS = 20
MAX_AGENTS = 400
MAX_JOBS = 20
MAX_POOLS = 500
FULLEST_POOLS = 4
WINDOW = timedelta(hours=4)
SLOT_SECONDS = 300

FindingKind = Literal[
    "failed",
    "offline",
    "unknown",
    "unheld",
    "drifted",
    "stuck",
    "orphan",
    "nearly_full",
    "waiting",
    "secret",
    "grant",
]


@dataclass(frozen=True, slots=True)
class AttentionFinding:
    kind: FindingKind
    # The id and name of the service, agent, pool or agent type.
    id: str
    name: str
    # One sentence about the cause.
    detail: str
    # None: it has no beginning.
    since: datetime | None = None
    action: str = ""
    job_id: str = ""


@dataclass(frozen=True, slots=True)
class StateCount:
    state: str
    kind: StateKind
    number: int


@dataclass(frozen=True, slots=True)
class AgentSummary:
    id: str
    name: str
    status: str
    running: int


@dataclass(frozen=True, slots=True)
class PoolUsage:
    id: str
    name: str
    pool_set: str
    used: int
    total: int

    @property
    def is_nearly_full(self) -> bool:
        return self.total - self.used <= self.total * NEARLY_EMPTY_SHARE


@dataclass(frozen=True, slots=True)
class Overview:
    findings: Sequence[AttentionFinding]
    # The number of findings may be larger than their list.
    drifted: int
    unknown: int
    failed: int
    states: Sequence[StateCount]
    agents: Sequence[AgentSummary]
    agent_counts: dict[str, int]
    # Jobs that wait for an agent that is not connected.
    waiting: int
    jobs: Sequence[JobView]
    # The numbers of jobs, which may be more than the list.
    running: int
    queued: int
    # (completed, failed) for each time slot, the oldest first.
    slots: Sequence[tuple[int, int]]
    pools: Sequence[PoolUsage]
    now: datetime


async def read_overview(work: UnitOfWork, *, provides: bool) -> Overview:
    """`provides`: whether the caller has agents and pools."""
    tx, services, jobs = work.tx, work.scope("service"), work.scope("job")
    counts = await store.count_troubles_and_jobs(tx, services, jobs)
    agents = await store.read_agents(tx, work.scope("agent"), MAX_AGENTS) if provides else []
    counted = await store.count_living(tx, services)
    types = await SERVICE_TYPES.many(tx, {type_id for type_id, _, _ in counted})
    pools = await read_usages(work, work.scope("service_pool"), MAX_POOLS) if provides else []
    findings = [
        *_failed(await store.failed_services(tx, services, MAX_FINDINGS) if counts["failed"] else []),
        *_offline(agents),
        *_unknown(await count_unknown_by_agent(tx, services, MAX_FINDINGS) if counts["unknown"] else [], agents),
        *_drifted(work, await store.drifted_services(tx, services, MAX_FINDINGS) if counts["drifted"] else []),
        *_stuck(work, counted, types),
        *_orphans(await store.open_orphans(tx, work.scope("orphan"), MAX_FINDINGS) if provides else []),
        *(_full(pool) for pool in pools if pool.is_nearly_full),
    ]
    if work.required_caller.participant_id is None:
        # Only admins see all agents, delete secrets and confirm grants.
        findings += await _waiting(work) if counts["queued"] else []
        findings += [*await _lost_secrets(work), *await _grants(work)]
    return Overview(
        findings,
        drifted=counts["drifted"],
        unknown=counts["unknown"],
        failed=counts["failed"],
        states=_states(work, counted, types),
        agents=[AgentSummary(row["id"], row["name"], row["status"], row["running"]) for row in agents],
        agent_counts=await _count_agents(work, agents),
        waiting=sum(row["queued"] for row in agents if row["status"] in OFFLINE),
        jobs=await show_jobs(
            work, await store.active_jobs(tx, jobs, MAX_JOBS) if counts["running"] + counts["queued"] else []
        ),
        running=counts["running"],
        queued=counts["queued"],
        slots=await _slots(work, jobs),
        pools=sorted(pools, key=lambda pool: -pool.used / max(pool.total, 1))[:FULLEST_POOLS],
        now=work.now,
    )


async def _count_agents(work: UnitOfWork, agents: Sequence[Row]) -> dict[str, int]:
    if len(agents) < MAX_AGENTS:
        return dict(Counter(row["status"] for row in agents))
    return await count_by_status(work.tx, work.scope("agent"))


def _failed(rows: Sequence[Row]) -> list[AttentionFinding]:
    """With the first line of the message, which consumers may see, too."""
    return [
        AttentionFinding(
            "failed",
            row["id"],
            row["name"],
            first_line(row["error_message"] or ""),
            since=None if row["completed_at"] is None else to_time(row["completed_at"]),
            action=row["action"],
            job_id=row["job_id"],
        )
        for row in rows
    ]


def _offline(rows: Sequence[Row]) -> list[AttentionFinding]:
    found = []
    for row in rows:
        if row["status"] not in OFFLINE:
            continue
        services, queued = row["services"], row["queued"]
        detail = f"{_counted(services, 'service')} on it, {_counted(queued, 'job') if queued else 'no job'} queued"
        since = to_time(row["last_status_update"])
        found.append(AttentionFinding("offline", row["id"], row["name"], detail, since=since))
    return found[:MAX_FINDINGS]


def _unknown(rows: Sequence[Row], agents: Sequence[Row]) -> list[AttentionFinding]:
    """Services of agents that report nothing, without those whose agent has a finding of its own."""
    offline = {row["id"] for row in agents if row["status"] in OFFLINE}
    return [
        AttentionFinding(
            "unknown",
            row["id"],
            row["name"],
            f"{_counted(row['number'], 'service')}: what is shown is what the agent reported last",
            since=to_time(row["last_status_update"]),
        )
        for row in rows
        if row["id"] not in offline
    ]


def _drifted(work: UnitOfWork, rows: Sequence[Row]) -> list[AttentionFinding]:
    found = []
    for row in rows:
        conditions: list[dict[str, object]] = msgspec.json.decode(row["conditions"])
        if not sees_host(work.caller, row["provider_id"]):
            conditions = consumer_conditions(conditions)
        condition = find_in_sync(conditions)
        since = condition.get("since")
        found.append(
            AttentionFinding(
                "unheld" if condition.get("reason") == REPAIR_DOES_NOT_HOLD else "drifted",
                row["id"],
                row["name"],
                first_line(str(condition.get("message", ""))),
                since=datetime.fromisoformat(since) if isinstance(since, str) else None,
            )
        )
    return found


def _orphans(rows: Sequence[Row]) -> list[AttentionFinding]:
    return [
        AttentionFinding(
            "orphan",
            row["agent_id"],
            row["service_name"],
            f"Agent {row['agent_name']} has not cleaned up its host yet;"
            f" {_counted(row['attempts'], 'attempt')} so far",
            since=to_time(row["created_at"]),
        )
        for row in rows
    ]


async def read_usages(work: UnitOfWork, scope: Scope, limit: int) -> list[PoolUsage]:
    found = []
    for row in await store.read_pools(work.tx, scope, limit):
        config = decode_optional(row["generator_config"])
        total = pool_allocation.capacity(row["generator_type"], config, row["total"])
        found.append(PoolUsage(row["id"], row["name"], row["pool_set"], row["total"] - row["free"], total))
    return found


def _full(pool: PoolUsage) -> AttentionFinding:
    left = pool.total - pool.used
    detail = f"{left:,} of {_counted(pool.total, 'value')} left; add values or a larger network"
    return AttentionFinding("nearly_full", pool.id, pool.name, detail)


async def _waiting(work: UnitOfWork) -> list[AttentionFinding]:
    """Jobs that a connected agent does not claim. Those of offline agents are counted with the agent."""
    return [
        AttentionFinding(
            "waiting",
            row["service_id"],
            row["agent_name"],
            "The agent is connected but has not claimed the job; see its log",
            action=row["action"],
            job_id=row["job_id"],
        )
        for row in await waiting_jobs(work.tx, work.now - STUCK_AFTER, MAX_FINDINGS)
        if row["agent_status"] == "Connected"
    ]


async def _lost_secrets(work: UnitOfWork) -> list[AttentionFinding]:
    return [
        AttentionFinding(
            "secret", "", reference, f"Its {kind} {owner} does not exist or has ended: run `mainstay vault clean`"
        )
        for reference, kind, owner in await secrets_without_owner(work.tx, MAX_FINDINGS)
    ]


async def _grants(work: UnitOfWork) -> list[AttentionFinding]:
    return [
        AttentionFinding(
            "grant",
            agent_type.id,
            agent_type.name,
            f"Since the upgrade, agents of {provider.name} may serve other participants: they already did",
        )
        for agent_type, provider in await granted_by_migration(work.tx, MAX_FINDINGS)
    ]


def _stuck(
    work: UnitOfWork, counted: Sequence[tuple[str, str, int]], types: Mapping[str, ServiceTypeRow]
) -> list[AttentionFinding]:
    """Living services in a state without a possible action."""
    found = []
    for type_id, state, number in counted:
        lifecycle = work.tools.definitions.of_service_type(types[type_id]).lifecycle
        if not available_actions(lifecycle, state):
            detail = f"{_counted(number, 'service')} in {state}: change the lifecycle, or delete them with force"
            found.append(AttentionFinding("stuck", type_id, types[type_id].name, detail, action=state))
    return found[:MAX_FINDINGS]


def _states(
    work: UnitOfWork, counted: Sequence[tuple[str, str, int]], types: Mapping[str, ServiceTypeRow]
) -> list[StateCount]:
    """Most frequent first. States of the same name and kind are one, whatever their type."""
    numbers: dict[tuple[str, StateKind], int] = {}
    for type_id, state, number in counted:
        lifecycle = work.tools.definitions.of_service_type(types[type_id]).lifecycle
        key = state, kind_of_state(lifecycle, state)
        numbers[key] = numbers.get(key, 0) + number
    found = [StateCount(state, kind, number) for (state, kind), number in numbers.items()]
    return sorted(found, key=lambda each: (-each.number, each.state))


async def _slots(work: UnitOfWork, scope: Scope) -> list[tuple[int, int]]:
    number = int(WINDOW.total_seconds()) // SLOT_SECONDS
    slots = [[0, 0] for _ in range(number)]
    for slot, status, jobs in await store.count_ended_jobs(work.tx, scope, work.now - WINDOW, SLOT_SECONDS):
        slots[min(max(slot, 0), number - 1)][status == "Failed"] += jobs
    return [(completed, failed) for completed, failed in slots]


def _counted(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'' if number == 1 else 's'}"
