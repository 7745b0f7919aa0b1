"""Jobs: claimed by an agent, held by a lease, ended exactly once. `domain/jobs.py` decides, this module applies.

Lock order: the row of the service, then of the job, then of the job chain."""

from __future__ import annotations

import hashlib
import hmac
import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import reduce
from typing import Annotated

import msgspec

from mainstay.control.access import Role
from mainstay.control.domain import jobs as decide
from mainstay.control.domain.faults import PathFault, locate
from mainstay.control.domain.jobs import Advance, EndJob, JobFacts, JobStatus, NotDue, RequestCancel, Requeue
from mainstay.control.domain.lifecycle.schema import Lifecycle
from mainstay.control.domain.orphans import LeaveOrphan, on_forced_delete
from mainstay.control.domain.properties.compile import PLAIN_REFERENCE
from mainstay.control.domain.properties.contract import Operation, PropertyTarget
from mainstay.control.domain.properties.evaluation import PoolTake
from mainstay.control.domain.refusals import NotPending, TerminalState
from mainstay.control.domain.service_types import ServiceTypeDefinition
from mainstay.control.domain.values import Properties
from mainstay.control.operations import moves, orphans
from mainstay.control.operations.machinery import job_chains, pool_allocation, secret_sealing
from mainstay.control.operations.machinery.bodies import NO_ZERO, AgentProtocolBody, ShortText, failure_to_store
from mainstay.control.operations.machinery.bounds import MAX_INSTANCE_DATA_BYTES, refuse_unusable
from mainstay.control.operations.machinery.job_chains import NextJob, ServiceUpdate
from mainstay.control.operations.machinery.property_decisions import accept_properties
from mainstay.control.operations.machinery.refusals import Conflict, InvalidProperties, NotPermitted
from mainstay.control.operations.machinery.unit_of_work import UnitOfWork
from mainstay.control.operations.machinery.views import JobView, show_jobs
from mainstay.control.operations.services import refuse_if_referenced
from mainstay.control.store import jobs as store
from mainstay.control.store.agents import AGENTS
from mainstay.control.store.engine.contract import encode_json, encode_optional
from mainstay.control.store.engine.records import to_microseconds, to_optional_microseconds
from mainstay.control.store.jobs import JOB_CHAINS, JOBS, JobChainRow, JobHold, JobRow, LoggedProgress
from mainstay.control.store.orphans import holds_instance
from mainstay.control.store.service_pools import held_by
from mainstay.control.store.services import ServiceRow, find_for_update
from mainstay.control.store.tokens import hash_token
from mainstay.foundation.vault import reference_path

OVERDUE_CANDIDATES = 50
ANNOUNCE_AGAIN_AFTER = timedelta(seconds=2)
MAX_ANNOUNCED = 10_000
# Bounds of the stored messages about the progress of a job.
MAX_LOGGED = 100
MAX_LOGGED_TEXT = 500

LeaseToken = Annotated[str, msgspec.Meta(max_length=200, pattern=NO_ZERO)]
Short = Annotated[str, msgspec.Meta(max_length=2000, pattern=NO_ZERO)]


class Claim(AgentProtocolBody, frozen=True, kw_only=True):
    # None holds the job without a lease, until its action's timeout.
    lease_seconds: Annotated[int, msgspec.Meta(ge=10, le=600)] | None = None
    claim_id: Annotated[str, msgspec.Meta(min_length=8, max_length=200, pattern=NO_ZERO)] | None = None


class Progress(msgspec.Struct, frozen=True, kw_only=True):
    percent: Annotated[float, msgspec.Meta(ge=0, le=100)] | None = None
    text: Short | None = None


class Renewal(AgentProtocolBody, frozen=True, kw_only=True):
    lease_token: LeaseToken
    lease_seconds: Annotated[int, msgspec.Meta(ge=10, le=600)] | None = None
    progress: Progress | None = None


class Release(AgentProtocolBody, frozen=True, kw_only=True):
    lease_token: LeaseToken | None = None


class Completion(AgentProtocolBody, frozen=True, kw_only=True):
    properties: dict[str, object] = {}
    agent_instance_id: ShortText | None = None
    agent_instance_data: object = None
    report: object = None
    lease_token: LeaseToken | None = None


class FailureReport(AgentProtocolBody, frozen=True, kw_only=True):
    # Shortened, never refused.
    error_message: str = ""
    report: object = None
    lease_token: LeaseToken | None = None


class Renewed(msgspec.Struct, frozen=True, rename="camel"):
    lease_expires_at: datetime
    cancel_requested: bool


@dataclass(frozen=True, slots=True)
class LockedJob:
    """A job with its service, locked until the end of the transaction."""

    service: ServiceRow
    job: JobRow
    holding: JobHold
    definition: ServiceTypeDefinition
    # The pools of the agent that has the job.
    pool_set_id: str | None

    @property
    def facts(self) -> JobFacts:
        job, holding = self.job, self.holding
        return JobFacts(
            lifecycle=self.definition.lifecycle,
            state=self.service.status,
            action=job.action,
            status=job.status,
            step=job.step,
            attempt=job.attempt,
            cancel_requested=job.cancel_requested,
            claimed_at=job.claimed_at,
            updated_at=job.updated_at,
            lease_expires_at=job.lease_expires_at,
            lease_hash=holding.lease_hash,
            deadline_at=holding.deadline_at,
            outcome=holding.outcome,
            is_move=job.is_move,
        )


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
    pool_set_id = found.pool_set_id
    if held[0].is_move:
        pool_set_id = (await AGENTS.require(work.tx, held[0].agent_id)).service_pool_set_id
    return LockedJob(found.service, *held, definition, pool_set_id)


async def claim(work: UnitOfWork, job: JobRow, wanted: Claim) -> Leased | None:
    """None is a claim without a lease."""
    found = await find_for_update(work.tx, job.service_id)
    if found is None:
        raise Conflict("the job has just been deleted with its service")
    definition = await work.tools.definitions.read(work.tx, found.service.service_type_id, found.type_version)
    expires = None if wanted.lease_seconds is None else work.now + timedelta(seconds=wanted.lease_seconds)
    deadline = decide.hold_deadline(definition.lifecycle, job.action, work.now, expires)
    if expires is None:
        won = await store.claim(work.tx, job.id, work.now, deadline, None)
        if won is None:
            raise await _not_pending(work, job)
        await work.record_event("job.claimed", job, won)
        return None
    token = _lease_token(job, wanted.claim_id)
    lease = (expires, hash_token(token), _hash_of(wanted.claim_id))
    won = await store.claim(work.tx, job.id, work.now, deadline, lease)
    if won is None:
        return await _repeat_claim(work, job, wanted, token)
    await work.record_event("job.claimed", job, won)
    return Leased(token, expires, won)


def _lease_token(job: JobRow, claim_id: str | None) -> str:
    """Derived from the claim id if there is one: a repeated claim gets the same token without storing it."""
    if claim_id is None:
        return secrets.token_urlsafe(24)
    return hmac.new(claim_id.encode(), f"{job.id}:{job.attempt}".encode(), hashlib.sha256).hexdigest()


def _hash_of(secret: str | None) -> str | None:
    """Hashes a lease token, or a claim id, from which the token can be derived: the database must reveal neither."""
    return None if secret is None else hash_token(secret)


async def _repeat_claim(work: UnitOfWork, job: JobRow, wanted: Claim, token: str) -> Leased:
    found = await store.find_job_with_hold(work.tx, job.id)
    if found is not None and wanted.claim_id is not None:
        current, held = found
        if (
            current.status == "Processing"
            and current.lease_expires_at is not None
            and held.claim_id == _hash_of(wanted.claim_id)
            # Differs if the job was requeued between the two reads: that would be another lease.
            and held.lease_hash == hash_token(token)
        ):
            return Leased(token, current.lease_expires_at, current)
    raise await _not_pending(work, job)


async def _not_pending(work: UnitOfWork, job: JobRow) -> NotPending:
    current = await JOBS.find(work.tx, job.id)
    if current is not None and current.status == "Pending" and current.waiting_for is not None:
        return NotPending(f"waiting for service {current.waiting_for}")
    return NotPending("gone" if current is None else current.status)


async def renew(work: UnitOfWork, job: JobRow, wanted: Renewal) -> Renewed:
    held = await _lock_job(work, job.id, job.service_id)
    decision = decide.on_renewal(held.facts, hash_token(wanted.lease_token), wanted.lease_seconds, work.now)
    progress = held.job.progress
    if wanted.progress is not None:
        progress = {name: value for name, value in msgspec.to_builtins(wanted.progress).items() if value is not None}
    expires = decision.lease_expires_at
    after = msgspec.structs.replace(held.job, lease_expires_at=expires, updated_at=work.now, progress=progress)
    log = encode_json(_log_progress(held, wanted.progress, work.now))
    await JOBS.update(work.tx, after, deadline_at=to_microseconds(decision.deadline_at), progress_log=log)
    return Renewed(expires, held.job.cancel_requested)


def _log_progress(held: LockedJob, progress: Progress | None, now: datetime) -> list[LoggedProgress]:
    known = held.holding.progress_log
    text = "" if progress is None or progress.text is None else progress.text[:MAX_LOGGED_TEXT]
    last = known[-1] if known else None
    if not text or (last is not None and (last.attempt, last.text) == (held.job.attempt, text)):
        return known
    return [*known, LoggedProgress(now, held.job.attempt, text)][-MAX_LOGGED:]


async def release(work: UnitOfWork, job: JobRow, wanted: Release) -> None:
    held = await _lock_job(work, job.id, job.service_id)
    await _apply(work, held, decide.on_release(held.facts, _hash_of(wanted.lease_token)))


async def _apply(work: UnitOfWork, held: LockedJob, decision: EndJob | Requeue) -> None:
    if isinstance(decision, EndJob):
        await _end_unsuccessfully(work, held, decision)
    else:
        await _requeue(work, held, decision)


async def _requeue(work: UnitOfWork, held: LockedJob, decision: Requeue) -> None:
    after = msgspec.structs.replace(
        held.job,
        status="Pending",
        attempt=decision.attempt,
        claimed_at=None,
        lease_expires_at=None,
        progress=None,
        updated_at=work.now,
    )
    deadline = decide.pending_deadline(held.definition.lifecycle, held.job.action, work.now)
    await JOBS.update(work.tx, after, deadline_at=to_optional_microseconds(deadline), lease_hash=None, claim_id=None)
    await work.record_event(decision.event_type, held.job, after)
    work.tx.announce(job_chains.agent_topic(held.job.agent_id))


async def complete(work: UnitOfWork, job: JobRow, wanted: Completion) -> None:
    held = await _lock_job(work, job.id, job.service_id)
    reported = (wanted.properties, wanted.agent_instance_id, wanted.agent_instance_data)
    outcome = secret_sealing.digest_of(work, "complete", *reported)
    if decide.on_completion(held.facts, _hash_of(wanted.lease_token), outcome) is not None:
        return
    refuse_unusable("agentInstanceData", wanted.agent_instance_data, MAX_INSTANCE_DATA_BYTES)
    _refuse_references(wanted.agent_instance_data)
    await _refuse_held_instance(work, held, wanted)
    chain, is_referenced = await store.lock_chain(work.tx, held.job.run_id, held.service.id)
    advance = decide.advance(held.facts, chain.visited)
    if held.job.is_move:
        chain = await moves.leave_old_agent(work, held.service, chain, held.definition.properties)
    merged = await _merge_report(work, held, chain, wanted, advance)
    # The job first: while it is active no other may be queued for the service.
    ended = await _end_job(work, held, "Completed", None, outcome, wanted.report)
    update = ServiceUpdate(
        before=held.service,
        after=_service_after(held, chain, wanted, advance, merged.service_properties),
        definition=held.definition,
        new_origins=merged.service_origins,
        ended_job=ended,
    )
    service = await job_chains.save_service(work, update)
    if advance.next_step is not None:
        await _queue_next(work, held, service, chain, advance, merged)
    if is_referenced and update.ends:
        await _cancel_waiting(work, service, None)
    elif is_referenced and held.service.status == held.definition.lifecycle.initial_state != service.status:
        await _release_waiting(work, service)


async def _release_waiting(work: UnitOfWork, service: ServiceRow) -> None:
    """The service has left its initial state: jobs that wait for it may start, unless they wait for another one too."""
    for job_id, service_id in await store.waiting_jobs(work.tx, service.id):
        held = await _lock_job(work, job_id, service_id)
        if held.job.status != "Pending" or held.job.waiting_for is None:
            continue
        # Without locks on the other services: each of them locks this job before it looks, so the last one sees all.
        awaited = await job_chains.find_awaited(work, service_id, hold=False)
        after = msgspec.structs.replace(held.job, waiting_for=awaited, updated_at=work.now)
        if awaited is not None:
            await JOBS.update(work.tx, after)
            continue
        deadline = decide.pending_deadline(held.definition.lifecycle, held.job.action, work.now)
        await JOBS.update(work.tx, after, deadline_at=to_optional_microseconds(deadline))
        await work.record_event("job.ready", held.job, after)
        work.tx.announce(job_chains.agent_topic(held.job.agent_id))


async def _cancel_waiting(work: UnitOfWork, service: ServiceRow, message: str | None) -> None:
    """The service will not be there: cancels the jobs that wait for it, and so those that wait for their services.
    `message` None: no failure says why."""
    for job_id, service_id in await store.waiting_jobs(work.tx, service.id):
        held = await _lock_job(work, job_id, service_id)
        if held.job.status != "Pending" or held.job.waiting_for is None:
            continue
        is_own = held.service.consumer_id == service.consumer_id and held.service.provider_id == service.provider_id
        name = service.name if is_own else service.id
        why = decide.awaited_is_missing(name, message if is_own else None)
        await _end_unsuccessfully(work, held, EndJob("Cancelled", why, held.service.status))


async def _refuse_held_instance(work: UnitOfWork, held: LockedJob, wanted: Completion) -> None:
    """An orphan of a move keeps its instance id on its agent, where the database sees no service with it."""
    instance_id = wanted.agent_instance_id
    if instance_id is not None and await holds_instance(work.tx, held.job.agent_id, instance_id):
        raise Conflict(
            f"agentInstanceId {instance_id} belongs to a clean-up that this agent owes, until it is confirmed",
            code="duplicate",
        )


def _refuse_references(instance_data: object) -> None:
    found = reference_path(instance_data)
    if found is not None:
        raise InvalidProperties([PathFault(reduce(locate, found, "agentInstanceData"), PLAIN_REFERENCE)])


@dataclass(frozen=True, slots=True)
class _MergedReport:
    """The properties and origins after a report, for the chain and for the service.

    They differ until the last step: only then does the service get what the chain was ordered with."""

    chain_properties: Properties
    chain_origins: job_chains.Origins
    service_properties: Properties
    service_origins: job_chains.Origins


async def _merge_report(
    work: UnitOfWork, held: LockedJob, chain: JobChainRow, wanted: Completion, advance: Advance
) -> _MergedReport:
    """Accepts the reported properties, and gives back pool values and secrets that are no longer used."""
    lifecycle, schema = held.definition.lifecycle, held.definition.properties
    last = advance.next_step is None
    base = held.service.properties if chain.properties is None else chain.properties
    decided = await accept_properties(work, schema, wanted.properties, _report_target(held, last=last), base)
    result, _ = await secret_sealing.seal_all(work, decided.accepted, job_chains.secrets_owner(held.service.id))
    reported = job_chains.origins_of(work, schema, base, decided, held.job.id)
    origins = chain.origins | reported
    await _release_replaced(work, held.service, decided.accepted.pool_releases, decided.taken_values)
    await secret_sealing.forget(work, job_chains.secrets_owner(held.service.id), decided.accepted.retired_secrets)
    if not last:
        merged = job_chains.overlay(held.service.properties, result, wanted.properties)
        return _MergedReport(result, origins, merged, reported)
    await job_chains.finish(work, chain)
    if advance.to not in lifecycle.terminal_states:
        result = await job_chains.drop_ephemeral(work, held.service.id, schema, result)
    return _MergedReport(result, origins, result, origins)


def _service_after(
    held: LockedJob, chain: JobChainRow, wanted: Completion, advance: Advance, properties: Properties
) -> ServiceRow:
    service = held.service
    if held.job.is_move:
        return msgspec.structs.replace(
            service,
            agent_id=held.job.agent_id,
            provider_id=held.job.provider_id,
            properties=properties,
            agent_instance_id=wanted.agent_instance_id,
            agent_instance_data=wanted.agent_instance_data,
            # They describe the old host.
            conditions=[],
            orphan=True,
        )
    moved = advance.next_step is None and chain.blueprint_digest
    return msgspec.structs.replace(
        service,
        status=advance.to,
        properties=properties,
        agent_instance_id=wanted.agent_instance_id or service.agent_instance_id,
        agent_instance_data=(
            service.agent_instance_data if wanted.agent_instance_data is None else wanted.agent_instance_data
        ),
        blueprint_digest=moved or service.blueprint_digest,
    )


async def _queue_next(
    work: UnitOfWork,
    held: LockedJob,
    service: ServiceRow,
    chain: JobChainRow,
    advance: Advance,
    merged: _MergedReport,
) -> None:
    properties = None if chain.properties is None else merged.chain_properties
    after = msgspec.structs.replace(
        chain, visited=list(advance.visited), properties=properties, origins=merged.chain_origins, updated_at=work.now
    )
    await JOB_CHAINS.update(work.tx, after)
    params = None if held.job.params is None else (service.properties if properties is None else properties)
    await job_chains.queue(work, service, held.definition.lifecycle, after, NextJob(held.job.step + 1, params))


def _report_target(held: LockedJob, *, last: bool) -> PropertyTarget:
    service = held.service
    return PropertyTarget(
        operation=Operation.REPORT,
        state=service.status,
        in_create_chain=held.job.action == "create",
        last_step=last,
        moves=held.job.is_move,
        service_id=service.id,
        agent_id=held.job.agent_id,
        pool_set_id=held.pool_set_id,
        provider_id=held.job.provider_id,
        consumer_id=service.consumer_id,
        group_id=service.group_id,
    )


async def _release_replaced(
    work: UnitOfWork, service: ServiceRow, leaving: Sequence[PoolTake], taken: Sequence[str]
) -> None:
    """Gives back pool values that the agent has replaced in its report."""
    paths = {take.path for take in leaving}
    values = await held_by(work.tx, service.id) if paths else []
    await pool_allocation.release(
        work, [value for value in values if value.property_name in paths and value.id not in taken]
    )


async def _end_job(
    work: UnitOfWork, held: LockedJob, status: JobStatus, message: str | None, outcome: str | None, report: object
) -> JobRow:
    after = msgspec.structs.replace(
        held.job, status=status, error_message=message, completed_at=work.now, updated_at=work.now
    )
    await JOBS.update(
        work.tx, after, outcome=outcome, report=encode_optional(report), deadline_at=None, progress_log=None
    )
    await work.record_event(decide.ended_event_type(status), held.job, after)
    # The next job of the same group may start now.
    work.tx.announce(job_chains.agent_topic(held.job.agent_id))
    return after


async def fail(work: UnitOfWork, job: JobRow, wanted: FailureReport) -> None:
    held = await _lock_job(work, job.id, job.service_id)
    outcome = secret_sealing.digest_of(work, "fail", wanted.error_message)
    message = failure_to_store(wanted.error_message)
    decision = decide.on_failure(held.facts, _hash_of(wanted.lease_token), outcome, message)
    if isinstance(decision, EndJob):
        await _end_unsuccessfully(work, held, decision, outcome=outcome, report=wanted.report)


async def _end_unsuccessfully(
    work: UnitOfWork, held: LockedJob, decision: EndJob, *, outcome: str | None = None, report: object = None
) -> None:
    """Ends the job and its chain; the chain's pool values and secrets are given back."""
    ended = await _end_job(work, held, decision.status, decision.message, outcome, report)
    orphaned = await _abandon_chain(work, held)
    properties = await job_chains.drop_ephemeral(
        work, held.service.id, held.definition.properties, held.service.properties
    )
    after = msgspec.structs.replace(
        held.service,
        properties=properties,
        status=decision.next_state,
        orphan=held.service.orphan or orphaned,
    )
    update = ServiceUpdate(before=held.service, after=after, definition=held.definition, ended_job=ended)
    await job_chains.save_service(work, update)
    if update.ends or (held.job.action == "create" and not held.job.is_move):
        await _cancel_waiting(work, after, decision.message)


async def _abandon_chain(work: UnitOfWork, held: LockedJob, *, keep_values: bool = False) -> bool:
    """Returns whether the target of a move has an orphan now."""
    chain = await JOB_CHAINS.require(work.tx, held.job.run_id, lock=True)
    if held.job.is_move:
        return await moves.abandon_target(work, held.service, held.job, chain, held.definition.properties)
    await job_chains.abandon(work, chain, keep_values=keep_values)
    return False


async def cancel(work: UnitOfWork, job: JobRow) -> None:
    held = await _lock_job(work, job.id, job.service_id)
    decision = decide.on_cancellation(held.facts)
    if isinstance(decision, EndJob):
        await _end_unsuccessfully(work, held, decision)
    elif isinstance(decision, RequestCancel):
        # `updatedAt` stays: it is the time of the last renewal, and the length of the lease follows from it.
        after = msgspec.structs.replace(held.job, cancel_requested=True)
        await JOBS.update(work.tx, after)
        await work.record_event("job.cancel_requested", held.job, after)


async def wake_agents(work: UnitOfWork) -> None:
    """Announces again: a replica that crashes between commit and announcement loses the announcement."""
    for agent_id in await store.agents_with_pending_jobs(work.tx, work.now - ANNOUNCE_AGAIN_AFTER, MAX_ANNOUNCED):
        work.tx.announce(job_chains.agent_topic(agent_id))


async def time_out_overdue(work: UnitOfWork) -> bool:
    """Ends or requeues one overdue job; returns whether there are more.

    One job per transaction, so that the locks on one service's pools never wait for another service. A random job, so
    that a job that cannot be ended does not block the others."""
    ids = await store.overdue_ids(work.tx, work.now, OVERDUE_CANDIDATES)
    job = await JOBS.find(work.tx, secrets.choice(ids)) if ids else None
    if job is not None:
        held = await _lock_job(work, job.id, job.service_id)
        # Decided again under the lock: a report may have arrived first.
        decision = decide.on_deadline(held.facts, work.now)
        if not isinstance(decision, NotDue):
            await _apply(work, held, decision)
    return len(ids) > 1


async def pending(work: UnitOfWork, limit: int, service_id: str | None) -> list[JobView]:
    """The jobs that the calling agent may claim now."""
    found = await store.pending_jobs(work.tx, str(work.required_caller.agent_id), limit, service_id)
    blocked = {job.id: orphan_id for job, orphan_id in found if orphan_id is not None}
    views = await show_jobs(work, [job for job, _ in found])
    if not blocked:
        return views
    return [msgspec.structs.replace(view, orphan_id=blocked.get(view.id, msgspec.UNSET)) for view in views]


async def force_delete(work: UnitOfWork, service: ServiceRow) -> None:
    """Cancels the active job and moves the service to its first terminal state, without the agent.

    If an agent ever claimed a job of the service, it leaves an orphan, which keeps what the service holds."""
    definition = await job_chains.definition_of(work, service)
    lifecycle = definition.lifecycle
    if service.status in lifecycle.terminal_states:
        raise TerminalState(service.status)
    if work.required_caller.role is not Role.ADMIN and await store.ever_completed(work.tx, service.id):
        raise NotPermitted("only an admin may force the deletion of a service that has had a completed job")
    end = _first_terminal(lifecycle)
    if end is None:
        raise Conflict("the lifecycle has no terminal state", code="no_terminal_state")
    await refuse_if_referenced(work, service)
    active = await store.active_job(work.tx, service.id)
    held = None if active is None else await _lock_job(work, active.id, service.id)
    # Under the lock of the active job: no agent can claim it now.
    remains = on_forced_delete(was_claimed=await store.ever_claimed(work.tx, service.id))
    orphaned = isinstance(remains, LeaveOrphan)
    properties = service.properties
    # An earlier move may have left an orphan too.
    has_orphan = orphaned or service.orphan
    if held is not None:
        await _end_job(work, held, "Cancelled", None, None, None)
        # The host may already have the pool values of the chain, so an orphan keeps them.
        has_orphan |= await _abandon_chain(work, held, keep_values=orphaned)
        properties = await job_chains.drop_ephemeral(work, service.id, definition.properties, properties)
    after = msgspec.structs.replace(service, status=end, properties=properties, orphan=has_orphan)
    update = ServiceUpdate(
        before=service, after=after, definition=definition, is_forced=True, keeps_holdings=orphaned
    )
    await job_chains.save_service(work, update)
    if isinstance(remains, LeaveOrphan):
        await orphans.open_orphan(work, after, remains.reason)
    await _cancel_waiting(work, after, None)


def _first_terminal(lifecycle: Lifecycle) -> str | None:
    declared = lifecycle.source.get("terminalStates") if isinstance(lifecycle.source, dict) else None
    named = declared if isinstance(declared, list) else list(lifecycle.states)
    return next((state for state in named if state in lifecycle.terminal_states), None)
