"""Deletes idempotency keys, with their stored answers, after a day."""

from __future__ import annotations

from datetime import timedelta

from mainstay.control.operations.machinery.unit_of_work import UnitOfWork
from mainstay.control.store.idempotency import delete_older

INTERVAL_SECONDS = 600.0
KEPT = timedelta(hours=24)


async def run_once(work: UnitOfWork) -> bool:
    await delete_older(work.tx, work.now - KEPT)
    return False
