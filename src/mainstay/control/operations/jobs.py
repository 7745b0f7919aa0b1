"""Jobs: claimed by one, kept alive by a lease, and ended exactly once, whatever comes first.

Whoever changes a job holds its service's row first and the job's second, so that no two wait for each other."""

from __future__ import annotations

import hashlib
import hmac
import secrets
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Annotated

import msgspec

from mainstay.control.access import Role
from mainstay.control.domain.lifecycle import transitions
from mainstay.control.domain.lifecycle.schema import Lifecycle
from mainstay.control.domain.properties.contract import Operation
from mainstay.control.domain.refusals import TerminalState
from mainstay.control.domain.service_types import ServiceTypeDefinition
from mainstay.control.operations.machinery import pool_allocation, runs, secret_sealing
from mainstay.control.operations.machinery.bodies import NO_ZERO, Body, Name, Text
from mainstay.control.operations.machinery.bounds import MAX_INSTANCE_DATA_BYTES, refuse_large
from mainstay.control.operations.machinery.property_decisions import PropertyTarget, accept_properties
from mainstay.control.operations.machinery.refusals import Conflict, InUse, NotPermitted
from mainstay.control.operations.machinery.secret_sealing import Owner
from mainstay.control.operations.machinery.unit_of_work import UnitOfWork
from mainstay.control.store import jobs as store
from mainstay.control.store.engine.records import to_microseconds
from mainstay.control.store.jobs import JOBS, RUNS, JobHold, JobRow, JobStatus, RunRow
from mainstay.control.store.service_pools import values_of_service
from mainstay.control.store.services import ServiceRow, find_for_update, living_referrers
from mainstay.control.store.tokens import hash_token

TIMED_OUT = "job timed out"
NOT_CLAIMED = "job not claimed in time"
LEASE_EXPIRED = "lease expired"
CANCELLED = "cancelled"
SWEEP = 50
NOTICED_WITHIN = timedelta(seconds=2)
WOKEN_AT_ONCE = 10_000

LeaseToken = Annotated[str, msgspec.Meta(max_length=200)]
Short = Annotated[str, msgspec.Meta(max_length=2000, pattern=NO_ZERO)]


class Claim(Body, frozen=True, kw_only=True):
    # None holds the job without a lease, until its action's timeout.
    lease_seconds: Annotated[int, msgspec.Meta(ge=10, le=600)] | None = None
    claim_id: Annotated[str, msgspec.Meta(min_length=8, max_length=200, pattern=NO_ZERO)] | None = None


class Progress(msgspec.Struct, frozen=True, kw_only=True):
    percent: Annotated[float, msgspec.Meta(ge=0, le=100)] | None = None
    text: Short | None = None


class Renewal(Body, frozen=True, kw_only=True):
    lease_token: LeaseToken
    lease_seconds: Annotated[int, msgspec.Meta(ge=10, le=600)] | None = None
    progress: Progress | None = None


class Release(Body, frozen=True, kw_only=True):
    lease_token: LeaseToken | None = None


class Completion(Body, frozen=True, kw_only=True):
    properties: dict[str, object] = {}
    agent_instance_id: Name | None = None
    agent_instance_data: object = None
    report: object = None
    lease_token: LeaseToken | None = None


class FailureReport(Body, frozen=True, kw_only=True):
    error_message: Text = ""
    report: object = None
    lease_token: LeaseToken | None = None


class Renewed(msgspec.Struct, frozen=True, rename="camel"):
    lease_expires_at: datetime
    cancel_requested: bool


@dataclass(frozen=True, slots=True)
class LockedJob:
    """A job with all that belongs to it, locked until the end of the transaction."""

    service: ServiceRow
    job: JobRow
    holding: JobHold
    definition: ServiceTypeDefinition
    pool_set_id: str | None


@dataclass(frozen=True, slots=True)
class Leased:
    lease_token: str
    lease_expires_at: datetime
    job: JobRow


async def _lock_job(work: UnitOfWork, job_id: str, service_id: str) -> LockedJob:
    found = await find_for_update(work.tx, service_id, lock=True)
    held = await store.find_job_with_hold(work.tx, job_id, lock=True)
    if found is None or held is None:
        raise Conflict("the job has just been deleted with its service")
    definition = await work.tools.definitions.read(work.tx, found.service.service_type_id, found.type_version)
    return LockedJob(found.service, *held, definition, found.pool_set_id)


async def claim(work: UnitOfWork, job: JobRow, wanted: Claim) -> Leased | None:
    """None is a claim without a lease."""
    found = await find_for_update(work.tx, job.service_id)
    if found is None:
        raise Conflict("the job has just been deleted with its service")
    definition = await work.tools.definitions.read(work.tx, found.service.service_type_id, found.type_version)
    timeout = _timeout(definition, job)
    if wanted.lease_seconds is None:
        won = await store.claim(work.tx, job.id, work.now, work.now + timeout, None)
        if won is None:
            raise await _not_pending(work, job)
        await work.record_event("job.claimed", "job", job, won)
        return None
    token = _lease_token(job, wanted.claim_id)
    expires = work.now + timedelta(seconds=wanted.lease_seconds)
    lease = (expires, hash_token(token), _kept_claim_id(wanted))
    won = await store.claim(work.tx, job.id, work.now, min(expires, work.now + timeout), lease)
    if won is None:
        return await _same_claim(work, job, wanted, token)
    await work.record_event("job.claimed", "job", job, won)
    return Leased(token, expires, won)


def _timeout(definition: ServiceTypeDefinition, job: JobRow) -> timedelta:
    action = definition.lifecycle.actions.get(job.action)
    return timedelta(seconds=300 if action is None else action.timeout_seconds)


def _lease_token(job: JobRow, claim_id: str | None) -> str:
    """Made from the claim's own name where it has one, so that asking again gives the same without keeping it."""
    if claim_id is None:
        return secrets.token_urlsafe(24)
    return hmac.new(claim_id.encode(), f"{job.id}:{job.attempt}".encode(), hashlib.sha256).hexdigest()


def _kept_claim_id(wanted: Claim) -> str | None:
    """As a hash: from the name itself, whoever reads the database could make the token."""
    return None if wanted.claim_id is None else hash_token(wanted.claim_id)


async def _same_claim(work: UnitOfWork, job: JobRow, wanted: Claim, token: str) -> Leased:
    found = await store.find_job_with_hold(work.tx, job.id)
    if found is not None and wanted.claim_id is not None:
        current, held = found
        if (
            current.status == "Processing"
            and current.lease_expires_at is not None
            and held.claim_id == _kept_claim_id(wanted)
            # Not where the job was put back between the two looks at it: that would be another lease.
            and held.lease_hash == hash_token(token)
        ):
            return Leased(token, current.lease_expires_at, current)
    raise await _not_pending(work, job)


async def _not_pending(work: UnitOfWork, job: JobRow) -> Conflict:
    current = await JOBS.find(work.tx, job.id)
    status = "gone" if current is None else current.status
    return Conflict(f"the job is {status}, so it cannot be claimed", code="not_pending")


def _check_lease(held: LockedJob, token: str | None) -> None:
    """Whoever held the job until his lease ran out may not end what another holds now, with a lease or without."""
    kept = held.holding.lease_hash
    if kept is None and token is None:
        return
    if kept is None or token is None or not hmac.compare_digest(hash_token(token), kept):
        raise Conflict("this lease is no longer yours; drop the job", code="lease_lost")


def _check_processing(held: LockedJob) -> None:
    if held.job.status != "Processing":
        raise Conflict(f"the job is {held.job.status}, not Processing", code="not_processing")


async def renew(work: UnitOfWork, job: JobRow, wanted: Renewal) -> Renewed:
    held = await _lock_job(work, job.id, job.service_id)
    _check_lease(held, wanted.lease_token)
    _check_processing(held)
    current = held.job
    if current.lease_expires_at is None or current.claimed_at is None:
        raise Conflict("the job is held without a lease", code="lease_lost")
    length = current.lease_expires_at - max(current.claimed_at, current.updated_at)
    if wanted.lease_seconds is not None:
        length = timedelta(seconds=wanted.lease_seconds)
    expires = work.now + max(length, timedelta(seconds=10))
    progress = current.progress
    if wanted.progress is not None:
        progress = {name: value for name, value in msgspec.to_builtins(wanted.progress).items() if value is not None}
    after = msgspec.structs.replace(current, lease_expires_at=expires, updated_at=work.now, progress=progress)
    deadline = min(expires, current.claimed_at + _timeout(held.definition, current))
    await JOBS.update(work.tx, after, deadline_at=to_microseconds(deadline))
    return Renewed(expires, current.cancel_requested)


async def release(work: UnitOfWork, job: JobRow, wanted: Release) -> None:
    held = await _lock_job(work, job.id, job.service_id)
    _check_lease(held, wanted.lease_token)
    _check_processing(held)
    if held.job.cancel_requested:
        await _end_badly(work, held, "Cancelled", CANCELLED, outcome=None, report=None)
        return
    await _put_back(work, held, "job.released", attempt=held.job.attempt)


async def _put_back(work: UnitOfWork, held: LockedJob, event: str, *, attempt: int) -> None:
    after = msgspec.structs.replace(
        held.job,
        status="Pending",
        attempt=attempt,
        claimed_at=None,
        lease_expires_at=None,
        progress=None,
        updated_at=work.now,
    )
    action = held.definition.lifecycle.actions.get(held.job.action)
    wait = None if action is None else action.pending_timeout_seconds
    deadline = None if wait is None else to_microseconds(work.now + timedelta(seconds=wait))
    await JOBS.update(work.tx, after, deadline_at=deadline, lease_hash=None, claim_id=None)
    await work.record_event(event, "job", held.job, after)
    work.tx.announce(runs.agent_topic(held.job.agent_id))


async def complete(work: UnitOfWork, job: JobRow, wanted: Completion) -> None:
    held = await _lock_job(work, job.id, job.service_id)
    _check_lease(held, wanted.lease_token)
    told = (wanted.properties, wanted.agent_instance_id, wanted.agent_instance_data)
    outcome = secret_sealing.digest_of(work, "complete", *told)
    if held.job.status == "Completed" and held.holding.outcome == outcome:
        return
    _check_processing(held)
    refuse_large("agentInstanceData", wanted.agent_instance_data, MAX_INSTANCE_DATA_BYTES)
    run = await runs.find_run(work, held.job)
    lifecycle, schema = held.definition.lifecycle, held.definition.properties
    course = transitions.LifecycleRun(run.action, tuple(run.visited))
    step = transitions.after_success(lifecycle, course, held.service.status)
    last = not step.goes_on
    base = held.service.properties if run.properties is None else run.properties
    decided = await accept_properties(work, schema, wanted.properties, _report_setting(held, last=last), base)
    result, _ = await secret_sealing.seal_all(work, decided.accepted, Owner("service", held.service.id))
    reported = runs.origins_of(work, schema, base, decided, held.job.id)
    origins = run.origins | reported
    await _give_back_replaced(work, held.service, decided.accepted.pool_releases, decided.taken_values)
    await secret_sealing.forget(work, decided.accepted.retired_references)
    properties = result if last else runs.overlay(held.service.properties, result, wanted.properties)
    if last:
        await runs.finish_run(work, run)
        if step.to not in lifecycle.terminal_states:
            properties = await runs.drop_ephemeral(work, schema, properties)
    after = msgspec.structs.replace(
        held.service,
        status=step.to,
        properties=properties,
        agent_instance_id=wanted.agent_instance_id or held.service.agent_instance_id,
        agent_instance_data=(
            held.service.agent_instance_data if wanted.agent_instance_data is None else wanted.agent_instance_data
        ),
        blueprint_digest=(last and run.blueprint_digest) or held.service.blueprint_digest,
    )
    # The job first: while it is active no other may be queued for the service.
    await _end_job(work, held, "Completed", None, outcome, wanted.report)
    service = await runs.save_service(
        work, held.service, after, lifecycle, origins=origins if last else reported, schema=schema
    )
    if step.goes_on:
        kept = None if run.properties is None else result
        advanced = transitions.advance(course, step)
        run = msgspec.structs.replace(
            run, visited=list(advanced.visited), properties=kept, origins=origins, updated_at=work.now
        )
        await RUNS.update(work.tx, run)
        params = None if held.job.params is None else (kept if kept is not None else service.properties)
        await runs.queue(work, service, lifecycle, run, params, step=held.job.step + 1)


def _report_setting(held: LockedJob, *, last: bool) -> PropertyTarget:
    service = held.service
    return PropertyTarget(
        Operation.REPORT,
        state=service.status,
        create_run=held.job.action == "create",
        last_step=last,
        service_id=service.id,
        agent_id=service.agent_id,
        pool_set_id=held.pool_set_id,
        provider_id=service.provider_id,
        consumer_id=service.consumer_id,
        group_id=service.group_id,
    )


async def _give_back_replaced(
    work: UnitOfWork, service: ServiceRow, leaving: tuple[object, ...], taken: tuple[str, ...]
) -> None:
    """An agent that may set a pool property has replaced the value there."""
    if not leaving:
        return
    paths = {getattr(take, "path", None) for take in leaving}
    values = await values_of_service(work.tx, service.id)
    await pool_allocation.give_back(
        work, [value for value in values if value.property_name in paths and value.id not in taken]
    )


async def _end_job(
    work: UnitOfWork, held: LockedJob, status: JobStatus, message: str | None, outcome: str | None, report: object
) -> None:
    after = msgspec.structs.replace(
        held.job, status=status, error_message=message, completed_at=work.now, updated_at=work.now
    )
    kept = None if report is None else msgspec.json.encode(report).decode()
    await JOBS.update(work.tx, after, outcome=outcome, report=kept, deadline_at=None)
    await work.record_event(f"job.{status.lower()}", "job", held.job, after)
    # A group that was busy may have more to do.
    work.tx.announce(runs.agent_topic(held.job.agent_id))


async def fail(work: UnitOfWork, job: JobRow, wanted: FailureReport) -> None:
    held = await _lock_job(work, job.id, job.service_id)
    outcome = secret_sealing.digest_of(work, "fail", wanted.error_message)
    _check_lease(held, wanted.lease_token)
    if held.job.status in ("Failed", "Cancelled") and held.holding.outcome == outcome:
        return
    if held.job.status != "Pending":
        _check_processing(held)
    status: JobStatus = "Cancelled" if held.job.cancel_requested else "Failed"
    await _end_badly(work, held, status, wanted.error_message, outcome=outcome, report=wanted.report)


async def _end_badly(
    work: UnitOfWork, held: LockedJob, status: JobStatus, message: str, *, outcome: str | None, report: object
) -> None:
    """The failure path: an error transition if one matches, and whatever was taken for the run is given back."""
    to = transitions.after_failure(held.definition.lifecycle, held.job.action, held.service.status, message)
    await _end_job(work, held, status, message, outcome, report)
    await _abandon(work, held, await runs.find_run(work, held.job), to)


async def _abandon(work: UnitOfWork, held: LockedJob, run: RunRow, to: str | None) -> None:
    await runs.abandon_run(work, run)
    schema, lifecycle = held.definition.properties, held.definition.lifecycle
    properties = await runs.drop_ephemeral(work, schema, held.service.properties)
    after = msgspec.structs.replace(held.service, properties=properties, status=to or held.service.status)
    await runs.save_service(work, held.service, after, lifecycle, schema=schema)


async def cancel(work: UnitOfWork, job: JobRow) -> None:
    """Pending: it is over at once. Processing: the agent is asked, and answers with `fail`."""
    held = await _lock_job(work, job.id, job.service_id)
    if held.job.status == "Pending":
        await _end_job(work, held, "Cancelled", None, None, None)
        await _abandon(work, held, await runs.find_run(work, held.job), None)
        return
    _check_processing(held)
    if not held.job.cancel_requested:
        # `updatedAt` stays: it tells when the lease was last renewed, and so how long it is.
        after = msgspec.structs.replace(held.job, cancel_requested=True)
        await JOBS.update(work.tx, after)
        await work.record_event("job.cancel_requested", "job", held.job, after)


async def wake_agents(work: UnitOfWork) -> None:
    """A notice may get lost between replicas, when one of them ends between a commit and its telling."""
    for agent_id in await store.waited_for_agents(work.tx, work.now - NOTICED_WITHIN, WOKEN_AT_ONCE):
        work.tx.announce(runs.agent_topic(agent_id))


async def time_out_overdue(work: UnitOfWork) -> bool:
    """One of the jobs whose time is up; whether there are more.

    One in each transaction, because whoever holds the pools of one service must not wait for another service. Any of
    them, so that one that cannot be ended does not keep the others waiting."""
    ids = await store.overdue_ids(work.tx, work.now, SWEEP)
    job = await JOBS.find(work.tx, secrets.choice(ids)) if ids else None
    if job is not None:
        await _time_out(work, await _lock_job(work, job.id, job.service_id))
    return len(ids) > 1


async def _time_out(work: UnitOfWork, held: LockedJob) -> None:
    """Judged again under the lock: a completion may have come first."""
    job, deadline = held.job, held.holding.deadline_at
    if deadline is None or deadline > work.now or job.status not in ("Pending", "Processing"):
        return
    if job.status == "Pending":
        await _end_badly(work, held, "Failed", NOT_CLAIMED, outcome=None, report=None)
        return
    action = held.definition.lifecycle.actions.get(job.action)
    over = job.claimed_at is not None and job.claimed_at + _timeout(held.definition, job) <= work.now
    if job.cancel_requested:
        await _end_badly(work, held, "Cancelled", CANCELLED, outcome=None, report=None)
    elif over or job.lease_expires_at is None:
        await _end_badly(work, held, "Failed", TIMED_OUT, outcome=None, report=None)
    elif job.attempt >= (1 if action is None else action.max_attempts):
        await _end_badly(work, held, "Failed", LEASE_EXPIRED, outcome=None, report=None)
    else:
        await _put_back(work, held, "job.requeued", attempt=job.attempt + 1)


async def pending(work: UnitOfWork, limit: int, service_id: str | None) -> list[JobRow]:
    return await store.pending_jobs(work.tx, str(work.required_caller.agent_id), limit, service_id)


async def force_delete(work: UnitOfWork, service: ServiceRow) -> None:
    """Without the agent: the active job is cancelled, and the service comes to its first terminal state."""
    definition = await runs.definition_of(work, service)
    lifecycle = definition.lifecycle
    if service.status in lifecycle.terminal_states:
        raise TerminalState(service.status)
    if work.required_caller.role is not Role.ADMIN and await store.ever_completed(work.tx, service.id):
        raise NotPermitted("only an admin may force the end of a service that an agent has worked on")
    end = _first_terminal(lifecycle)
    if end is None:
        raise Conflict("the lifecycle has no terminal state", code="no_terminal_state")
    referrers = await living_referrers(work.tx, service.id)
    if referrers:
        raise InUse(f"service {service.id}", {"services": referrers})
    active = await store.active_job(work.tx, service.id)
    if active is not None:
        held = await _lock_job(work, active.id, service.id)
        await _end_job(work, held, "Cancelled", None, None, None)
        await runs.abandon_run(work, await runs.find_run(work, held.job))
    after = msgspec.structs.replace(service, status=end)
    await runs.save_service(work, service, after, lifecycle, schema=definition.properties, forced=True)


def _first_terminal(lifecycle: Lifecycle) -> str | None:
    declared = lifecycle.source.get("terminalStates") if isinstance(lifecycle.source, dict) else None
    named = declared if isinstance(declared, list) else list(lifecycle.states)
    return next((state for state in named if state in lifecycle.terminal_states), None)
