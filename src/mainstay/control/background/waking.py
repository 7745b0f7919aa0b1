"""Agents that wait for work look again where work waits; so waiting itself asks the database nothing."""

from __future__ import annotations

from mainstay.control.operations import jobs
from mainstay.control.operations.work import Work

SECONDS = 5.0


async def turn(work: Work) -> bool:
    await jobs.wake_agents(work)
    return False
