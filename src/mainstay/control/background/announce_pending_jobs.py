"""Agents that wait for work look again where work waits; so waiting itself asks the database nothing."""

from __future__ import annotations

from mainstay.control.operations import jobs
from mainstay.control.operations.machinery.unit_of_work import UnitOfWork

INTERVAL_SECONDS = 5.0


async def run_once(work: UnitOfWork) -> bool:
    await jobs.wake_agents(work)
    return False
