"""Jobs that nobody claimed, renewed or finished in time take the failure path."""

from __future__ import annotations

from mainstay.control.operations import jobs
from mainstay.control.operations.work import Work

SECONDS = 0.5


async def turn(work: Work) -> bool:
    return await jobs.time_out_overdue(work)
