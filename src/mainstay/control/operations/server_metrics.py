"""Figures of the whole plane for its metrics, with a bounded number of label values."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import get_args

import msgspec

from mainstay.control.domain.retention import SUBSCRIBER_KEPT
from mainstay.control.operations.machinery import pool_allocation
from mainstay.control.operations.machinery.unit_of_work import UnitOfWork
from mainstay.control.store import server_metrics as store
from mainstay.control.store.agents import AgentStatus
from mainstay.control.store.engine.records import to_time

RECENT = timedelta(hours=1)
MAX_POOLS = 500
# Label values of one metric. The rest is counted together as OTHER.
MAX_SERVICE_TYPES = 50
MAX_STATES = 200
MAX_SHOWN_POOLS = 50
MAX_SUBSCRIBERS = 50
OTHER = "other"
Labels = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class PlaneFigures:
    # (status, service type) → number.
    active_jobs: Mapping[Labels, int]
    recent_jobs: Mapping[Labels, int]
    oldest_queued_seconds: float
    # (service type, state) → number.
    services: Mapping[Labels, int]
    drifted: int
    failed: int
    orphans: int
    unchained_events: int
    agents: Mapping[str, int]
    # (pool set, pool) → share of values that are free.
    free_shares: Mapping[Labels, float]
    # Subscriber → events that it has not acknowledged.
    lags: Mapping[str, int]


async def read_figures(work: UnitOfWork) -> PlaneFigures:
    jobs = await store.count_jobs(work.tx, work.now - RECENT)
    by_type: Counter[str] = Counter()
    for row in jobs:
        by_type[str(row["service_type"])] += int(str(row["number"]))
    shown = {name for name, _ in by_type.most_common(MAX_SERVICE_TYPES)}
    counted: tuple[Counter[Labels], Counter[Labels]] = (Counter(), Counter())
    for row in jobs:
        name = str(row["service_type"])
        key = str(row["status"]), name if name in shown else OTHER
        counted[int(str(row["recent"]))][key] += int(str(row["number"]))
    troubles = await store.count_troubles(work.tx)
    oldest = troubles["oldest"]
    waited = (work.now - to_time(oldest)).total_seconds() if isinstance(oldest, int) else 0.0
    return PlaneFigures(
        active_jobs=counted[0],
        recent_jobs=counted[1],
        oldest_queued_seconds=max(waited, 0.0),
        services=await _count_services(work),
        drifted=int(str(troubles["drifted"])),
        failed=int(str(troubles["failed"])),
        orphans=int(str(troubles["orphans"])),
        unchained_events=int(str(troubles["unchained"])),
        agents=dict.fromkeys(get_args(AgentStatus), 0) | await store.count_agents(work.tx),
        free_shares=await _free_shares(work),
        lags=await store.read_lags(work.tx, work.now - SUBSCRIBER_KEPT, MAX_SUBSCRIBERS),
    )


async def _count_services(work: UnitOfWork) -> Mapping[Labels, int]:
    rows = await store.count_services(work.tx)
    rows.sort(key=lambda row: (-int(str(row["number"])), str(row["service_type"]), str(row["state"])))
    found: Counter[Labels] = Counter()
    for position, row in enumerate(rows):
        key = (str(row["service_type"]), str(row["state"])) if position < MAX_STATES else (OTHER, OTHER)
        found[key] += int(str(row["number"]))
    return found


async def _free_shares(work: UnitOfWork) -> Mapping[Labels, float]:
    """The emptiest pools. Pools of the same name count as the emptiest of them."""
    shares: dict[Labels, float] = {}
    for row in await store.read_pools(work.tx, MAX_POOLS):
        stored, free = int(str(row["stored"])), int(str(row["free"]))
        config = None if row["generator_config"] is None else msgspec.json.decode(str(row["generator_config"]))
        total = pool_allocation.capacity(str(row["generator_type"]), config, stored)
        key = str(row["pool_set"]), str(row["name"])
        share = (total - (stored - free)) / total if total else 0.0
        shares[key] = min(share, shares.get(key, 1.0))
    return dict(sorted(shares.items(), key=lambda each: (each[1], each[0]))[:MAX_SHOWN_POOLS])
