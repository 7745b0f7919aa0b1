"""Answers to orders that may be sent twice are kept for a day."""

from __future__ import annotations

from datetime import timedelta

from mainstay.control.operations.work import Work
from mainstay.control.store.idempotency import forget_older

SECONDS = 600.0
KEPT = timedelta(hours=24)


async def turn(work: Work) -> bool:
    await forget_older(work.tx, work.now - KEPT)
    return False
