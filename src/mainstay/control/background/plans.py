"""Questions for plans whose server died while it waited are forgotten; those that wait for long are announced again."""

from __future__ import annotations

from mainstay.control.operations import plans
from mainstay.control.operations.work import Work

SECONDS = 5.0


async def turn(work: Work) -> bool:
    await plans.forget_abandoned(work)
    await plans.wake(work)
    return False
