"""Agents: the programs of a provider that execute jobs, and the codes that enroll them."""

from __future__ import annotations

from datetime import datetime
from typing import Literal

from mainstay.control.store.engine.contract import Transaction
from mainstay.control.store.engine.records import Record, Table, to_microseconds

AgentStatus = Literal["New", "Connected", "Disconnected", "Error", "Disabled"]


class AgentRow(Record, frozen=True, kw_only=True):
    name: str
    status: AgentStatus
    last_status_update: datetime
    tags: list[str]
    # Secrets in it are references into the vault.
    configuration: dict[str, object] | None = None
    provider_id: str
    agent_type_id: str
    service_pool_set_id: str | None = None
    # Disabled by an admin: only an admin enables or deletes it.
    disabled_by_admin: bool = False


AGENTS = Table("agents", "agent", AgentRow)


async def record_heartbeat(tx: Transaction, agent_id: str, now: datetime) -> bool:
    """Updates the time of the last request only: no event, `updatedAt` unchanged. False if the agent is New or
    Disconnected, because then its status must change too."""
    changed = await tx.execute(
        "UPDATE agents SET last_status_update = :now WHERE id = :id AND status NOT IN ('New', 'Disconnected')",
        now=to_microseconds(now),
        id=agent_id,
    )
    return changed > 0


async def silent_agents(tx: Transaction, before: datetime, limit: int) -> list[AgentRow]:
    rows = await tx.fetch(
        f"SELECT {AGENTS.select()} FROM agents WHERE status = 'Connected' AND last_status_update < :before"
        f" ORDER BY last_status_update LIMIT {limit}{tx.skip_locked}",
        before=to_microseconds(before),
    )
    return [AGENTS.decode(row) for row in rows]


async def add_code(tx: Transaction, code_hash: str, agent_id: str, expires_at: datetime) -> None:
    await tx.execute("DELETE FROM enrolment_codes WHERE agent_id = :agent_id", agent_id=agent_id)
    await tx.execute(
        "INSERT INTO enrolment_codes (hash, agent_id, expires_at) VALUES (:hash, :agent_id, :expires_at)",
        hash=code_hash,
        agent_id=agent_id,
        expires_at=to_microseconds(expires_at),
    )


async def use_code(tx: Transaction, code_hash: str, now: datetime) -> str | None:
    """The agent that the code enrolls. The same statement deletes the code, so exactly one of many callers gets it."""
    rows = await tx.fetch(
        "DELETE FROM enrolment_codes WHERE hash = :hash AND expires_at > :now RETURNING agent_id",
        hash=code_hash,
        now=to_microseconds(now),
    )
    return str(rows[0]["agent_id"]) if rows else None
