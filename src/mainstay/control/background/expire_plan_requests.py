"""Deletes plan requests that a stopped server left behind, and wakes agents for those still unanswered."""

from __future__ import annotations

from mainstay.control.operations import plans
from mainstay.control.operations.machinery.unit_of_work import UnitOfWork

INTERVAL_SECONDS = 5.0


async def run_once(work: UnitOfWork) -> bool:
    await plans.forget_abandoned(work)
    await plans.wake(work)
    return False
