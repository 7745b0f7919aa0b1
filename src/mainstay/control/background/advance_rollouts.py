"""Starts the next services of roll-outs and records which have ended, one item per transaction."""

from __future__ import annotations

from mainstay.control.operations import rollouts
from mainstay.control.operations.machinery.unit_of_work import UnitOfWork

INTERVAL_SECONDS = 1.0


async def run_once(work: UnitOfWork) -> bool:
    return await rollouts.advance(work)
