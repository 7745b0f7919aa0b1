"""Job chains, the jobs of one order: start, queue the next job, finish or abandon. The end of a chain applies its
changes or releases what they took."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import msgspec

from mainstay.control.domain.conditions import find_in_sync
from mainstay.control.domain.jobs import pending_deadline
from mainstay.control.domain.lifecycle import transitions
from mainstay.control.domain.lifecycle.schema import Lifecycle
from mainstay.control.domain.properties.contract import Actor, SecretKind
from mainstay.control.domain.properties.provenance import provenance
from mainstay.control.domain.properties.schema import PropertySchema
from mainstay.control.domain.properties.traversal import (
    SecretPlace,
    references_in,
    secrets_in,
    values_in,
    without_secrets,
)
from mainstay.control.domain.service_types import ServiceTypeDefinition
from mainstay.control.domain.values import Properties, equal
from mainstay.control.operations.machinery import pool_allocation, secret_sealing
from mainstay.control.operations.machinery.property_decisions import DecidedProperties
from mainstay.control.operations.machinery.unit_of_work import UnitOfWork, new_id
from mainstay.control.store import secrets as secret_store
from mainstay.control.store import services as service_store
from mainstay.control.store.agents import AgentRow
from mainstay.control.store.blueprints import upgrade_target
from mainstay.control.store.engine.contract import Value
from mainstay.control.store.engine.records import to_optional_microseconds
from mainstay.control.store.jobs import JOB_CHAINS, JOBS, JobChainRow, JobRow
from mainstay.control.store.secrets import SecretOwner
from mainstay.control.store.service_pools import held_by
from mainstay.control.store.service_types import find_version
from mainstay.control.store.services import SERVICES, ServiceRow

Origins = dict[str, object]


def secrets_owner(service_id: str) -> SecretOwner:
    return SecretOwner("service", service_id)


def agent_topic(agent_id: str) -> str:
    return f"agent:{agent_id}"


async def definition_of(work: UnitOfWork, service: ServiceRow) -> ServiceTypeDefinition:
    found = await find_version(work.tx, service.service_type_id)
    if found is None:
        raise RuntimeError(f"service {service.id} has no service type")
    return await work.tools.definitions.read(work.tx, service.service_type_id, found.updated_at)


@dataclass(frozen=True, slots=True)
class OrderedChanges:
    """What an order changes when its jobs succeed: the properties, and the pool values and secrets that it takes and
    replaces."""

    # None: the properties stay.
    properties: Properties | None
    decided: DecidedProperties | None = None
    new_secrets: tuple[SecretPlace, ...] = ()
    origins: Mapping[str, object] | None = None
    # The bundle that the service gets. None: the blueprint decides by the action.
    blueprint_digest: str | None = None

    @property
    def taken_values(self) -> list[str]:
        return [] if self.decided is None else list(self.decided.taken_values)


@dataclass(frozen=True, slots=True)
class NextJob:
    """What the next job of a chain adds to it. `is_move`: the job creates the service on another agent."""

    step: int
    params: Properties | None
    is_move: bool = False
    # The service that must be there before the job starts. None: none.
    waiting_for: str | None = None


async def start(
    work: UnitOfWork,
    service: ServiceRow,
    lifecycle: Lifecycle,
    action: str,
    params: Properties | None,
    changes: OrderedChanges,
    *,
    has_references: bool,
) -> JobRow:
    """Queues the first job. A unique index refuses a second active job. A `create` waits for the services that its
    service refers to."""
    started = transitions.begin(lifecycle, action, service.status)
    retired = changes.decided.accepted.retired_secrets if changes.decided else ()
    chain = await _insert(work, service, started, changes, retired)
    awaited = await find_awaited(work, service.id, hold=True) if has_references and action == "create" else None
    return await queue(work, service, lifecycle, chain, NextJob(1, params, waiting_for=awaited))


async def find_awaited(work: UnitOfWork, service_id: str, *, hold: bool) -> str | None:
    """The first service that this one refers to and that has not left its initial state."""
    for found in await service_store.referred_states(work.tx, service_id, hold=hold):
        definition = await work.tools.definitions.read(work.tx, found.service_type_id, found.type_version)
        if found.status == definition.lifecycle.initial_state:
            return found.id
    return None


async def start_move(
    work: UnitOfWork, service: ServiceRow, lifecycle: Lifecycle, target: AgentRow, changes: OrderedChanges
) -> JobRow:
    """Queues the job that creates the service on another agent. Until it completes the service stays as it is.

    Replaced secrets are not retired: the orphan on the old agent gets them, as it gets the replaced pool values."""
    started = transitions.ActionProgress("create", (service.status,))
    chain = await _insert(work, service, started, changes, retired=())
    placed = msgspec.structs.replace(service, agent_id=target.id, provider_id=target.provider_id)
    return await queue(work, placed, lifecycle, chain, NextJob(1, changes.properties, is_move=True))


async def _insert(
    work: UnitOfWork,
    service: ServiceRow,
    started: transitions.ActionProgress,
    changes: OrderedChanges,
    retired: Sequence[SecretPlace],
) -> JobChainRow:
    chain = JobChainRow(
        id=new_id(),
        created_at=work.now,
        updated_at=work.now,
        service_id=service.id,
        action=started.action,
        visited=list(started.visited),
        properties=changes.properties,
        origins=dict(changes.origins or {}),
        taken_values=changes.taken_values,
        new_secrets=list(changes.new_secrets),
        released_values=await _replaced_values(work, service, changes.decided),
        retired_secrets=list(retired),
        blueprint_digest=await _bundle_after(work, service, started.action, changes),
    )
    await JOB_CHAINS.insert(work.tx, chain)
    return chain


async def _bundle_after(work: UnitOfWork, service: ServiceRow, action: str, changes: OrderedChanges) -> str | None:
    """None: the chain does not change the bundle. A new service already has the current one."""
    if changes.blueprint_digest is not None or action == "create":
        return changes.blueprint_digest
    return await upgrade_target(work.tx, service.service_type_id, action)


async def _replaced_values(work: UnitOfWork, service: ServiceRow, decided: DecidedProperties | None) -> list[str]:
    if decided is None or not decided.accepted.pool_releases:
        return []
    leaving = {take.path: take.value for take in decided.accepted.pool_releases}
    return [
        value.id
        for value in await held_by(work.tx, service.id)
        if value.id not in decided.taken_values
        and value.property_name in leaving
        and equal(value.value, leaving[value.property_name])
    ]


async def queue(
    work: UnitOfWork, service: ServiceRow, lifecycle: Lifecycle, chain: JobChainRow, following: NextJob
) -> JobRow:
    job = JobRow(
        id=new_id(),
        created_at=work.now,
        updated_at=work.now,
        action=chain.action,
        params=following.params,
        run_id=chain.id,
        step=following.step,
        blueprint_digest=chain.blueprint_digest or service.blueprint_digest,
        plan_digest=None if work.planned is None else work.planned.host,
        is_move=following.is_move,
        waiting_for=following.waiting_for,
        agent_id=service.agent_id,
        service_id=service.id,
        provider_id=service.provider_id,
        consumer_id=service.consumer_id,
    )
    # A job that waits for another service cannot be claimed; its time begins when it may be.
    due = None if following.waiting_for else pending_deadline(lifecycle, chain.action, work.now)
    deadline = to_optional_microseconds(due)
    await work.insert(JOBS, job, group_id=service.group_id, deadline_at=deadline)
    work.tx.announce(agent_topic(service.agent_id))
    return job


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceUpdate:
    """A change of a service: its row before and after, and what the row does not show."""

    before: ServiceRow
    after: ServiceRow
    definition: ServiceTypeDefinition
    # Origins of the values that are set now, by path. They replace the known ones.
    new_origins: Mapping[str, object] = field(default_factory=dict)
    # The job whose end causes the update; None for a request.
    ended_job: JobRow | None = None
    # The service is deleted without its agent.
    is_forced: bool = False
    # An orphan needs the pool values and secrets; `operations/orphans.py` releases them when it is closed.
    keeps_holdings: bool = False

    @property
    def enters_state(self) -> bool:
        return self.after.status != self.before.status

    @property
    def ends(self) -> bool:
        return self.after.status in self.definition.lifecycle.terminal_states


async def save_service(work: UnitOfWork, update: ServiceUpdate) -> ServiceRow:
    """Saves the service, records the event, and releases its holdings when it reaches a terminal state."""
    before, after, ended_job = update.before, update.after, update.ended_job
    if update.ends and update.enters_state and not update.keeps_holdings:
        after = await release_holdings(work, after, update.definition.properties)
    failed_job: dict[str, str | None] = {}
    if ended_job is not None:
        failed_job["failed_job_id"] = ended_job.id if ended_job.status == "Failed" else None
    if after == before:
        if failed_job:
            await service_store.note_failure(work.tx, before.id, failed_job["failed_job_id"])
        return before
    after = msgspec.structs.replace(after, updated_at=work.now, version=before.version + 1)
    hidden: dict[str, Value] = {
        "is_terminal": int(update.ends),
        "drifted": int(not update.ends and find_in_sync(after.conditions).get("status") == "False"),
        **failed_job,
    }
    if update.new_origins or not equal(after.properties, before.properties):
        schema = update.definition.properties
        hidden["provenance"] = await _merged_origins(work, after, update.new_origins, schema)
        await service_store.set_references(work.tx, after.id, references_in(schema, after.properties))
    await SERVICES.update(work.tx, after, **hidden)
    if update.enters_state:
        await service_store.note_state(work.tx, after.id, after.status, work.now)
    await _record_update(work, update, after)
    return after


async def _record_update(work: UnitOfWork, update: ServiceUpdate, after: ServiceRow) -> None:
    before, more = update.before, {"forced": True} if update.is_forced else {}
    if after.agent_id != before.agent_id:
        await work.record_event("service.moved", _without_host(before), after, **more)
    else:
        await work.record_event(
            "service.transitioned" if update.enters_state else "service.updated", before, after, **more
        )


def _without_host(service: ServiceRow) -> ServiceRow:
    """Without what the old agent stored: the provider of the new one reads the event."""
    return msgspec.structs.replace(service, agent_instance_id=None, agent_instance_data=None, conditions=[])


async def _merged_origins(
    work: UnitOfWork, service: ServiceRow, origins: Mapping[str, object], schema: PropertySchema
) -> str:
    known = {**await service_store.read_provenance(work.tx, service.id), **origins}
    present = {value.path for value in values_in(schema, service.properties)}
    return msgspec.json.encode({path: origin for path, origin in known.items() if path in present}).decode()


async def release_holdings(work: UnitOfWork, service: ServiceRow, schema: PropertySchema) -> ServiceRow:
    """Releases pool values, deletes secrets, and frees the instance id."""
    await pool_allocation.release(work, await held_by(work.tx, service.id))
    await secret_store.delete_of(work.tx, "service", service.id)
    properties = without_secrets(schema, service.properties, SecretKind.PERSISTENT, SecretKind.EPHEMERAL)
    await service_store.set_references(work.tx, service.id, [])
    return msgspec.structs.replace(service, properties=properties, agent_instance_id=None)


def origins_of(
    work: UnitOfWork, schema: PropertySchema, before: Properties, decided: DecidedProperties, job_id: str | None
) -> Origins:
    """The origin of each changed value, in its JSON form."""
    caller = work.caller
    found = provenance(schema, before, decided.accepted, decided.actor)
    return {
        path: {
            "actor": str(origin.actor),
            "how": str(origin.how),
            "at": work.now,
            "jobId": job_id,
            "tokenId": None if caller is None or origin.actor is Actor.SYSTEM else caller.token_id,
        }
        for path, origin in found.items()
    }


async def drop_ephemeral(
    work: UnitOfWork, service_id: str, schema: PropertySchema, properties: Properties
) -> Properties:
    """Deletes ephemeral secrets, at every end of a chain."""
    if not schema.has_secrets:
        return properties
    leaving = [place for place in secrets_in(schema, properties) if place.kind is SecretKind.EPHEMERAL]
    await secret_sealing.forget(work, secrets_owner(service_id), leaving)
    return without_secrets(schema, properties, SecretKind.EPHEMERAL)


async def finish(work: UnitOfWork, chain: JobChainRow) -> None:
    """After success: gives back the replaced pool values and secrets."""
    await pool_allocation.release_by_id(work, chain.released_values)
    await secret_sealing.forget_recorded(work, secrets_owner(chain.service_id), chain.retired_secrets)


async def abandon(work: UnitOfWork, chain: JobChainRow, *, keep_values: bool = False) -> None:
    """After any other end: gives back the pool values and secrets taken for the chain."""
    if not keep_values:
        await pool_allocation.release_by_id(work, chain.taken_values)
    await secret_sealing.forget_recorded(work, secrets_owner(chain.service_id), chain.new_secrets)


async def changes_properties(work: UnitOfWork, job: JobRow, service: ServiceRow) -> bool:
    """Whether the chain of this job will change the properties of the service."""
    chain = await JOB_CHAINS.find(work.tx, job.run_id)
    return chain is not None and chain.properties is not None and not equal(chain.properties, service.properties)


def overlay(target: Properties, result: Properties, given: Mapping[str, object]) -> Properties:
    """`target`, with the values of `result` at the paths that `given` contains."""
    merged = dict(target)
    for name, value in given.items():
        new, old = result.get(name), merged.get(name)
        if isinstance(value, dict) and isinstance(new, dict) and isinstance(old, dict):
            merged[name] = overlay(old, new, value)
        elif new is None:
            merged.pop(name, None)
        else:
            merged[name] = new
    return merged
