"""Deletes browser sessions that have ended."""

from __future__ import annotations

from mainstay.control.operations import browser_sessions
from mainstay.control.operations.machinery.unit_of_work import UnitOfWork

INTERVAL_SECONDS = 600.0


async def run_once(work: UnitOfWork) -> bool:
    await browser_sessions.delete_ended(work.tx, work.now)
    return False
