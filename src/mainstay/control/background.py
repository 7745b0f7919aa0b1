"""Periodic tasks of the server. Each pass is a single transaction."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import datetime, timedelta

import structlog

from mainstay.control.operations import agents, browser_sessions, drains, jobs, orphans, plans
from mainstay.control.operations.events import chain_next
from mainstay.control.operations.machinery.unit_of_work import OperationTools, UnitOfWork
from mainstay.control.operations.retention import delete_expired
from mainstay.control.operations.rollouts import advance
from mainstay.control.store.agent_loads import combine_rows
from mainstay.control.store.engine.contract import Store, Unavailable
from mainstay.control.store.idempotency import delete_older

log = structlog.get_logger("mainstay.background")

COMBINED_LOADS = 10_000
IDEMPOTENCY_KEYS_KEPT = timedelta(hours=24)


@dataclass(frozen=True, slots=True)
class Task:
    name: str
    interval_seconds: float
    # Returns whether to run again immediately.
    run_once: Callable[[UnitOfWork], Awaitable[bool | None]]


async def _disconnect_agents(work: UnitOfWork) -> bool:
    return await agents.disconnect_silent(work) == agents.SWEEP


async def _forget_plans(work: UnitOfWork) -> None:
    await plans.forget_abandoned(work)
    await plans.wake(work)
    await orphans.wake(work)


async def _follow_clock(work: UnitOfWork) -> None:
    if work.tools.clock is not None:
        await work.tools.clock.follow(work.tx)


TASKS = (
    # Starts the next services of roll-outs and records which have ended, one item per transaction.
    Task("advance_rollouts", 1.0, advance),
    # Wakes agents whose jobs are still pending, so that a long poll need not query the database periodically.
    Task("announce_pending_jobs", 5.0, jobs.wake_agents),
    # Combines the changes of agents' loads, so that choosing an agent for an order reads few rows.
    Task("combine_agent_loads", 1.0, lambda work: combine_rows(work.tx, COMBINED_LOADS)),
    # Deletes rows that are older than the retention settings allow, a few in each transaction.
    Task("delete_expired", 60.0, delete_expired),
    # Moves the services of draining agents one after another, and records which could not move.
    Task("drain_agents", 1.0, drains.advance),
    # Marks agents that have sent no request for a while as Disconnected.
    Task("disconnect_silent_agents", 10.0, _disconnect_agents),
    # Deletes browser sessions that have ended.
    Task("expire_browser_sessions", 600.0, lambda work: browser_sessions.delete_ended(work.tx, work.now)),
    # Deletes idempotency keys, with their stored answers, after a day.
    Task("expire_idempotency_keys", 600.0, lambda work: delete_older(work.tx, work.now - IDEMPOTENCY_KEYS_KEPT)),
    # Deletes plan requests that a stopped server left behind, and wakes agents for unanswered ones and for clean-ups.
    Task("expire_plan_requests", 5.0, _forget_plans),
    # Compares the clock with the time since boot. After a step, moves deadlines, leases and last signs of life with it.
    Task("follow_clock", 0.5, _follow_clock),
    # Chains committed events by hashes, also those of releases without hashes.
    Task("hash_events", 0.8, lambda work: chain_next(work.tx)),
    # Fails jobs that were not claimed, renewed or finished in time.
    Task("time_out_jobs", 0.5, jobs.time_out_overdue),
)

# Called after each pass of a task with the time of its success; None: the pass failed.
CountPass = Callable[[str, datetime | None], None]


async def run_task(
    task: Task, store: Store, tools: OperationTools, clock: Callable[[], datetime], count_pass: CountPass
) -> None:
    """Runs until cancelled. A failure is logged and counted; the next interval tries again."""
    while True:
        succeeded_at: datetime | None = None
        try:
            more: bool | None = True
            while more:
                async with store.transaction() as tx:
                    more = await task.run_once(UnitOfWork(tx, clock(), tools))
            succeeded_at = clock()
        except Unavailable as error:
            log.warning("database unavailable", task=task.name, reason=str(error))
        except Exception:
            log.exception("bug", task=task.name)
        count_pass(task.name, succeeded_at)
        # Spreads the load of replicas that were started together.
        await asyncio.sleep(task.interval_seconds * random.uniform(0.9, 1.1))  # noqa: S311  # no secret
