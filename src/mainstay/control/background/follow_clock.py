"""Compares the clock with the time since boot. After a step, moves deadlines, leases and last signs of life with it."""

from __future__ import annotations

from mainstay.control.operations.machinery.unit_of_work import UnitOfWork

INTERVAL_SECONDS = 0.5


async def run_once(work: UnitOfWork) -> bool:
    if work.tools.clock is not None:
        await work.tools.clock.follow(work.tx)
    return False
