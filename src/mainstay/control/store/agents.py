"""Agents: the programs of a provider that execute jobs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Literal

from mainstay.control.store.engine.contract import Transaction, encode_json, encode_optional, literals, placeholders
from mainstay.control.store.engine.paging import SqlCondition, escape_like, joined_conditions
from mainstay.control.store.engine.records import Record, Table, fold, to_microseconds

AgentStatus = Literal["New", "Connected", "Disconnected", "Error", "Disabled"]
# Statuses of agents that should answer and do not.
OFFLINE = ("Disconnected", "Error")
OFFLINE_STATUSES = literals(OFFLINE)


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
    # The most services that placement gives the agent; None: unlimited.
    capacity: int | None = None
    # Takes no new service and no move.
    draining: bool = False
    # Disabled by an admin: only an admin enables or deletes it.
    disabled_by_admin: bool = False
    # The agent has asked for plans, orphans or a bundle, as agents that run blueprints do.
    supports_blueprints: bool = False
    # What the agent reported last of itself and of its host. None: nothing yet.
    version: str | None = None
    facts: dict[str, object] | None = None


AGENTS = Table("agents", "agent", AgentRow)
# Limit of the count of services of an agent: counting more would read a large part of the table for a number that is large anyway.
MOST_COUNTED = 10_000


async def record_heartbeat(tx: Transaction, agent_id: str, now: datetime) -> bool:
    """Updates the time of the last request only: no event, `updatedAt` unchanged. False if the agent is New or
    Disconnected, because then its status must change too."""
    changed = await tx.execute(
        "UPDATE agents SET last_status_update = :now WHERE id = :id AND status NOT IN ('New', 'Disconnected')",
        now=to_microseconds(now),
        id=agent_id,
    )
    return changed > 0


async def note_facts(tx: Transaction, agent: AgentRow) -> None:
    """No event, `updatedAt` unchanged: facts change all the time."""
    await tx.execute(
        "UPDATE agents SET version = :version, facts = :facts WHERE id = :id",
        version=agent.version,
        facts=encode_optional(agent.facts),
        id=agent.id,
    )


async def note_blueprints(tx: Transaction, agent_id: str) -> None:
    """No event, `updatedAt` unchanged: a fact that the server noticed."""
    await tx.execute("UPDATE agents SET supports_blueprints = 1 WHERE id = :id", id=agent_id)


async def silent_agents(tx: Transaction, before: datetime, limit: int) -> list[AgentRow]:
    return await AGENTS.where(
        tx,
        "status = 'Connected' AND last_status_update < :before"
        f" ORDER BY last_status_update LIMIT {limit}{tx.skip_locked}",
        before=to_microseconds(before),
    )


@dataclass(frozen=True, slots=True)
class AgentLoad:
    """What an agent serves and does. `services` counts up to MOST_COUNTED."""

    services: int
    waiting: int
    running: int
    orphans: int


async def page_trouble_first(
    tx: Transaction, scope: Sequence[SqlCondition], statuses: Sequence[str], part: str, limit: int, offset: int
) -> list[AgentRow]:
    """Agents whose name or tags contain `part`: broken ones first, disabled ones last, then by name."""
    listed, given = placeholders(statuses, "status")
    conditions = [f"status IN {listed}"] if statuses else []
    if part:
        conditions.append("(name_folded LIKE :part ESCAPE '!' OR lower(tags) LIKE :part ESCAPE '!')")
        given["part"] = f"%{escape_like(fold(part))}%"
    where, parameters = joined_conditions(scope, *conditions)
    return await AGENTS.where(
        tx,
        f"{where} ORDER BY CASE status WHEN 'Error' THEN 0 WHEN 'Disconnected' THEN 1 WHEN 'New' THEN 2 WHEN 'Connected' THEN 3"
        f" ELSE 4 END, name_folded, id LIMIT {int(limit)} OFFSET {int(offset)}",
        **(parameters | given),
    )


async def count_by_status(tx: Transaction, scope: Sequence[SqlCondition]) -> dict[str, int]:
    where, parameters = joined_conditions(scope)
    rows = await tx.fetch(
        f"SELECT status, count(*) AS number FROM agents WHERE {where} GROUP BY status",
        **parameters,
    )
    return {row["status"]: row["number"] for row in rows}


async def read_loads(tx: Transaction, agent_ids: Sequence[str]) -> dict[str, AgentLoad]:
    rows = await tx.fetch(
        "SELECT id, (SELECT count(*) FROM (SELECT 1 AS one FROM services WHERE services.agent_id = agents.id"
        f" AND is_terminal = 0 LIMIT {MOST_COUNTED}) AS living) AS services,"
        " (SELECT count(*) FROM jobs WHERE jobs.agent_id = agents.id AND jobs.status = 'Pending') AS waiting,"
        " (SELECT count(*) FROM jobs WHERE jobs.agent_id = agents.id AND jobs.status = 'Processing') AS running,"
        " (SELECT count(*) FROM orphans WHERE orphans.agent_id = agents.id AND closed_at IS NULL) AS orphans"
        f" FROM agents WHERE id IN (SELECT value FROM {tx.json_items}(:ids))",
        ids=encode_json(agent_ids),
    )
    names = ("services", "waiting", "running", "orphans")
    return {row["id"]: AgentLoad(*(row[name] for name in names)) for row in rows}


async def count_services_by_type(tx: Transaction, agent_id: str) -> list[tuple[str, str, int]]:
    """(id, name, number of living services) of each service type that the agent's type lists, or that it serves."""
    rows = await tx.fetch(
        "SELECT service_types.id, service_types.name, coalesce(counted.number, 0) AS number FROM service_types"
        " LEFT JOIN (SELECT service_type_id, count(*) AS number FROM (SELECT service_type_id FROM services"
        f" WHERE agent_id = :id AND is_terminal = 0 LIMIT {MOST_COUNTED}) AS living GROUP BY service_type_id)"
        " AS counted ON counted.service_type_id = service_types.id WHERE counted.number IS NOT NULL"
        " OR service_types.id IN (SELECT served.service_type_id FROM agent_type_service_types AS served"
        " JOIN agents ON agents.agent_type_id = served.agent_type_id WHERE agents.id = :id)"
        " ORDER BY number DESC, service_types.name_folded LIMIT 1000",
        id=agent_id,
    )
    return [(row["id"], row["name"], row["number"]) for row in rows]
