"""Deletes rows that are older than the retention settings allow, a few in each transaction."""

from __future__ import annotations

from mainstay.control.operations import retention
from mainstay.control.operations.machinery.unit_of_work import UnitOfWork

INTERVAL_SECONDS = 60.0


async def run_once(work: UnitOfWork) -> bool:
    return await retention.delete_expired(work)
