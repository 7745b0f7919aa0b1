"""Agent types: which service types an agent can serve, and what its configuration looks like."""

from __future__ import annotations

from collections.abc import Sequence

from mainstay.control.store.engine.contract import Transaction, encode_json, fetch_column
from mainstay.control.store.engine.declared_structs import row_of
from mainstay.control.store.engine.records import MAX_DEPENDANTS, Record, Table
from mainstay.control.store.participants import PARTICIPANTS, Participant
from mainstay.nouns.agent_types import NOUN


@row_of(NOUN)
class AgentType(Record, frozen=True, kw_only=True):
    name: str
    service_type_ids: list[str]
    provider_ids: list[str] = []
    configuration_schema: dict[str, object] | None = None
    config_template: str | None = None
    cmd_template: str | None = None
    config_content_type: str | None = None


AGENT_TYPES = Table("agent_types", "agent_type", AgentType)


async def serving_types(tx: Transaction, service_type_id: str) -> list[str]:
    """The ids of agent types that serve a service type."""
    return await fetch_column(
        tx,
        f"SELECT agent_type_id FROM agent_type_service_types WHERE service_type_id = :id LIMIT {MAX_DEPENDANTS}",
        id=service_type_id,
    )


async def served_names(tx: Transaction, agent_type_ids: Sequence[str]) -> dict[str, list[str]]:
    """The names of the service types that each agent type lists."""
    rows = await tx.fetch(
        "SELECT served.agent_type_id, service_types.name FROM agent_type_service_types AS served"
        " JOIN service_types ON service_types.id = served.service_type_id"
        f" WHERE served.agent_type_id IN (SELECT value FROM {tx.json_items}(:ids))"
        " ORDER BY service_types.name_folded LIMIT 5000",
        ids=encode_json(agent_type_ids),
    )
    found: dict[str, list[str]] = {}
    for row in rows:
        found.setdefault(row["agent_type_id"], []).append(row["name"])
    return found


async def link_service_types(tx: Transaction, agent_type: AgentType) -> None:
    await tx.execute("DELETE FROM agent_type_service_types WHERE agent_type_id = :id", id=agent_type.id)
    for service_type_id in agent_type.service_type_ids:
        await tx.execute(
            "INSERT INTO agent_type_service_types (agent_type_id, service_type_id) VALUES (:id, :service_type_id)",
            id=agent_type.id,
            service_type_id=service_type_id,
        )


async def link_providers(tx: Transaction, agent_type: AgentType) -> None:
    """Also confirms the grants of a migration."""
    await tx.execute("DELETE FROM agent_type_providers WHERE agent_type_id = :id", id=agent_type.id)
    for provider_id in agent_type.provider_ids:
        await link_provider(tx, agent_type.id, provider_id)


async def link_provider(tx: Transaction, agent_type_id: str, provider_id: str) -> None:
    await tx.execute(
        "INSERT INTO agent_type_providers (agent_type_id, provider_id, by_migration) VALUES (:id, :provider_id, 0)"
        " ON CONFLICT (agent_type_id, provider_id) DO UPDATE SET by_migration = 0",
        id=agent_type_id,
        provider_id=provider_id,
    )


async def types_of_provider(tx: Transaction, provider_id: str) -> list[AgentType]:
    """The agent types that list the provider, locked."""
    rows = await tx.fetch(
        f"SELECT {AGENT_TYPES.select('agent_types')} FROM agent_types JOIN agent_type_providers AS granted"
        " ON granted.agent_type_id = agent_types.id WHERE granted.provider_id = :provider_id"
        f" ORDER BY agent_types.id{f'{tx.for_update} OF agent_types' if tx.for_update else ''}",
        provider_id=provider_id,
    )
    return [AGENT_TYPES.decode(row) for row in rows]


async def granted_by_migration(tx: Transaction, limit: int) -> list[tuple[AgentType, Participant]]:
    """The grants that no admin has confirmed yet."""
    rows = await tx.fetch(
        "SELECT agent_type_id, provider_id FROM agent_type_providers WHERE by_migration = 1"
        f" ORDER BY agent_type_id, provider_id LIMIT {limit}"
    )
    types = await AGENT_TYPES.many(tx, (row["agent_type_id"] for row in rows))
    providers = await PARTICIPANTS.many(tx, (row["provider_id"] for row in rows))
    return [(types[row["agent_type_id"]], providers[row["provider_id"]]) for row in rows]
