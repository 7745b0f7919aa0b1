"""Which agents may serve whom: one condition for placement, plans, explicit agents, the catalogue and options.

An enabled agent of an enabled provider serves its own participant, and others if its agent type lists the provider."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

import msgspec

from mainstay.control.domain.placement import ServingAgent
from mainstay.control.store.agent_loads import LIVING_SERVICES
from mainstay.control.store.agents import AGENTS, AgentRow
from mainstay.control.store.engine.contract import Row, Transaction, Value

_AGENTS = "agents JOIN participants ON participants.id = agents.provider_id"


def may_serve(consumer: str | None, *, disabled: bool = False) -> str:
    """The condition on `_AGENTS`. `consumer` is an SQL expression; None: for any consumer. `disabled`: for agents that
    would serve it if they were enabled."""
    enabled = f"agents.status {'=' if disabled else '<>'} 'Disabled' AND participants.status = 'Enabled'"
    if consumer is None:
        return enabled
    return (
        f"{enabled} AND (agents.provider_id = {consumer} OR EXISTS (SELECT 1 FROM agent_type_providers AS granted"
        " WHERE granted.agent_type_id = agents.agent_type_id AND granted.provider_id = agents.provider_id))"
    )


# On a table with `provider_id`: the provider has an agent that may serve the caller's participant.
OFFERED_TO_CALLER = f"provider_id IN (SELECT agents.provider_id FROM {_AGENTS} WHERE {may_serve(':own_participant')})"


# The load that a capacity limits, as an SQL expression over `agents`.
_LOAD = (
    f"{LIVING_SERVICES} + CASE WHEN agents.capacity IS NULL THEN 0 ELSE (SELECT count(*) FROM jobs"
    " WHERE jobs.agent_id = agents.id AND jobs.status = 'Pending' AND jobs.is_move = 1) + (SELECT count(*) FROM jobs"
    " WHERE jobs.agent_id = agents.id AND jobs.status = 'Processing' AND jobs.is_move = 1) END"
)


async def serving_agents(
    tx: Transaction,
    service_type_id: str,
    consumer_id: str,
    provider_id: str | None,
    limit: int,
    *,
    disabled: bool = False,
) -> list[ServingAgent]:
    """Agents that may get an order, best first: connected ones, then those with the fewest living services.

    `provider_id` None: of any provider. `disabled`: those that would be among them if they were enabled."""
    of_provider: dict[str, Value] = {} if provider_id is None else {"provider_id": provider_id}
    rows = await tx.fetch(
        "SELECT agents.id, agents.name, agents.status, agents.tags, agents.provider_id,"
        " participants.name AS provider_name, agents.service_pool_set_id, agents.capacity, agents.draining,"
        f" agents.supports_blueprints, {LIVING_SERVICES} AS living, {_LOAD} AS load FROM {_AGENTS}"
        " JOIN agent_type_service_types AS served ON served.agent_type_id = agents.agent_type_id"
        f" AND served.service_type_id = :type_id WHERE {may_serve(':consumer_id', disabled=disabled)}"
        f"{' AND agents.provider_id = :provider_id' if of_provider else ''}"
        " ORDER BY CASE WHEN agents.status = 'Connected' THEN 0 ELSE 1 END,"
        f" living, agents.created_at, agents.id LIMIT {limit}",
        type_id=service_type_id,
        consumer_id=consumer_id,
        **of_provider,  # type: ignore[arg-type]
    )
    return [_decode_agent(row) for row in rows]


def _decode_agent(row: Row) -> ServingAgent:
    return ServingAgent(
        row["id"],
        row["name"],
        row["status"],
        msgspec.json.decode(row["tags"]),
        row["provider_id"],
        row["provider_name"],
        row["service_pool_set_id"],
        row["capacity"],
        row["draining"] == 1,
        row["supports_blueprints"] == 1,
        int(row["load"]),
    )


async def is_below_capacity(tx: Transaction, agent_id: str) -> bool:
    """Whether the agent may get one more service. Until the commit no other transaction that asks may add one."""
    await tx.lock(f"capacity {agent_id}")
    rows = await tx.fetch(
        f"SELECT 1 AS found FROM agents WHERE id = :id AND (capacity IS NULL OR {_LOAD} < capacity)", id=agent_id
    )
    return bool(rows)


@dataclass(frozen=True, slots=True)
class ServingParties:
    agent: AgentRow
    # Name of the agent type.
    type_name: str
    # Whether that type serves the service type.
    serves: bool
    provider_name: str
    # Empty without a consumer.
    consumer_name: str


@cache
def parties_columns(consumer: str | None) -> str:
    """Columns of `_AGENTS` with their agent types, for a service type `:type_id`. `consumer` is an SQL expression; None
    selects no consumer."""
    consumer_name = (
        "''" if consumer is None else f"(SELECT name FROM participants AS consumers WHERE consumers.id = {consumer})"
    )
    return (
        f"{AGENTS.select('agents')}, agent_types.name AS agent_type_name, participants.name AS provider_name,"
        f" {consumer_name} AS consumer_name, CASE WHEN EXISTS"
        " (SELECT 1 FROM agent_type_service_types AS served WHERE served.agent_type_id = agents.agent_type_id"
        " AND served.service_type_id = :type_id) THEN 1 ELSE 0 END AS serves"
    )


async def find_serving_parties(
    tx: Transaction, agent_id: str, consumer_id: str | None, service_type_id: str
) -> ServingParties | None:
    """None: the agent is unknown, disabled or may not serve the consumer; the caller must not learn which."""
    consumer: dict[str, Value] = {} if consumer_id is None else {"consumer_id": consumer_id}
    consumer_expression = ":consumer_id" if consumer else None
    rows = await tx.fetch(
        f"SELECT {parties_columns(consumer_expression)} FROM {_AGENTS}"
        " JOIN agent_types ON agent_types.id = agents.agent_type_id"
        f" WHERE agents.id = :id AND {may_serve(consumer_expression)}",
        id=agent_id,
        type_id=service_type_id,
        **consumer,  # type: ignore[arg-type]
    )
    return decode_parties(rows[0]) if rows else None


def decode_parties(row: Row) -> ServingParties:
    """From a row with the `parties_columns`."""
    names = [str(row[name]) for name in ("provider_name", "consumer_name")]
    return ServingParties(AGENTS.decode(row), str(row["agent_type_name"]), row["serves"] == 1, *names)


async def offers_to(tx: Transaction, provider_id: str, consumer_id: str | None) -> bool:
    """Whether the provider has an agent that may serve the consumer (None: some consumer)."""
    statement = (
        f"SELECT 1 AS found FROM {_AGENTS} WHERE agents.provider_id = :provider_id"
        f" AND {_may_serve_consumer(consumer_id)} LIMIT 1"
    )
    return bool(await tx.fetch(statement, provider_id=provider_id, consumer_id=consumer_id))


def _may_serve_consumer(consumer_id: str | None) -> str:
    return may_serve(None if consumer_id is None else ":consumer_id")


async def catalogue_rows(
    tx: Transaction, consumer_id: str | None, limit: int, *, type_id: str | None = None
) -> Sequence[Row]:
    """Each service type with each agent that may serve it for the consumer (None: for some consumer).

    `type_id` None: of all types."""
    return await tx.fetch(
        "SELECT service_types.id AS type_id, service_types.name AS type_name, agents.id AS agent_id,"
        " agents.name AS agent_name, agents.status AS agent_status, agents.tags AS tags,"
        f" participants.id AS provider_id, participants.name AS provider_name FROM {_AGENTS}"
        " JOIN agent_type_service_types AS served ON served.agent_type_id = agents.agent_type_id"
        " JOIN service_types ON service_types.id = served.service_type_id"
        f" WHERE {_may_serve_consumer(consumer_id)}"
        f"{'' if type_id is None else ' AND served.service_type_id = :type_id'}"
        f" ORDER BY service_types.name, participants.name, participants.id, agents.name, agents.id LIMIT {limit}",
        slow=True,
        consumer_id=consumer_id,
        type_id=type_id,
    )


async def offered_types(tx: Transaction, consumer_id: str | None, limit: int) -> Sequence[Row]:
    """Id and name of each service type that the consumer may order, with the number of agents that may serve it."""
    return await tx.fetch(
        f"SELECT service_types.id, service_types.name, count(*) AS agents FROM {_AGENTS}"
        " JOIN agent_type_service_types AS served ON served.agent_type_id = agents.agent_type_id"
        " JOIN service_types ON service_types.id = served.service_type_id"
        f" WHERE {_may_serve_consumer(consumer_id)}"
        f" GROUP BY service_types.id, service_types.name ORDER BY service_types.name, service_types.id LIMIT {limit}",
        slow=True,
        consumer_id=consumer_id,
    )
