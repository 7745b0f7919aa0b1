"""Inserts very many services with one SQL statement that works on both databases."""

from __future__ import annotations

import base64
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any
from uuid import uuid4

import msgspec

from mainstay.control.store.agent_types import AGENT_TYPES, AgentType
from mainstay.control.store.agents import AGENTS, AgentRow
from mainstay.control.store.engine.contract import Store, Transaction
from mainstay.control.store.participants import PARTICIPANTS, Participant
from mainstay.control.store.service_groups import SERVICE_GROUPS, ServiceGroup
from mainstay.control.store.service_types import SERVICE_TYPES, ServiceTypeRow
from mainstay.control.store.services import SERVICES, ServiceRow

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)
BATCH = 50_000
# Every tenth service has the rare status.
RARE, COMMON = "Stopped", "Started"
RUN_OF_EACH = (
    "INSERT INTO runs (id, created_at, updated_at, service_id, action, visited, origins, taken_values, released_values,"
    " new_secrets, retired_secrets)"
    " SELECT id, created_at, updated_at, id, 'create', '[]', '{}', '[]', '[]', '[]', '[]' FROM services"
)


def job_of_each(status: str) -> str:
    """`status` is an SQL expression over the columns of the service."""
    return (
        "INSERT INTO jobs (id, created_at, updated_at, action, priority, status, attempt, cancel_requested, run_id, step,"
        f" agent_id, service_id, provider_id, consumer_id, group_id) SELECT id, created_at, updated_at, 'create', 1, {status},"
        " 1, 0, id, 1, agent_id, id, provider_id, consumer_id, group_id FROM services"
    )


@dataclass(frozen=True)
class Owners:
    """The ids of the rows that a service belongs to."""

    provider_id: str
    consumer_id: str
    group_id: str
    agent_id: str
    service_type_id: str


async def new_owners(tx: Transaction) -> Owners:
    owners = Owners(*(str(uuid4()) for _ in range(5)))
    agent_type_id = str(uuid4())
    stamps: dict[str, Any] = {"created_at": NOW, "updated_at": NOW}
    for each in (owners.provider_id, owners.consumer_id):
        await PARTICIPANTS.insert(tx, Participant(id=each, name="p", status="Enabled", **stamps))
    group = ServiceGroup(id=owners.group_id, name="g", consumer_id=owners.consumer_id, **stamps)
    await SERVICE_GROUPS.insert(tx, group)
    await SERVICE_TYPES.insert(tx, ServiceTypeRow(id=owners.service_type_id, name=owners.service_type_id, **stamps))
    await AGENT_TYPES.insert(tx, AgentType(id=agent_type_id, name=agent_type_id, service_type_ids=[], **stamps))
    agent = AgentRow(
        id=owners.agent_id,
        name="a",
        status="Connected",
        last_status_update=NOW,
        tags=[],
        provider_id=owners.provider_id,
        agent_type_id=agent_type_id,
        **stamps,
    )
    await AGENTS.insert(tx, agent)
    return owners


def service(owners: Owners, name: str, number: int = 0) -> ServiceRow:
    return ServiceRow(
        id=str(uuid4()),
        created_at=datetime.fromtimestamp(NOW.timestamp() + number, UTC),
        updated_at=NOW,
        name=name,
        status=COMMON,
        properties={},
        provider_id=owners.provider_id,
        consumer_id=owners.consumer_id,
        group_id=owners.group_id,
        agent_id=owners.agent_id,
        service_type_id=owners.service_type_id,
        conditions=[],
        version=1,
    )


async def insert_service(tx: Transaction, row: ServiceRow) -> None:
    await SERVICES.insert(tx, row, is_terminal=0, provenance="{}")


def bulk_id(number: int) -> str:
    return f"00000000-0000-4000-8000-{number:012}"


def bulk_time(number: int) -> int:
    return 1_600_000_000_000_000 + 1_000_000 * number


def cursor_at(number: int) -> str:
    """The cursor of a list in the default order, after the service with this number."""
    position = ("created_at", bulk_time(number), bulk_id(number))
    return base64.urlsafe_b64encode(msgspec.json.encode(position)).decode()


async def fill(store: Store, owners: Owners, first: int, last: int, *, with_jobs: bool = False) -> None:
    """Inserts services named `Bulk N`, created one second apart, with a completed job if `with_jobs`."""
    for start in range(first, last + 1, BATCH):
        stop = min(start + BATCH - 1, last)
        async with store.transaction() as tx:
            await tx.execute(
                "INSERT INTO services (id, created_at, updated_at, name, name_folded, status, properties, provider_id,"
                " consumer_id, group_id, agent_id, service_type_id, conditions, version, is_terminal, provenance)"
                " WITH RECURSIVE numbers (number) AS (SELECT CAST(:start AS BIGINT)"
                " UNION ALL SELECT number + 1 FROM numbers WHERE number < :stop)"
                " SELECT '00000000-0000-4000-8000-' || substr(CAST(1000000000000 + number AS TEXT), 2),"
                " 1600000000000000 + 1000000 * number, 1600000000000000, 'Bulk ' || CAST(number AS TEXT),"
                f" 'bulk ' || CAST(number AS TEXT), CASE WHEN number % 10 = 0 THEN '{RARE}' ELSE '{COMMON}' END,"
                " '{}', :provider_id, :consumer_id, :group_id, :agent_id, :service_type_id, '[]', 1, 0, '{}'"
                " FROM numbers",
                start=start,
                stop=stop,
                provider_id=owners.provider_id,
                consumer_id=owners.consumer_id,
                group_id=owners.group_id,
                agent_id=owners.agent_id,
                service_type_id=owners.service_type_id,
            )
            for each in (RUN_OF_EACH, job_of_each("'Completed'")) if with_jobs else ():
                await tx.execute(
                    f"{each} WHERE id BETWEEN :first AND :last", first=bulk_id(start), last=bulk_id(stop)
                )
