"""The counts in the side bar of the pages, in one query."""

from __future__ import annotations

from mainstay.control.store.agents import OFFLINE_STATUSES
from mainstay.control.store.engine.contract import Row, Transaction
from mainstay.control.store.jobs import ACTIVE_STATUSES

_OFFLINE = f"SELECT count(*) FROM agents WHERE status IN {OFFLINE_STATUSES}"
_ACTIVE = f"SELECT count(*) FROM jobs WHERE status IN {ACTIVE_STATUSES}"


async def count_for_admin(tx: Transaction) -> Row:
    return (await tx.fetch(f"SELECT 1 AS provides, ({_OFFLINE}) AS offline, ({_ACTIVE}) AS active"))[0]


async def count_for_participant(tx: Transaction, participant_id: str) -> Row:
    """`provides`: whether the participant has an agent."""
    rows = await tx.fetch(
        "SELECT EXISTS (SELECT 1 FROM agents WHERE provider_id = :id) AS provides,"
        f" ({_OFFLINE} AND provider_id = :id) AS offline,"
        f" (SELECT count(*) FROM (SELECT id FROM jobs WHERE status IN {ACTIVE_STATUSES} AND provider_id = :id"
        f" UNION SELECT id FROM jobs WHERE status IN {ACTIVE_STATUSES} AND consumer_id = :id) AS own) AS active",
        id=participant_id,
    )
    return rows[0]


async def has_agents(tx: Transaction, participant_id: str) -> bool:
    return bool(await tx.fetch("SELECT 1 AS found FROM agents WHERE provider_id = :id LIMIT 1", id=participant_id))
