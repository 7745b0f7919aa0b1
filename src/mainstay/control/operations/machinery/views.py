"""Services and jobs as API responses: the row, the names of related rows, and the available actions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime

import msgspec

from mainstay.control.access import Caller, Role, reading_relation
from mainstay.control.domain.conditions import shown_conditions
from mainstay.control.domain.jobs import ACTIVE
from mainstay.control.domain.lifecycle.transitions import available_actions
from mainstay.control.operations.machinery.consumer_view import consumer_conditions, first_line, sees_host
from mainstay.control.operations.machinery.unit_of_work import UnitOfWork
from mainstay.control.store.agents import AGENTS, AgentRow
from mainstay.control.store.jobs import JobRow
from mainstay.control.store.participants import PARTICIPANTS, Participant
from mainstay.control.store.services import (
    SERVICES,
    ServiceContext,
    ServiceRow,
    find_with_context,
    read_contexts,
    read_with_contexts,
)


class Named(msgspec.Struct, frozen=True):
    id: str
    name: str


class AgentNamed(msgspec.Struct, frozen=True):
    id: str
    name: str
    status: str


class ActiveJobView(msgspec.Struct, frozen=True):
    id: str
    action: str
    status: str


class ServiceView(ServiceRow, frozen=True, kw_only=True):
    # None: no repair was requested, or the agent has finished it.
    repair_requested_at: datetime | None = None
    agent: AgentNamed
    service_type: Named
    available_actions: list[str]
    # None: no job is active.
    active_job: ActiveJobView | None = None
    provider: Named
    consumer: Named
    # None: the caller may not read the groups of this consumer.
    group: Named | None
    # The version of `blueprint_digest`. None: no blueprint, or a bundle that another one of the same version replaced.
    blueprint_version: str | None


class JobView(JobRow, frozen=True, kw_only=True):
    service: ServiceView
    agent: Named
    provider: Named
    consumer: Named
    # Only in the list of pending jobs: the open orphan with the type and name of this service. An agent that knows
    # orphans cleans it up before it takes the job.
    orphan_id: str | msgspec.UnsetType = msgspec.UNSET


async def show_services(work: UnitOfWork, rows: Sequence[ServiceRow]) -> list[ServiceView]:
    contexts = await read_contexts(work.tx, [row.id for row in rows])
    return [await show_in_context(work, row, contexts[row.id]) for row in rows]


async def show_service(work: UnitOfWork, row: ServiceRow) -> ServiceView:
    return (await show_services(work, [row]))[0]


async def find_service_view(work: UnitOfWork, service_id: str) -> ServiceView:
    """A service that the caller may read."""
    row, context = await find_with_context(work.tx, service_id.lower()) or (None, None)
    service = await work.admit(SERVICES, service_id, row)
    if context is None:
        raise RuntimeError(f"service {service_id} was admitted without a row")
    return await show_in_context(work, service, context)


async def read_service_view(work: UnitOfWork, service_id: str) -> ServiceView:
    """The service after the changes of this transaction."""
    found = await find_with_context(work.tx, service_id)
    if found is None:
        raise RuntimeError(f"service {service_id} was deleted in the transaction that changes it")
    return await show_in_context(work, *found)


async def show_in_context(work: UnitOfWork, row: ServiceRow, context: ServiceContext) -> ServiceView:
    definition = await work.tools.definitions.read(work.tx, row.service_type_id, context.type_version)
    fields = msgspec.structs.asdict(row)
    if not sees_host(work.caller, row.provider_id):
        fields["conditions"] = consumer_conditions(row.conditions)
    if work.caller is None or work.caller.role is not Role.AGENT:
        # An agent compares what it finds with what it has reported.
        fields["conditions"] = shown_conditions(fields["conditions"], context.agent_status, context.agent_last_seen)
    return ServiceView(
        **fields,
        repair_requested_at=context.repair_requested_at,
        agent=AgentNamed(row.agent_id, context.agent_name, context.agent_status),
        service_type=Named(row.service_type_id, context.type_name),
        available_actions=list(available_actions(definition.lifecycle, row.status)),
        active_job=None if context.job is None else ActiveJobView(*context.job),
        provider=Named(row.provider_id, context.provider_name),
        consumer=Named(row.consumer_id, context.consumer_name),
        group=Named(row.group_id, context.group_name) if _sees_group(work.caller, row) else None,
        blueprint_version=context.blueprint_version,
    )


def _sees_group(caller: Caller | None, row: ServiceRow) -> bool:
    relation = None if caller is None else reading_relation(caller, "service_group")
    return caller is not None and relation is not None and relation.holds(caller, row)


def visible_part(work: UnitOfWork, row: JobRow) -> JobRow:
    """The row as far as the caller may see it."""
    if row.error_message is None or sees_host(work.caller, row.provider_id):
        return row
    return msgspec.structs.replace(row, error_message=first_line(row.error_message))


async def show_jobs(work: UnitOfWork, rows: Sequence[JobRow]) -> list[JobView]:
    """Leaves out jobs that were deleted with their service since they were read."""
    found = await read_with_contexts(work.tx, (row.service_id for row in rows))
    services = {service.id: await show_in_context(work, service, context) for service, context in found.values()}
    # Jobs of moves, and jobs from before a move.
    elsewhere = [row for row in rows if row.service_id in found and row.agent_id != services[row.service_id].agent_id]
    agents = await AGENTS.many(work.tx, (row.agent_id for row in elsewhere))
    providers = await PARTICIPANTS.many(work.tx, (row.provider_id for row in elsewhere))
    return [
        JobView(
            **msgspec.structs.asdict(visible_part(work, row)),
            service=_as_placed(service, row, agents, providers),
            agent=Named(row.agent_id, _name_of(agents, row.agent_id, service.agent.name)),
            provider=Named(row.provider_id, _name_of(providers, row.provider_id, service.provider.name)),
            consumer=service.consumer,
        )
        for row in rows
        if (service := services.get(row.service_id)) is not None
    ]


def _name_of(rows: Mapping[str, AgentRow] | Mapping[str, Participant], row_id: str, otherwise: str) -> str:
    found = rows.get(row_id)
    return otherwise if found is None else found.name


def _as_placed(
    service: ServiceView, job: JobRow, agents: Mapping[str, AgentRow], providers: Mapping[str, Participant]
) -> ServiceView:
    """The service as the target of a move gets it: its own, and without what the old agent stored."""
    target = agents.get(job.agent_id)
    if target is None or not job.is_move or job.status not in ACTIVE:
        return service
    return msgspec.structs.replace(
        service,
        agent_id=target.id,
        provider_id=target.provider_id,
        agent=AgentNamed(target.id, target.name, target.status),
        provider=Named(target.provider_id, _name_of(providers, target.provider_id, "")),
        agent_instance_id=None,
        agent_instance_data=None,
        conditions=[],
    )
