"""Periodic tasks of the server. One file is one task: `INTERVAL_SECONDS` and `run_once`, a single transaction."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import datetime
from importlib import import_module

import structlog

from mainstay.control.operations.machinery.unit_of_work import OperationTools, UnitOfWork
from mainstay.control.store.engine.contract import Store, Unavailable
from mainstay.foundation.module_names import module_names, registered

log = structlog.get_logger("mainstay.background")


@dataclass(frozen=True, slots=True)
class Task:
    name: str
    interval_seconds: float
    # Returns whether to run again immediately.
    run_once: Callable[[UnitOfWork], Awaitable[bool]]


def all_tasks() -> list[Task]:
    found = []
    for name in module_names(__path__):
        task = import_module(f"{__name__}.{name}")
        found.append(Task(name, registered(task, "INTERVAL_SECONDS"), registered(task, "run_once")))
    return found


# Called after each pass of a task with the time of its success; None: the pass failed.
CountPass = Callable[[str, datetime | None], None]


async def run_task(
    task: Task, store: Store, tools: OperationTools, clock: Callable[[], datetime], count_pass: CountPass
) -> None:
    """Runs until cancelled. A failure is logged and counted; the next interval tries again."""
    while True:
        succeeded_at: datetime | None = None
        try:
            more = True
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
