"""Services: create, change, act, delete, conditions, uptime. `orders.py` has the forms of an order (dry run, plan)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Annotated
from uuid import UUID

import msgspec

from mainstay.control.access import Role
from mainstay.control.domain.blueprints import MAX_VERSION
from mainstay.control.domain.conditions import ConditionStatus, differ_only_in_count
from mainstay.control.domain.lifecycle import transitions
from mainstay.control.domain.lifecycle.schema import Action, Lifecycle
from mainstay.control.domain.lifecycle.uptime import StateEntry, uptime
from mainstay.control.domain.placement import ServingAgent, pool_needs
from mainstay.control.domain.properties.contract import Actor, Operation, PropertyTarget
from mainstay.control.domain.properties.evaluation import ValueSource
from mainstay.control.domain.properties.schema import PropertySchema
from mainstay.control.domain.properties.traversal import references_in
from mainstay.control.domain.refusals import TerminalState
from mainstay.control.domain.service_types import ServiceTypeDefinition
from mainstay.control.operations.machinery import job_chains, secret_sealing
from mainstay.control.operations.machinery.blueprint_versions import find_bundle
from mainstay.control.operations.machinery.bodies import NO_ZERO, Body, Id, Name, ShortText, Tag, Text
from mainstay.control.operations.machinery.bounds import MAX_CONDITIONS_BYTES, refuse_large
from mainstay.control.operations.machinery.consumer_view import initiator_words
from mainstay.control.operations.machinery.job_chains import OrderedChanges, ServiceUpdate
from mainstay.control.operations.machinery.placement import PlacementRequest, admit_named, find_candidates, place
from mainstay.control.operations.machinery.property_decisions import (
    DecidedProperties,
    PoolValueMissing,
    accept_properties,
    pool_questions,
)
from mainstay.control.operations.machinery.refusals import (
    AgentNotAvailable,
    BadInput,
    Conflict,
    InUse,
    NotPermitted,
    PlanOutdated,
    Stale,
)
from mainstay.control.operations.machinery.unit_of_work import UnitOfWork, new_id
from mainstay.control.store import services as store
from mainstay.control.store.agents import AGENTS, AgentRow
from mainstay.control.store.engine.paging import parse_time
from mainstay.control.store.jobs import JobName, JobRow, active_job, find_by_times
from mainstay.control.store.orders import OrderedGroup, find_order_parties
from mainstay.control.store.participants import PARTICIPANTS
from mainstay.control.store.placement import ServingParties, find_serving_parties
from mainstay.control.store.service_groups import SERVICE_GROUPS, ServiceGroup, find_group_named
from mainstay.control.store.services import SERVICES, ServiceContext, ServiceRow
from mainstay.control.store.tokens import TokenOwner, read_owners

DEFAULT_GROUP = "default"
# At most 200 tokens and jobs are resolved for one view of origins.
MAX_ORIGINS = 200
MAX_WINDOW = timedelta(days=366 * 5)
Short = Annotated[str, msgspec.Meta(max_length=1000, pattern=NO_ZERO)]
BlueprintVersionText = Annotated[str, msgspec.Meta(min_length=1, max_length=MAX_VERSION, pattern=NO_ZERO)]
# Executes the order only if its outcome is still the planned one.
PlanDigestText = Annotated[str, msgspec.Meta(max_length=200, pattern=NO_ZERO)]


class NewService(Body, frozen=True, kw_only=True):
    service_type_id: Id
    name: Name
    properties: dict[str, object] = {}
    group_id: Id | None = None
    # Instead of a group: the consumer whose group `default` gets the service. Participants order for themselves.
    consumer_id: Id | None = None
    agent_id: Id | None = None
    # Narrows the choice of the agent to one provider.
    provider_id: Id | None = None
    agent_tags: Annotated[list[ShortText], msgspec.Meta(max_length=100)] = []
    plan_digest: PlanDigestText | None = None


class ServiceChange(Body, frozen=True, kw_only=True):
    name: Name | None = None
    properties: dict[str, object] | None = None
    # `latest` or a version of the type's blueprint.
    blueprint_version: BlueprintVersionText | None = None
    plan_digest: PlanDigestText | None = None


class ActionRequest(Body, frozen=True, kw_only=True):
    properties: dict[str, object] | None = None
    blueprint_version: BlueprintVersionText | None = None
    plan_digest: PlanDigestText | None = None


class ServiceCondition(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """An observation of the agent about a service, beside its status, such as `InSync`. Other members, such as those that
    the server adds while the agent is offline, are ignored."""

    type: Tag
    status: ConditionStatus
    reason: Short = ""
    message: Text = ""
    # What consumers see instead of `message`; without it, they see `message` without lines that others wrote.
    consumer_message: Text | msgspec.UnsetType = msgspec.UNSET


class UptimeView(msgspec.Struct, frozen=True, rename="camel"):
    start: datetime
    end: datetime
    running_seconds: float
    total_seconds: float
    share: float


async def create(work: UnitOfWork, wanted: NewService) -> tuple[ServiceRow, ServiceContext]:
    """Returns what a view of the new service needs, which would be another query."""
    type_id = wanted.service_type_id.lower()
    known = await find_order_parties(work.tx, type_id, _ordered_group(work, wanted), _lower(wanted.agent_id))
    if known is None:
        raise BadInput(f"there is no service type {wanted.service_type_id}")
    found = known.service_type
    group = await _group(work, wanted, known.group)
    definition = await work.tools.definitions.read(work.tx, type_id, found.updated_at)
    lifecycle, schema = definition.lifecycle, definition.properties
    service_id = await _service_id(work)
    target = PropertyTarget(
        operation=Operation.CREATE, service_id=service_id, consumer_id=group.consumer_id, group_id=group.id
    )
    if wanted.agent_id is None:
        parties, decided = await _place(work, wanted, (type_id, found.name), schema, target)
    else:
        parties = _named_agent(wanted.agent_id, known.serving, _lower(wanted.provider_id), found.name)
        await admit_named(work, parties.agent)
        decided = await accept_properties(work, schema, wanted.properties, _target_on(parties.agent, target))
    agent = parties.agent
    properties, _ = await secret_sealing.seal_all(work, decided.accepted, job_chains.secrets_owner(service_id))
    service = ServiceRow(
        id=service_id,
        created_at=work.now,
        updated_at=work.now,
        name=wanted.name,
        status=lifecycle.initial_state,
        properties=properties,
        provider_id=agent.provider_id,
        consumer_id=group.consumer_id,
        group_id=group.id,
        agent_id=agent.id,
        service_type_id=type_id,
        conditions=[],
        blueprint_digest=found.blueprint_digest,
        version=1,
    )
    origins = job_chains.origins_of(work, schema, {}, decided, None)
    await work.insert(SERVICES, service, is_terminal=0, provenance=msgspec.json.encode(origins).decode())
    await _save_references(work, schema, service)
    await store.note_state(work.tx, service.id, service.status, work.now)
    # The service has its properties already, so the chain has nothing to apply or to release.
    job = await job_chains.start(
        work,
        service,
        lifecycle,
        "create",
        properties,
        OrderedChanges(None),
        has_references=schema.has_references,
    )
    return service, ServiceContext(
        agent_name=agent.name,
        agent_status=agent.status,
        agent_last_seen=agent.last_status_update,
        repair_requested_at=None,
        type_name=found.name,
        type_version=found.updated_at,
        job=(job.id, job.action, job.status),
        provider_name=parties.provider_name,
        consumer_name=parties.consumer_name,
        group_name=group.name,
        blueprint_version=found.blueprint_version,
    )


async def _service_id(work: UnitOfWork) -> str:
    """A new id. The id drawn by a plan can be used by one order."""
    service_id = str(UUID(bytes=work.derive_bytes("service")[:16], version=4))
    if work.planned is not None:
        await work.tx.lock(f"service {service_id}")
        if await SERVICES.find(work.tx, service_id) is not None:
            raise PlanOutdated("inputs", "the plan has already been executed")
    return service_id


async def _save_references(work: UnitOfWork, schema: PropertySchema, service: ServiceRow) -> None:
    if schema.has_references:
        await store.set_references(work.tx, service.id, references_in(schema, service.properties))


def _lower(record_id: str | None) -> str | None:
    return None if record_id is None else record_id.lower()


def _ordered_group(work: UnitOfWork, wanted: NewService) -> OrderedGroup:
    if wanted.group_id is not None:
        return OrderedGroup(wanted.group_id.lower())
    return OrderedGroup(consumer_id=_consumer_id(work, wanted), name=DEFAULT_GROUP)


def _consumer_id(work: UnitOfWork, wanted: NewService) -> str | None:
    return work.required_caller.participant_id if wanted.consumer_id is None else wanted.consumer_id.lower()


async def _group(work: UnitOfWork, wanted: NewService, found: ServiceGroup | None) -> ServiceGroup:
    """`found` is the `_ordered_group`, if it exists."""
    caller = work.required_caller
    if wanted.group_id is not None:
        if caller.role is Role.PARTICIPANT and (found is None or found.consumer_id != caller.participant_id):
            raise NotPermitted("the group must be your own")
        if found is None:
            raise BadInput(f"there is no service group {wanted.group_id}")
        if wanted.consumer_id is not None and wanted.consumer_id.lower() != found.consumer_id:
            raise BadInput("the group belongs to another consumer; give groupId or consumerId, not both")
        return found
    consumer_id = _consumer_id(work, wanted)
    if consumer_id is None:
        raise BadInput("as an admin you must name the customer: give groupId or consumerId", code="choose_customer")
    if caller.role is Role.PARTICIPANT and consumer_id != caller.participant_id:
        raise NotPermitted("a participant can order only for itself")
    return found or await _default_group(work, consumer_id)


async def _default_group(work: UnitOfWork, consumer_id: str) -> ServiceGroup:
    """Creates it, unless a concurrent first order has."""
    if await PARTICIPANTS.find(work.tx, consumer_id) is None:
        raise BadInput(f"there is no participant {consumer_id}")
    # Held until the commit, so only first orders wait for each other.
    await work.tx.lock(f"default group {consumer_id}")
    known = await find_group_named(work.tx, consumer_id, DEFAULT_GROUP)
    if known is not None:
        return known
    new = ServiceGroup(
        id=new_id(),
        created_at=work.now,
        updated_at=work.now,
        name=DEFAULT_GROUP,
        consumer_id=consumer_id,
    )
    return await work.insert(SERVICE_GROUPS, new)


async def _place(
    work: UnitOfWork,
    wanted: NewService,
    service_type: tuple[str, str],
    schema: PropertySchema,
    target: PropertyTarget,
) -> tuple[ServingParties, DecidedProperties]:
    """The agent that gets a new service, and its properties there. `service_type` is its id and name."""
    type_id, type_name = service_type
    consumer_id = str(target.consumer_id)
    request = PlacementRequest(
        type_id=type_id,
        type_name=type_name,
        consumer_id=consumer_id,
        provider_id=_lower(wanted.provider_id),
        tags=wanted.agent_tags,
    )
    candidates = await find_candidates(work, request)
    first = candidates[0]
    anywhere = replace(target, agent_id=first.agent_id, provider_id=first.provider_id)
    needs = pool_needs(pool_questions(work, schema, wanted.properties, anywhere))

    async def take(agent: ServingAgent) -> tuple[ServingParties, DecidedProperties]:
        parties = await find_serving_parties(work.tx, agent.agent_id, consumer_id, type_id)
        if parties is None:
            # Deleted or disabled since the choice.
            raise PoolValueMissing
        there = _target_on(parties.agent, target)
        return parties, await accept_properties(work, schema, wanted.properties, there, elsewhere=True)

    return await place(work, replace(request, needs=needs), candidates, take)


def _target_on(agent: AgentRow, target: PropertyTarget) -> PropertyTarget:
    return replace(target, agent_id=agent.id, pool_set_id=agent.service_pool_set_id, provider_id=agent.provider_id)


async def find_named_agent(
    work: UnitOfWork, agent_id: str, consumer_id: str, service_type: tuple[str, str]
) -> ServingParties:
    type_id, type_name = service_type
    found = await find_serving_parties(work.tx, agent_id.lower(), consumer_id, type_id)
    return _named_agent(agent_id, found, None, type_name)


def _named_agent(
    agent_id: str, found: ServingParties | None, provider_id: str | None, type_name: str
) -> ServingParties:
    """`provider_id` None: of any provider."""
    if found is None or provider_id not in (None, found.agent.provider_id):
        raise AgentNotAvailable(agent_id)
    if not found.serves:
        raise BadInput(f"agent type {found.type_name} does not support service type {type_name}")
    return found


@dataclass(frozen=True, slots=True)
class RequestedAction:
    """An action that a caller requests of a service. `properties` None: none were given."""

    action: str
    properties: Mapping[str, object] | None = None
    # The version that the caller has read; None: any version.
    if_version: int | None = None
    # `latest` or a version of the blueprint, or a bundle. Both None: the one that the blueprint says for this action.
    blueprint_version: str | None = None
    blueprint_digest: str | None = None


async def change(
    work: UnitOfWork, service: ServiceRow, wanted: ServiceChange, if_version: int | None
) -> OrderedChanges | None:
    """Changes the name at once and properties through a job `update`. None: no job was needed."""
    definition = await job_chains.definition_of(work, service)
    if service.status in definition.lifecycle.terminal_states:
        raise TerminalState(service.status)
    changes = None
    if wanted.properties is not None or wanted.blueprint_version is not None:
        request = RequestedAction("update", wanted.properties, if_version, wanted.blueprint_version)
        changes = await _request(work, service, definition, request)
    refuse_stale(service, if_version)
    if wanted.name is not None:
        after = msgspec.structs.replace(service, name=wanted.name)
        await job_chains.save_service(work, ServiceUpdate(before=service, after=after, definition=definition))
    return changes


async def act(work: UnitOfWork, service: ServiceRow, request: RequestedAction) -> OrderedChanges | None:
    return await _request(work, service, await job_chains.definition_of(work, service), request)


async def _request(
    work: UnitOfWork, service: ServiceRow, definition: ServiceTypeDefinition, request: RequestedAction
) -> OrderedChanges | None:
    """Checks in the order of the contract: action, terminal state, properties, version, state, active job.

    None: nothing had to be queued."""
    lifecycle = definition.lifecycle
    action = transitions.find_action(lifecycle, request.action)
    if service.status in lifecycle.terminal_states:
        raise TerminalState(service.status)
    active = await active_job(work.tx, service.id)
    if (
        active is not None
        and active.action == request.action
        and not request.properties
        and request.blueprint_version is None
        and request.action != "update"
        and not active.is_move
    ):
        # A repeated request: the active job already does this.
        return None
    changes = await _decide_changes(work, service, definition.properties, action, request)
    refuse_stale(service, request.if_version)
    if action.name == "update" and not _has_effect(changes, service):
        if active is not None and await job_chains.changes_properties(work, active, service):
            # The active job replaces the stored values, so they must not be confirmed as unchanged.
            raise active_job_refusal(active)
        return None
    transitions.begin(lifecycle, action.name, service.status)
    if active is not None:
        raise active_job_refusal(active)
    if action.name == "delete":
        await refuse_if_referenced(work, service)
    has_references = definition.properties.has_references
    await job_chains.start(
        work, service, lifecycle, action.name, changes.properties, changes, has_references=has_references
    )
    return changes


def _has_effect(changes: OrderedChanges, service: ServiceRow) -> bool:
    """Whether an update has anything to do."""
    if changes.blueprint_digest not in (None, service.blueprint_digest):
        return True
    return changes.decided is None or changes.decided.accepted.changed


def active_job_refusal(job: JobRow) -> Conflict:
    return Conflict(
        f"the service has an active job {job.id} ({job.action}); wait for it or cancel it",
        code="active_job",
        details={"jobId": job.id},
    )


def refuse_stale(service: ServiceRow, if_version: int | None) -> None:
    if if_version is not None and if_version != service.version:
        raise Stale(f"the service is at version {service.version}, not {if_version}; read it again")


async def _decide_changes(
    work: UnitOfWork, service: ServiceRow, schema: PropertySchema, action: Action, request: RequestedAction
) -> OrderedChanges:
    digest = request.blueprint_digest
    if request.blueprint_version is not None:
        digest = await find_bundle(work, service.service_type_id, request.blueprint_version)
    if not action.takes_properties:
        if request.properties:
            raise BadInput(f"action '{action.name}' takes no properties")
        return OrderedChanges(None, blueprint_digest=digest)
    decided = await accept_properties(
        work, schema, dict(request.properties or {}), await _update_target(work, service), service.properties
    )
    properties, new_secrets = await secret_sealing.seal_all(
        work, decided.accepted, job_chains.secrets_owner(service.id)
    )
    origins = job_chains.origins_of(work, schema, service.properties, decided, None)
    return OrderedChanges(properties, decided, new_secrets, origins, digest)


async def _update_target(work: UnitOfWork, service: ServiceRow) -> PropertyTarget:
    agent = await AGENTS.require(work.tx, service.agent_id)
    return PropertyTarget(
        operation=Operation.UPDATE,
        state=service.status,
        service_id=service.id,
        agent_id=service.agent_id,
        pool_set_id=agent.service_pool_set_id,
        provider_id=service.provider_id,
        consumer_id=service.consumer_id,
        group_id=service.group_id,
    )


async def refuse_if_referenced(work: UnitOfWork, service: ServiceRow) -> None:
    referrers = await store.living_referrers(work.tx, service.id)
    if referrers:
        raise InUse(f"service {service.id}", {"services": referrers})


async def set_conditions(work: UnitOfWork, service: ServiceRow, wanted: list[ServiceCondition]) -> ServiceRow:
    """Replaces all conditions. A condition with an unchanged status keeps its `since`."""
    known = {str(each["type"]): each for each in service.conditions}
    conditions: list[dict[str, object]] = []
    for condition in {each.type: each for each in wanted}.values():
        document: dict[str, object] = msgspec.to_builtins(condition)
        before = known.get(condition.type, {})
        same = before.get("status") == condition.status
        document["since"] = before["since"] if same and "since" in before else msgspec.to_builtins(work.now)
        conditions.append(document)
    refuse_large("conditions", conditions, MAX_CONDITIONS_BYTES)
    after = msgspec.structs.replace(service, conditions=conditions)
    if differ_only_in_count(service.conditions, conditions):
        # Not worth an event or a version at every check.
        await store.count_repairs(work.tx, service.id, conditions)
        return after
    definition = await job_chains.definition_of(work, service)
    return await job_chains.save_service(work, ServiceUpdate(before=service, after=after, definition=definition))


async def request_repair(work: UnitOfWork, service: ServiceRow) -> None:
    """The agent repairs the service at once, whatever its blueprint says about drift. There is no job."""
    definition = await job_chains.definition_of(work, service)
    if service.status in definition.lifecycle.terminal_states:
        raise TerminalState(service.status)
    agent = await AGENTS.require(work.tx, service.agent_id)
    if not agent.supports_blueprints:
        raise BadInput(f"agent {agent.name} runs no blueprints, so it compares and repairs nothing")
    await store.request_repair(work.tx, service.id, work.now)
    await work.record_event("service.repair_requested", service, service)


async def measure_uptime(
    work: UnitOfWork, service: ServiceRow, start: datetime | None, end: datetime | None
) -> UptimeView:
    end = min(end or work.now, work.now)
    start = start or max(service.created_at, end - MAX_WINDOW)
    if start > end:
        raise BadInput("start must not be after end")
    lifecycle: Lifecycle = (await job_chains.definition_of(work, service)).lifecycle
    history = [StateEntry(at, state) for at, state in await store.state_history(work.tx, service.id)]
    found = uptime(lifecycle, history, start, end)
    return UptimeView(start, end, found.running.total_seconds(), found.total.total_seconds(), found.share)


@dataclass(frozen=True, slots=True)
class PropertyOrigin:
    set_by: str
    at: datetime
    # The job that set the value, or that was queued to apply it. None: no such job, or it was deleted.
    job: JobName | None


async def read_origins(
    work: UnitOfWork, service: ServiceRow, documents: Mapping[str, Mapping[str, object]], parties: Mapping[str, str]
) -> dict[str, PropertyOrigin]:
    """Provenance in words, by path. `documents` is the stored provenance, `parties` id → name of the participants."""
    times = {path: parse_time(str(each["at"])) for path, each in documents.items()}
    tokens = {str(each["tokenId"]) for each in documents.values() if each.get("tokenId")}
    job_ids = {str(each["jobId"]) for each in documents.values() if each.get("jobId")}
    owners = await read_owners(work.tx, sorted(tokens)[:MAX_ORIGINS])
    # The value and the job of an order have the same time.
    jobs = await find_by_times(
        work.tx, service.id, sorted(set(times.values()))[-MAX_ORIGINS:], sorted(job_ids)[:MAX_ORIGINS]
    )
    by_id, by_time = {job.id: job for job in jobs}, {job.created_at: job for job in jobs}
    return {
        path: PropertyOrigin(
            _origin_words(work, each, owners, parties),
            times[path],
            by_id.get(str(each.get("jobId"))) or by_time.get(times[path]),
        )
        for path, each in documents.items()
    }


def _origin_words(
    work: UnitOfWork, origin: Mapping[str, object], owners: Mapping[str, TokenOwner], parties: Mapping[str, str]
) -> str:
    if origin.get("actor") == Actor.SYSTEM:
        return "default of the type" if origin.get("how") == ValueSource.DEFAULT else "the server"
    owner = owners.get(str(origin.get("tokenId")))
    if owner is None:
        return "the agent" if origin.get("actor") == Actor.AGENT else "a deleted token"
    return initiator_words(work.required_caller, owner.role, owner.name, owner.participant_id, parties)


async def read_provenance(work: UnitOfWork, service: ServiceRow) -> dict[str, dict[str, object]]:
    return await store.read_provenance(work.tx, service.id)
