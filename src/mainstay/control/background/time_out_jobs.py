"""Fails jobs that were not claimed, renewed or finished in time."""

from __future__ import annotations

from mainstay.control.operations import jobs
from mainstay.control.operations.machinery.unit_of_work import UnitOfWork

INTERVAL_SECONDS = 0.5


async def run_once(work: UnitOfWork) -> bool:
    return await jobs.time_out_overdue(work)
