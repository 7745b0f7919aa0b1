"""Agents that were not heard of for a while are disconnected."""

from __future__ import annotations

from mainstay.control.operations import agents
from mainstay.control.operations.work import Work

SECONDS = 10.0


async def turn(work: Work) -> bool:
    return await agents.disconnect_silent(work) == agents.SWEEP
