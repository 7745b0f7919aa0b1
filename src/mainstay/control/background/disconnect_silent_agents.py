"""Marks agents that have sent no request for a while as Disconnected."""

from __future__ import annotations

from mainstay.control.operations import agents
from mainstay.control.operations.machinery.unit_of_work import UnitOfWork

INTERVAL_SECONDS = 10.0


async def run_once(work: UnitOfWork) -> bool:
    return await agents.disconnect_silent(work) == agents.SWEEP
