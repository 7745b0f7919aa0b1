"""Service types: every change of a schema is checked against the other schema and against living services."""

from __future__ import annotations

from dataclasses import dataclass

import msgspec

from mainstay.control.access import Role
from mainstay.control.domain.faults import listed
from mainstay.control.domain.lifecycle.change import LivingService, find_stranded
from mainstay.control.domain.properties.compatibility import misfits
from mainstay.control.domain.properties.contract import Actor, EvaluationContext, Operation, PropertyTarget
from mainstay.control.domain.properties.engine import Rejected
from mainstay.control.domain.properties.secrecy import without_lost
from mainstay.control.domain.service_types import parse_service_type, report_service_type
from mainstay.control.operations.machinery.bodies import Body, Id, Name, with_given
from mainstay.control.operations.machinery.bounds import MAX_DEFINITION_BYTES, refuse_large
from mainstay.control.operations.machinery.property_decisions import decide_properties
from mainstay.control.operations.machinery.refusals import AgentNotAvailable, BadInput, Conflict, InUse, NotPermitted
from mainstay.control.operations.machinery.secrecy_changes import SecrecyChange, ServiceSecrecy, apply_secrecy
from mainstay.control.operations.machinery.unit_of_work import UnitOfWork
from mainstay.control.store.agent_types import serving_types
from mainstay.control.store.agents import AgentRow
from mainstay.control.store.orphans import open_ids, open_snapshots_of_type
from mainstay.control.store.placement import find_serving_parties, offers_to
from mainstay.control.store.secrets import held_by
from mainstay.control.store.service_groups import SERVICE_GROUPS, ServiceGroup
from mainstay.control.store.service_types import SERVICE_TYPES, ServiceTypeRow
from mainstay.control.store.services import delete_terminal, living_ids, living_with_jobs, lock_living, serves_group

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
    # What force would do: plain values to seal because their property becomes secret, and secrets to delete.
    sealed_secrets: int
    deleted_secrets: int


class ChangedServiceType(ServiceTypeRow, frozen=True, kw_only=True):
    """The type, with the numbers of plain values that were sealed and of secrets that were deleted, if there are any."""

    sealed_secrets: int | msgspec.UnsetType = msgspec.UNSET
    deleted_secrets: int | msgspec.UnsetType = msgspec.UNSET


@dataclass(frozen=True, slots=True)
class ExaminedChange:
    """The effect of a new definition on living services. At most `LISTED` misfits; the numbers are complete."""

    misfits: list[Misfit]
    sealed: int
    deleted: int


async def create(work: UnitOfWork, wanted: NewServiceType) -> ServiceTypeRow:
    _refuse_large(wanted)
    parse_service_type(wanted.property_schema, wanted.lifecycle_schema, work.tools.definitions.rulebook)
    service_type = ServiceTypeRow(
        **work.new_record(),
        name=wanted.name,
        property_schema=wanted.property_schema,
        lifecycle_schema=wanted.lifecycle_schema,
    )
    return await work.insert(SERVICE_TYPES, service_type)


async def change(
    work: UnitOfWork, before: ServiceTypeRow, wanted: ServiceTypeChange, *, force: bool, dry_run: bool
) -> ServiceTypeRow | ChangeForecast:
    _refuse_large(wanted)
    after = with_given(before, wanted)
    examined = await examine_change(work, before, after)
    if dry_run:
        return ChangeForecast(after, examined.misfits, examined.sealed, examined.deleted)
    refuse_misfits(examined.misfits, force=force)
    return ChangedServiceType(
        **msgspec.structs.asdict(await apply_change(work, before, after, examined)),
        sealed_secrets=examined.sealed or msgspec.UNSET,
        deleted_secrets=examined.deleted or msgspec.UNSET,
    )


def _refuse_large(wanted: NewServiceType | ServiceTypeChange) -> None:
    refuse_large("propertySchema", wanted.property_schema, MAX_DEFINITION_BYTES)
    refuse_large("lifecycleSchema", wanted.lifecycle_schema, MAX_DEFINITION_BYTES)


def refuse_misfits(found: list[Misfit], *, force: bool) -> None:
    if any(not force or not misfit.forceable for misfit in found):
        listed = [msgspec.to_builtins(misfit) for misfit in found]
        raise Conflict(
            f"{len(found)} living services do not fit the new definition; list them with ?dryRun=true; ?force=true"
            " overrides all except a removed state and an active job that prevents a change of secrets",
            code="services_do_not_fit",
            details={"services": listed},
        )


async def examine_change(work: UnitOfWork, before: ServiceTypeRow, after: ServiceTypeRow) -> ExaminedChange:
    """Finds the living services that do not fit the new definition, or whose values become secret or plain."""
    rulebook = work.tools.definitions.rulebook
    definition = parse_service_type(after.property_schema, after.lifecycle_schema, rulebook)
    secrecy = _secrecy_change(work, before, after)
    if secrecy.concerns_values:
        await lock_living(work.tx, after.id)
    context = EvaluationContext(operation=Operation.UPDATE, actor=Actor.SYSTEM, now=work.now, entropy=b"")
    found: list[Misfit] = []
    sealed = deleted = 0
    last: str | None = ""
    while last is not None and (len(found) < LISTED or secrecy.concerns_values):
        services = await living_with_jobs(work.tx, after.id, last, CHECKED_AT_ONCE)
        living = [LivingService(service.id, service.status, action) for service, action in services]
        found += [
            Misfit(stranded.service_id, stranded.message, stranded.forceable)
            for stranded in find_stranded(definition.lifecycle, living)
        ]
        ids = [service.id for service, _ in services] if secrecy.concerns_values else []
        held = await held_by(work.tx, "service", ids)
        for service, action in services:
            affected = secrecy.examine(service.properties, held.get(service.id, frozenset()))
            sealed, deleted = sealed + len(affected.plain), deleted + len(affected.lost)
            found += _secrecy_misfits(service.id, action, secrecy, affected)
            left = without_lost(secrecy.before, service.properties, affected.lost)
            faults = misfits(definition.properties, left, context)
            if faults:
                found.append(Misfit(service.id, "; ".join(str(fault) for fault in listed(faults)), forceable=True))
        found = found[:LISTED]
        last = services[-1][0].id if len(services) == CHECKED_AT_ONCE else None
    return ExaminedChange(found, sealed, deleted)


def _secrecy_change(work: UnitOfWork, before: ServiceTypeRow, after: ServiceTypeRow) -> SecrecyChange:
    rulebook = work.tools.definitions.rulebook
    parsed = [parse_service_type(each.property_schema, each.lifecycle_schema, rulebook) for each in (before, after)]
    return SecrecyChange(*(definition.properties for definition in parsed))


def _secrecy_misfits(
    service_id: str, action: str | None, secrecy: SecrecyChange, affected: ServiceSecrecy
) -> list[Misfit]:
    if action is not None and (secrecy.needs_idle_services or affected.plain):
        message = f"it has an active job ({action}), so its values cannot become secret or plain; wait or cancel it"
        return [Misfit(service_id, message, forceable=False)]
    return [Misfit(service_id, affected.message, forceable=True)] if affected.message else []


async def apply_change(
    work: UnitOfWork, before: ServiceTypeRow, after: ServiceTypeRow, examined: ExaminedChange
) -> ServiceTypeRow:
    """Saves the change, and seals and deletes what it makes secret or plain."""
    secrecy = _secrecy_change(work, before, after)
    saved = await work.update(SERVICE_TYPES, before, after)
    if secrecy.needs_idle_services or examined.sealed:
        await _refuse_moved_services(work, after)
        await apply_secrecy(work, after.id, secrecy)
    return saved


async def _refuse_moved_services(work: UnitOfWork, service_type: ServiceTypeRow) -> None:
    """The orphan of a move has a snapshot of the properties, which its agent cleans up with."""
    orphans = await open_snapshots_of_type(work.tx, service_type.id)
    if orphans:
        raise Conflict(
            "values of services that moved cannot become secret or plain while an agent owes a clean-up:"
            f" clean-ups {', '.join(orphans)}; wait for the agents, or forget the clean-ups",
            code="clean_up_owed",
            details={"dependants": {"orphans": orphans}},
        )


async def delete(work: UnitOfWork, service_type: ServiceTypeRow) -> None:
    blocking = {
        "services": await living_ids(work.tx, "service_type_id", service_type.id),
        "orphans": await open_ids(work.tx, "services.service_type_id", service_type.id),
        "agentTypes": await serving_types(work.tx, service_type.id),
    }
    if any(blocking.values()):
        raise InUse(f"service type {service_type.id}", blocking)
    await delete_terminal(work.tx, "service_type_id", service_type.id)
    await work.delete(SERVICE_TYPES, service_type)


def report(work: UnitOfWork, service_type: ServiceTypeRow) -> DefinitionReport:
    findings = report_service_type(work.tools.definitions.of_service_type(service_type))
    return DefinitionReport([FindingView(each.code, each.subject, each.message) for each in findings])


async def validate(work: UnitOfWork, service_type: ServiceTypeRow, order: OrderCheck) -> Verdict:
    """Validates an order of the caller. Takes no pool values and stores nothing."""
    target = await _order_target(work, service_type, order)
    schema = work.tools.definitions.of_service_type(service_type).properties
    decided = await decide_properties(work, schema, order.properties, target)
    faults = decided.faults if isinstance(decided, Rejected) else ()
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
    found = await find_serving_parties(work.tx, agent_id.lower(), consumer_id, service_type_id)
    if found is None:
        raise AgentNotAvailable(agent_id)
    return found.agent


async def _may_ask(work: UnitOfWork, provider_id: str, consumer_id: str | None) -> bool:
    """Whether the answer may depend on the options of the provider."""
    return provider_id == work.required_caller.participant_id or await offers_to(work.tx, provider_id, consumer_id)
