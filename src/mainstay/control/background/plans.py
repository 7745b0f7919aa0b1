"""Questions for plans whose server died while it waited for the answer are forgotten."""

from __future__ import annotations

from datetime import timedelta

from mainstay.control.operations.work import Work
from mainstay.control.store.plans import forget_older

SECONDS = 30.0
# Whoever waits takes his own away; only what is long over was left by a crash.
GRACE = timedelta(seconds=10)


async def turn(work: Work) -> bool:
    await forget_older(work.tx, work.now - GRACE)
    return False
