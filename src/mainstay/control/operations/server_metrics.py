"""Figures of the whole plane for its metrics, with a bounded number of label values."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import get_args

from mainstay.control.domain.retention import SUBSCRIBER_KEPT
from mainstay.control.operations.machinery.unit_of_work import UnitOfWork
from mainstay.control.operations.overview import read_usages
from mainstay.control.store import server_metrics as store
from mainstay.control.store.agents import AgentStatus, count_by_status
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
    unheld_repairs: int
    unknown: int
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
        # PostgreSQL sums to a decimal.
        by_type[row["service_type"]] += int(row["number"])
    shown = {name for name, _ in by_type.most_common(MAX_SERVICE_TYPES)}
    counted: tuple[Counter[Labels], Counter[Labels]] = (Counter(), Counter())
    for row in jobs:
        name = row["service_type"]
        key = row["status"], name if name in shown else OTHER
        counted[row["recent"]][key] += int(row["number"])
    troubles = await store.count_troubles(work.tx)
    oldest = troubles["oldest"]
    waited = 0.0 if oldest is None else (work.now - to_time(oldest)).total_seconds()
    return PlaneFigures(
        active_jobs=counted[0],
        recent_jobs=counted[1],
        oldest_queued_seconds=max(waited, 0.0),
        services=await _count_services(work),
        drifted=troubles["drifted"],
        unheld_repairs=troubles["unheld_repairs"],
        unknown=troubles["unknown"],
        failed=troubles["failed"],
        orphans=troubles["orphans"],
        unchained_events=troubles["unchained"],
        agents=dict.fromkeys(get_args(AgentStatus), 0) | await count_by_status(work.tx, []),
        free_shares=await _free_shares(work),
        lags=await store.read_lags(work.tx, work.now - SUBSCRIBER_KEPT, MAX_SUBSCRIBERS),
    )


async def _count_services(work: UnitOfWork) -> Mapping[Labels, int]:
    rows = await store.count_services(work.tx)
    found: Counter[Labels] = Counter()
    most_first = sorted(rows, key=lambda row: (-row["number"], row["service_type"], row["state"]))
    for position, row in enumerate(most_first):
        key = (row["service_type"], row["state"]) if position < MAX_STATES else (OTHER, OTHER)
        found[key] += row["number"]
    return found


async def _free_shares(work: UnitOfWork) -> Mapping[Labels, float]:
    """The emptiest pools. Pools of the same name count as the emptiest of them."""
    shares: dict[Labels, float] = {}
    for pool in await read_usages(work, [], MAX_POOLS):
        share = (pool.total - pool.used) / pool.total if pool.total else 0.0
        key = pool.pool_set, pool.name
        shares[key] = min(share, shares.get(key, 1.0))
    return dict(sorted(shares.items(), key=lambda each: (each[1], each[0]))[:MAX_SHOWN_POOLS])
