"""Combines the changes of agents' loads, so that choosing an agent for an order reads few rows."""

from __future__ import annotations

from mainstay.control.operations.machinery.unit_of_work import UnitOfWork
from mainstay.control.store.agent_loads import combine_rows

INTERVAL_SECONDS = 1.0
AT_ONCE = 10_000


async def run_once(work: UnitOfWork) -> bool:
    return await combine_rows(work.tx, AT_ONCE)
