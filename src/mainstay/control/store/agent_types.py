"""Agent types: which service types an agent can serve, and what its configuration looks like."""

from __future__ import annotations

from mainstay.control.store.engine.contract import Transaction
from mainstay.control.store.engine.records import Record, Table


class AgentType(Record, frozen=True, kw_only=True):
    name: str
    service_type_ids: list[str]
    configuration_schema: dict[str, object] | None = None
    config_template: str | None = None
    cmd_template: str | None = None
    config_content_type: str | None = None


AGENT_TYPES = Table("agent_types", "agent_type", AgentType)


async def serving_types(tx: Transaction, service_type_id: str, limit: int = 10) -> list[str]:
    """The ids of agent types that serve a service type."""
    rows = await tx.fetch(
        f"SELECT agent_type_id AS id FROM agent_type_service_types WHERE service_type_id = :id LIMIT {limit}",
        id=service_type_id,
    )
    return [str(row["id"]) for row in rows]


async def link_service_types(tx: Transaction, agent_type: AgentType) -> None:
    await tx.execute("DELETE FROM agent_type_service_types WHERE agent_type_id = :id", id=agent_type.id)
    for service_type_id in agent_type.service_type_ids:
        await tx.execute(
            "INSERT INTO agent_type_service_types (agent_type_id, service_type_id) VALUES (:id, :service_type_id)",
            id=agent_type.id,
            service_type_id=service_type_id,
        )
