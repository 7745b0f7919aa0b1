"""Chains committed events by hashes, also those of releases without hashes."""

from __future__ import annotations

from mainstay.control.operations.events import chain_next
from mainstay.control.operations.machinery.unit_of_work import UnitOfWork

INTERVAL_SECONDS = 0.8


async def run_once(work: UnitOfWork) -> bool:
    return await chain_next(work.tx)
