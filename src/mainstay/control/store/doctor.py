"""Queries of `mainstay doctor` over whole tables. Each has a limit."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from mainstay.control.store.engine.contract import Row, Transaction, fetch_column
from mainstay.control.store.engine.records import to_microseconds
from mainstay.control.store.service_pools import SERVICE_POOLS, ServicePool
from mainstay.control.store.services import UNHELD_REPAIR


async def waiting_jobs(tx: Transaction, before: datetime, limit: int) -> Sequence[Row]:
    """Queued jobs of agents that are not connected, whatever their age, and of connected ones that are older than a time."""
    return await tx.fetch(
        "SELECT jobs.id AS job_id, jobs.action, jobs.service_id, agents.name AS agent_name,"
        " agents.status AS agent_status"
        " FROM jobs JOIN agents ON agents.id = jobs.agent_id"
        " WHERE jobs.status = 'Pending' AND jobs.waiting_for IS NULL AND (agents.status <> 'Connected' OR jobs.created_at < :before)"
        f" ORDER BY jobs.created_at LIMIT {limit}",
        before=to_microseconds(before),
    )


async def unheld_repairs(tx: Transaction, limit: int) -> Sequence[Row]:
    return await tx.fetch(
        f"SELECT id, name, conditions FROM services WHERE {UNHELD_REPAIR} ORDER BY created_at, id LIMIT {limit}"
    )


async def open_orphans(tx: Transaction, since: datetime, limit: int) -> Sequence[Row]:
    """Orphans that need an operator: older than `since`, with a failed attempt, or of an agent that is not connected."""
    return await tx.fetch(
        "SELECT orphans.id, orphans.service_id, orphans.service_name, orphans.attempts, orphans.last_error, orphans.reason,"
        " agents.name AS agent_name, agents.status AS agent_status FROM orphans"
        " JOIN agents ON agents.id = orphans.agent_id WHERE orphans.closed_at IS NULL"
        " AND (orphans.created_at <= :since OR orphans.attempts > 0 OR agents.status <> 'Connected')"
        f" ORDER BY orphans.created_at LIMIT {limit}",
        since=to_microseconds(since),
    )


async def used_types(tx: Transaction) -> list[str]:
    return await fetch_column(tx, "SELECT DISTINCT service_type_id FROM services WHERE is_terminal = 0")


async def living_states(tx: Transaction, service_type_id: str, limit: int) -> list[tuple[str, str]]:
    rows = await tx.fetch(
        "SELECT id, status FROM services WHERE service_type_id = :id AND is_terminal = 0"
        f" ORDER BY created_at LIMIT {limit}",
        id=service_type_id,
    )
    return [(row["id"], row["status"]) for row in rows]


async def all_pools(tx: Transaction, limit: int) -> list[ServicePool]:
    return await SERVICE_POOLS.where(tx, f"1 = 1 ORDER BY created_at LIMIT {limit}")


_WITHOUT_OWNER = (
    "(owner_kind = 'service' AND NOT EXISTS (SELECT 1 FROM services WHERE services.id = vault_secrets.owner_id"
    " AND (services.is_terminal = 0 OR services.orphan = 1)) AND NOT EXISTS"
    " (SELECT 1 FROM orphan_secrets WHERE orphan_secrets.reference = vault_secrets.reference))"
    " OR (owner_kind = 'agent' AND NOT EXISTS (SELECT 1 FROM agents WHERE agents.id = vault_secrets.owner_id))"
)


async def delete_secrets_without_owner(tx: Transaction) -> int:
    return await tx.execute(f"DELETE FROM vault_secrets WHERE {_WITHOUT_OWNER}")


async def secrets_without_owner(tx: Transaction, limit: int) -> list[tuple[str, str, str]]:
    rows = await tx.fetch(
        f"SELECT reference, owner_kind, owner_id FROM vault_secrets WHERE {_WITHOUT_OWNER} LIMIT {limit}"
    )
    return [(row["reference"], row["owner_kind"], row["owner_id"]) for row in rows]
