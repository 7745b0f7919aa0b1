"""Service types: every change of a schema is checked against the other schema and against living services."""

from __future__ import annotations

import msgspec

from mainstay.control.access import Role
from mainstay.control.domain.faults import PathFault, listed
from mainstay.control.domain.findings import Finding
from mainstay.control.domain.lifecycle.change import LivingService, find_stranded
from mainstay.control.domain.properties.compatibility import misfits
from mainstay.control.domain.properties.contract import Actor, EvaluationContext, Operation, PropertyTarget
from mainstay.control.domain.properties.engine import Rejected
from mainstay.control.domain.service_types import parse_service_type, report_service_type
from mainstay.control.operations.machinery.bodies import Body, Id, Name
from mainstay.control.operations.machinery.bounds import MAX_DEFINITION_BYTES, refuse_large
from mainstay.control.operations.machinery.property_decisions import decide_properties
from mainstay.control.operations.machinery.refusals import AgentNotAvailable, BadInput, Conflict, InUse, NotPermitted
from mainstay.control.operations.machinery.unit_of_work import UnitOfWork, new_id
from mainstay.control.store.agent_types import serving_types
from mainstay.control.store.agents import AgentRow
from mainstay.control.store.service_groups import SERVICE_GROUPS, ServiceGroup
from mainstay.control.store.service_types import SERVICE_TYPES, ServiceTypeRow
from mainstay.control.store.services import delete_terminal, living_ids, living_with_jobs, serves_group
from mainstay.control.store.serving import find_serving, offers_to

CHECKED_AT_ONCE = 500
LISTED = 100


class NewServiceType(Body, frozen=True, kw_only=True):
    name: Name
    property_schema: dict[str, object] | None = None
    lifecycle_schema: dict[str, object] | None = None


class ServiceTypeChange(Body, frozen=True, kw_only=True):
    name: Name | None = None
    property_schema: dict[str, object] | None = None
    lifecycle_schema: dict[str, object] | None = None


class OrderCheck(Body, frozen=True, kw_only=True):
    """The properties of an order to validate."""

    properties: dict[str, object] = {}
    group_id: Id | None = None
    agent_id: Id | None = None
    provider_id: Id | None = None


class FaultView(msgspec.Struct, frozen=True):
    path: str
    message: str


class Verdict(msgspec.Struct, frozen=True):
    valid: bool
    errors: list[FaultView]


class FindingView(msgspec.Struct, frozen=True):
    code: str
    subject: str
    message: str


class DefinitionReport(msgspec.Struct, frozen=True):
    findings: list[FindingView]


class Misfit(msgspec.Struct, frozen=True, rename="camel"):
    """A living service that does not fit a new definition of its type."""

    service_id: str
    message: str
    # Whether `force=true` overrides it.
    forceable: bool


class ChangeForecast(msgspec.Struct, frozen=True, rename="camel"):
    service_type: ServiceTypeRow
    misfits: list[Misfit]


async def create(work: UnitOfWork, wanted: NewServiceType) -> ServiceTypeRow:
    _refuse_large(wanted)
    parse_service_type(wanted.property_schema, wanted.lifecycle_schema, work.tools.definitions.rulebook)
    service_type = ServiceTypeRow(
        id=new_id(),
        created_at=work.now,
        updated_at=work.now,
        name=wanted.name,
        property_schema=wanted.property_schema,
        lifecycle_schema=wanted.lifecycle_schema,
    )
    return await work.insert(SERVICE_TYPES, service_type)


async def change(
    work: UnitOfWork, before: ServiceTypeRow, wanted: ServiceTypeChange, *, force: bool, dry_run: bool
) -> ServiceTypeRow | ChangeForecast:
    _refuse_large(wanted)
    after = msgspec.structs.replace(
        before,
        name=wanted.name or before.name,
        property_schema=before.property_schema if wanted.property_schema is None else wanted.property_schema,
        lifecycle_schema=before.lifecycle_schema if wanted.lifecycle_schema is None else wanted.lifecycle_schema,
    )
    found = await find_misfits(work, after)
    if dry_run:
        return ChangeForecast(after, found)
    refuse_misfits(found, force=force)
    return await work.update(SERVICE_TYPES, before, after)


def _refuse_large(wanted: NewServiceType | ServiceTypeChange) -> None:
    refuse_large("propertySchema", wanted.property_schema, MAX_DEFINITION_BYTES)
    refuse_large("lifecycleSchema", wanted.lifecycle_schema, MAX_DEFINITION_BYTES)


def refuse_misfits(found: list[Misfit], *, force: bool) -> None:
    if any(not force or not misfit.forceable for misfit in found):
        listed = [msgspec.to_builtins(misfit) for misfit in found]
        raise Conflict(
            f"{len(found)} living services do not fit the new definition; list them with ?dryRun=true; ?force=true"
            " overrides all except a removed state",
            code="services_do_not_fit",
            details={"services": listed},
        )


async def find_misfits(work: UnitOfWork, service_type: ServiceTypeRow) -> list[Misfit]:
    """Living services that do not fit this new definition of their type, at most `LISTED`."""
    definition = parse_service_type(
        service_type.property_schema, service_type.lifecycle_schema, work.tools.definitions.rulebook
    )
    found: list[Misfit] = []
    last = ""
    while len(found) < LISTED:
        services = await living_with_jobs(work.tx, service_type.id, last, CHECKED_AT_ONCE)
        living = [LivingService(service.id, service.status, action) for service, action in services]
        found += [
            Misfit(stranded.service_id, stranded.message, stranded.forceable)
            for stranded in find_stranded(definition.lifecycle, living)
        ]
        for service, _ in services:
            context = EvaluationContext(operation=Operation.UPDATE, actor=Actor.SYSTEM, now=work.now, entropy=b"")
            faults = misfits(definition.properties, service.properties, context)
            if faults:
                found.append(Misfit(service.id, "; ".join(str(fault) for fault in listed(faults)), forceable=True))
        if len(services) < CHECKED_AT_ONCE:
            break
        last = services[-1][0].id
    return found[:LISTED]


async def delete(work: UnitOfWork, service_type: ServiceTypeRow) -> None:
    living = await living_ids(work.tx, "service_type_id", service_type.id)
    blocking = {"services": living, "agentTypes": await serving_types(work.tx, service_type.id)}
    if any(blocking.values()):
        raise InUse(f"service type {service_type.id}", blocking)
    await delete_terminal(work.tx, "service_type_id", service_type.id)
    await work.delete(SERVICE_TYPES, service_type)


def report(work: UnitOfWork, service_type: ServiceTypeRow) -> DefinitionReport:
    findings: tuple[Finding, ...] = report_service_type(work.tools.definitions.of_service_type(service_type))
    return DefinitionReport([FindingView(each.code, each.subject, each.message) for each in findings])


async def validate(work: UnitOfWork, service_type: ServiceTypeRow, order: OrderCheck) -> Verdict:
    """Validates an order of the caller. Takes no pool values and stores nothing."""
    target = await _order_target(work, service_type, order)
    schema = work.tools.definitions.of_service_type(service_type).properties
    decided = await decide_properties(work, schema, order.properties, target)
    faults: tuple[PathFault, ...] = decided.faults if isinstance(decided, Rejected) else ()
    return Verdict(not faults, [FaultView(fault.path, fault.message) for fault in listed(faults)])


async def _order_target(work: UnitOfWork, service_type: ServiceTypeRow, order: OrderCheck) -> PropertyTarget:
    caller = work.required_caller
    consumer_id = caller.participant_id if caller.role is Role.PARTICIPANT else None
    group_id = None
    if order.group_id is not None:
        group = await _group(work, order.group_id)
        group_id, consumer_id = group.id, group.consumer_id
    # An agent that names no group validates on behalf of its provider; an admin for some consumer.
    served_id = caller.participant_id if consumer_id is None else consumer_id
    agent = await _agent(work, order.agent_id, served_id, service_type.id)
    provider_id = None if order.provider_id is None else order.provider_id.lower()
    if agent is not None:
        provider_id = agent.provider_id
    elif provider_id is not None and not await _may_ask(work, provider_id, served_id):
        raise BadInput(
            f"participant {provider_id} does not exist or has no agent that may serve this consumer",
            code="provider_not_available",
        )
    return PropertyTarget(
        operation=Operation.CREATE,
        dry=True,
        agent_id=None if agent is None else agent.id,
        pool_set_id=None if agent is None else agent.service_pool_set_id,
        provider_id=provider_id,
        consumer_id=consumer_id,
        group_id=group_id,
    )


async def _group(work: UnitOfWork, group_id: str) -> ServiceGroup:
    caller = work.required_caller
    group = await SERVICE_GROUPS.find(work.tx, group_id.lower())
    if caller.role is Role.PARTICIPANT and (group is None or group.consumer_id != caller.participant_id):
        raise NotPermitted("the group must be your own")
    if caller.role is Role.AGENT and not await serves_group(work.tx, str(caller.agent_id), group_id.lower()):
        raise NotPermitted("the group must contain a service that you serve")
    if group is None:
        raise BadInput(f"there is no service group {group_id}")
    return group


async def _agent(
    work: UnitOfWork, agent_id: str | None, consumer_id: str | None, service_type_id: str
) -> AgentRow | None:
    if agent_id is None:
        return None
    found = await find_serving(work.tx, agent_id.lower(), consumer_id, service_type_id)
    if found is None:
        raise AgentNotAvailable(agent_id)
    return found[0]


async def _may_ask(work: UnitOfWork, provider_id: str, consumer_id: str | None) -> bool:
    """Whether the answer may depend on the options of the provider."""
    return provider_id == work.required_caller.participant_id or await offers_to(work.tx, provider_id, consumer_id)
