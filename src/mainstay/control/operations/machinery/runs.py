"""Runs: start, queue the next job, finish or abandon. The end of a run applies its changes or gives them back."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import msgspec

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
from mainstay.control.store.jobs import JOBS, RUNS, JobRow, RunRow
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
class RunPlan:
    """The changes of a run: the properties after it, and the pool values and secrets it takes and replaces."""

    properties: Properties | None
    decided: DecidedProperties | None = None
    new_secrets: tuple[SecretPlace, ...] = ()
    origins: Mapping[str, object] | None = None
    # The bundle that the service gets with the run; None: the one that the blueprint says for this action.
    blueprint_digest: str | None = None


async def start(
    work: UnitOfWork, service: ServiceRow, lifecycle: Lifecycle, action: str, params: Properties | None, plan: RunPlan
) -> JobRow:
    """Queues the first job. A unique index refuses a second active job."""
    started = transitions.begin(lifecycle, action, service.status)
    run = RunRow(
        id=new_id(),
        created_at=work.now,
        updated_at=work.now,
        service_id=service.id,
        action=action,
        visited=list(started.visited),
        properties=plan.properties,
        origins=dict(plan.origins or {}),
        taken_values=list(plan.decided.taken_values) if plan.decided else [],
        new_secrets=list(plan.new_secrets),
        released_values=await _replaced_values(work, service, plan.decided),
        retired_secrets=list(plan.decided.accepted.retired_secrets) if plan.decided else [],
        blueprint_digest=await _bundle_after(work, service, action, plan),
    )
    await RUNS.insert(work.tx, run)
    return await queue(work, service, lifecycle, run, params, step=1)


async def start_move(
    work: UnitOfWork, service: ServiceRow, lifecycle: Lifecycle, target: AgentRow, plan: RunPlan
) -> JobRow:
    """Queues the job that creates the service on another agent. Until it completes the service stays as it is."""
    run = RunRow(
        id=new_id(),
        created_at=work.now,
        updated_at=work.now,
        service_id=service.id,
        action="create",
        visited=[service.status],
        properties=plan.properties,
        origins=dict(plan.origins or {}),
        taken_values=list(plan.decided.taken_values) if plan.decided else [],
        new_secrets=[],
        # Not given back: the orphan on the old agent gets them.
        released_values=await _replaced_values(work, service, plan.decided),
        retired_secrets=[],
    )
    await RUNS.insert(work.tx, run)
    placed = msgspec.structs.replace(service, agent_id=target.id, provider_id=target.provider_id)
    return await queue(work, placed, lifecycle, run, plan.properties, step=1, is_move=True)


async def _bundle_after(work: UnitOfWork, service: ServiceRow, action: str, plan: RunPlan) -> str | None:
    """None: the run does not change the bundle. A new service already has the current one."""
    if plan.blueprint_digest is not None or action == "create":
        return plan.blueprint_digest
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
    work: UnitOfWork,
    service: ServiceRow,
    lifecycle: Lifecycle,
    run: RunRow,
    params: Properties | None,
    *,
    step: int,
    is_move: bool = False,
) -> JobRow:
    job = JobRow(
        id=new_id(),
        created_at=work.now,
        updated_at=work.now,
        action=run.action,
        params=params,
        run_id=run.id,
        step=step,
        blueprint_digest=run.blueprint_digest or service.blueprint_digest,
        plan_digest=None if work.planned is None else work.planned.host,
        is_move=is_move,
        agent_id=service.agent_id,
        service_id=service.id,
        provider_id=service.provider_id,
        consumer_id=service.consumer_id,
    )
    deadline = to_optional_microseconds(pending_deadline(lifecycle, run.action, work.now))
    await work.insert(JOBS, job, group_id=service.group_id, deadline_at=deadline)
    work.tx.announce(agent_topic(service.agent_id))
    return job


async def save_service(
    work: UnitOfWork,
    before: ServiceRow,
    after: ServiceRow,
    lifecycle: Lifecycle,
    *,
    origins: Mapping[str, object] | None = None,
    schema: PropertySchema | None = None,
    forced: bool = False,
    ended_job: JobRow | None = None,
    keep_holdings: bool = False,
) -> ServiceRow:
    """Saves the service, records the event, and releases its holdings when it reaches a terminal state. `ended_job` is
    the job whose end causes this; None: none.

    `keep_holdings`: an orphan needs them, and `operations/orphans.py` releases them when it is closed."""
    ended = after.status in lifecycle.terminal_states
    moved = after.status != before.status
    if ended and moved and not keep_holdings:
        after = await release_holdings(work, after, schema)
    failure = {} if ended_job is None else {"failed_job_id": ended_job.id if ended_job.status == "Failed" else None}
    if after == before:
        if failure:
            await service_store.note_failure(work.tx, before.id, failure["failed_job_id"])
        return before
    after = msgspec.structs.replace(after, updated_at=work.now, version=before.version + 1)
    hidden: dict[str, Value] = {
        "is_terminal": int(ended),
        "drifted": int(not ended and _is_drifted(after.conditions)),
        **failure,
    }
    if not equal(after.properties, before.properties) or origins:
        hidden["provenance"] = await _merged_origins(work, after, origins or {}, schema)
        if schema is not None:
            await service_store.set_references(work.tx, after.id, references_in(schema, after.properties))
    await SERVICES.update(work.tx, after, **hidden)
    if moved:
        await service_store.note_state(work.tx, after.id, after.status, work.now)
    more = {"forced": True} if forced else {}
    if after.agent_id != before.agent_id:
        await work.record_event("service.moved", _without_host(before), after, **more)
    else:
        await work.record_event("service.transitioned" if moved else "service.updated", before, after, **more)
    return after


def _without_host(service: ServiceRow) -> ServiceRow:
    """Without what the old agent stored: the provider of the new one reads the event."""
    return msgspec.structs.replace(service, agent_instance_id=None, agent_instance_data=None, conditions=[])


def _is_drifted(conditions: Sequence[Mapping[str, object]]) -> bool:
    return any(each.get("type") == "InSync" and each.get("status") == "False" for each in conditions)


async def _merged_origins(
    work: UnitOfWork, service: ServiceRow, origins: Mapping[str, object], schema: PropertySchema | None
) -> str:
    known: dict[str, object] = dict(await service_store.read_provenance(work.tx, service.id))
    known |= origins
    if schema is not None:
        present = {value.path for value in values_in(schema, service.properties)}
        known = {path: origin for path, origin in known.items() if path in present}
    return msgspec.json.encode(known).decode()


async def release_holdings(work: UnitOfWork, service: ServiceRow, schema: PropertySchema | None) -> ServiceRow:
    """Gives back pool values, deletes secrets, and frees the instance id."""
    await pool_allocation.give_back(work, await held_by(work.tx, service.id))
    await secret_store.delete_of(work.tx, "service", service.id)
    properties = service.properties
    if schema is not None:
        properties = without_secrets(schema, properties, SecretKind.PERSISTENT, SecretKind.EPHEMERAL)
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
    """Deletes ephemeral secrets, at every end of a run."""
    if not schema.has_secrets:
        return properties
    leaving = [place for place in secrets_in(schema, properties) if place.kind is SecretKind.EPHEMERAL]
    await secret_sealing.forget(work, secrets_owner(service_id), leaving)
    return without_secrets(schema, properties, SecretKind.EPHEMERAL)


async def finish_run(work: UnitOfWork, run: RunRow) -> None:
    """After success: gives back the replaced pool values and secrets."""
    await pool_allocation.give_back_by_id(work, run.released_values)
    await secret_sealing.forget_recorded(work, secrets_owner(run.service_id), run.retired_secrets)


async def abandon_run(work: UnitOfWork, run: RunRow, *, keep_values: bool = False) -> None:
    """After any other end: gives back the pool values and secrets taken for the run."""
    if not keep_values:
        await pool_allocation.give_back_by_id(work, run.taken_values)
    await secret_sealing.forget_recorded(work, secrets_owner(run.service_id), run.new_secrets)


async def changes_properties(work: UnitOfWork, job: JobRow, service: ServiceRow) -> bool:
    """Whether the run of this job will change the properties of the service."""
    run = await RUNS.find(work.tx, job.run_id)
    return run is not None and run.properties is not None and not equal(run.properties, service.properties)


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
