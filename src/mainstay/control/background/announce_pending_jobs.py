"""Wakes agents whose jobs are still pending, so that a long poll need not query the database periodically."""

from __future__ import annotations

from mainstay.control.operations import jobs
from mainstay.control.operations.machinery.unit_of_work import UnitOfWork

INTERVAL_SECONDS = 5.0


async def run_once(work: UnitOfWork) -> bool:
    await jobs.wake_agents(work)
    return False
