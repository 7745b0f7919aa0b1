"""Services and jobs as callers see them: the row, with the names around it and what can be done."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from mainstay.control.domain.lifecycle.steps import available_actions
from mainstay.control.operations.work import Work
from mainstay.control.store.jobs import JobRow
from mainstay.control.store.services import ServiceRow, Surroundings, surroundings, with_surroundings


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
    return [await _show(work, row, around[row.id]) for row in rows]


async def show_service(work: Work, row: ServiceRow) -> Service:
    return (await show_services(work, [row]))[0]


async def _show(work: Work, row: ServiceRow, around: Surroundings) -> Service:
    definition = await work.tools.definitions.read(work.tx, row.service_type_id, around.type_version)
    return Service(
        **msgspec.structs.asdict(row),
        agent=AgentNamed(row.agent_id, around.agent_name, around.agent_status),
        service_type=Named(row.service_type_id, around.type_name),
        available_actions=list(available_actions(definition.lifecycle, row.status)),
        active_job=None if around.job is None else ActiveJob(*around.job),
    )


async def show_jobs(work: Work, rows: Sequence[JobRow]) -> list[Job]:
    """Without those that went with their services after they were read."""
    found = await with_surroundings(work.tx, (row.service_id for row in rows))
    services = {each.service.id: await _show(work, each.service, each.around) for each in found.values()}
    return [
        Job(
            **msgspec.structs.asdict(row),
            service=services[row.service_id],
            agent=Named(row.agent_id, whole.around.agent_name),
            provider=Named(row.provider_id, whole.provider_name),
            consumer=Named(row.consumer_id, whole.consumer_name),
        )
        for row in rows
        if (whole := found.get(row.service_id)) is not None
    ]
