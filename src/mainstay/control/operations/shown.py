"""Services and jobs as callers see them: the row, with the names around it and what can be done."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from mainstay.control.domain.lifecycle.steps import available_actions
from mainstay.control.operations.work import Work
from mainstay.control.store.jobs import JobRow
from mainstay.control.store.participants import PARTICIPANTS
from mainstay.control.store.services import SERVICES, ServiceRow, surroundings


class Named(msgspec.Struct, frozen=True):
    id: str
    name: str


class AgentNamed(msgspec.Struct, frozen=True):
    id: str
    name: str
    status: str


class ActiveJob(msgspec.Struct, frozen=True):
    id: str
    action: str
    status: str


class Service(ServiceRow, frozen=True, kw_only=True):
    agent: AgentNamed
    service_type: Named
    available_actions: list[str]
    # None while nothing is to be done.
    active_job: ActiveJob | None = None


class Job(JobRow, frozen=True, kw_only=True):
    service: Service
    agent: Named
    provider: Named
    consumer: Named


async def show_services(work: Work, rows: Sequence[ServiceRow]) -> list[Service]:
    around = await surroundings(work.tx, [row.id for row in rows])
    shown = []
    for row in rows:
        found = around[row.id]
        definition = await work.tools.definitions.read(work.tx, row.service_type_id, found.type_version)
        shown.append(
            Service(
                **msgspec.structs.asdict(row),
                agent=AgentNamed(row.agent_id, found.agent_name, found.agent_status),
                service_type=Named(row.service_type_id, found.type_name),
                available_actions=list(available_actions(definition.lifecycle, row.status)),
                active_job=None if found.job is None else ActiveJob(*found.job),
            )
        )
    return shown


async def show_service(work: Work, row: ServiceRow) -> Service:
    return (await show_services(work, [row]))[0]


async def show_jobs(work: Work, rows: Sequence[JobRow]) -> list[Job]:
    services = await SERVICES.many(work.tx, (row.service_id for row in rows))
    shown = {service.id: service for service in await show_services(work, list(services.values()))}
    people = await PARTICIPANTS.many(work.tx, (each for row in rows for each in (row.provider_id, row.consumer_id)))
    return [
        Job(
            **msgspec.structs.asdict(row),
            service=shown[row.service_id],
            agent=Named(row.agent_id, shown[row.service_id].agent.name),
            provider=Named(row.provider_id, people[row.provider_id].name),
            consumer=Named(row.consumer_id, people[row.consumer_id].name),
        )
        for row in rows
    ]
