"""Decides what happens to a job: on a report, a renewal, a release, a cancellation, a missed deadline.

Pure: the caller reads the facts under its locks, asks here, and applies the decision. Refusals are in `refusals.py`."""

from __future__ import annotations

import hmac
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Literal

from mainstay.control.domain.lifecycle import transitions
from mainstay.control.domain.lifecycle.schema import DEFAULT_TIMEOUT_SECONDS, Lifecycle
from mainstay.control.domain.refusals import LeaseLost, NotProcessing

JobStatus = Literal["Pending", "Processing", "Completed", "Failed", "Cancelled"]
# A service has at most one active job; a job with any other status has ended.
ACTIVE: tuple[JobStatus, ...] = ("Pending", "Processing")

# Lifecycles match these messages with `onErrorRegexp`, so the wording is a contract.
TIMED_OUT = "job timed out"
NOT_CLAIMED = "job not claimed in time"
LEASE_EXPIRED = "lease expired"
CANCELLED = "cancelled"
SHORTEST_LEASE = timedelta(seconds=10)


@dataclass(frozen=True, slots=True, kw_only=True)
class JobFacts:
    """One job as read under the locks of its service and its row."""

    lifecycle: Lifecycle
    # The lifecycle status of the job's service.
    state: str
    action: str
    status: JobStatus = "Pending"
    step: int = 1
    attempt: int = 1
    cancel_requested: bool = False
    # None: not claimed.
    claimed_at: datetime | None = None
    # When the lease was last renewed.
    updated_at: datetime
    # Both None: the agent holds the job without a lease.
    lease_expires_at: datetime | None = None
    lease_hash: str | None = None
    # None: the job waits without a limit, or has ended.
    deadline_at: datetime | None = None
    # Digest of the reported outcome; None: none was reported.
    outcome: str | None = None
    # The job creates the service on another agent: its lifecycle state stays, whatever the outcome.
    is_move: bool = False


@dataclass(frozen=True, slots=True)
class AlreadyReported:
    """The same outcome is recorded already: the agent repeats a report whose answer it did not receive."""


@dataclass(frozen=True, slots=True)
class Advance:
    """The job completed and its service moves to `to`. `next_step` None: the chain is complete."""

    to: str
    next_step: int | None
    visited: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class EndJob:
    """The job ends without success and its service moves to `next_state`, which may be the one it is in."""

    status: JobStatus
    message: str | None
    next_state: str


@dataclass(frozen=True, slots=True)
class Requeue:
    """The job returns to the queue."""

    attempt: int
    event_type: str


@dataclass(frozen=True, slots=True)
class RequestCancel:
    """The agent is requested to stop; it responds with a failure report."""


@dataclass(frozen=True, slots=True)
class CancelRequested:
    """The agent was already requested to stop."""


@dataclass(frozen=True, slots=True)
class NotDue:
    """The deadline has moved or the job has ended since it was found overdue."""


@dataclass(frozen=True, slots=True)
class Renew:
    lease_expires_at: datetime
    deadline_at: datetime


def awaited_is_missing(name: str, message: str | None) -> str:
    """Why a job that waits for a service is cancelled: the failure of that service, if there was one."""
    return f"service {name} is not there" if message is None else f"service {name} is not there: {message}"


def ended_event_type(status: JobStatus) -> str:
    return {"Completed": "job.completed", "Failed": "job.failed", "Cancelled": "job.cancelled"}[status]


def pending_deadline(lifecycle: Lifecycle, action: str, now: datetime) -> datetime | None:
    """When an unclaimed job fails. None: never."""
    found = lifecycle.actions.get(action)
    wait = None if found is None else found.pending_timeout_seconds
    return None if wait is None else now + timedelta(seconds=wait)


def hold_deadline(
    lifecycle: Lifecycle, action: str, claimed_at: datetime, lease_expires_at: datetime | None
) -> datetime:
    """When an agent no longer holds a claimed job: the end of its lease, and the action's timeout at the latest.

    `lease_expires_at` None: held without a lease."""
    timeout_at = claimed_at + _timeout(lifecycle, action)
    return timeout_at if lease_expires_at is None else min(lease_expires_at, timeout_at)


def on_renewal(job: JobFacts, lease_hash: str | None, lease_seconds: int | None, now: datetime) -> Renew:
    """A renewal without a length repeats the length of the current lease."""
    _require_holder(job, lease_hash)
    _require_processing(job)
    if job.lease_expires_at is None or job.claimed_at is None:
        raise LeaseLost("the job is held without a lease")
    length = job.lease_expires_at - max(job.claimed_at, job.updated_at)
    if lease_seconds is not None:
        length = timedelta(seconds=lease_seconds)
    expires = now + max(length, SHORTEST_LEASE)
    return Renew(expires, hold_deadline(job.lifecycle, job.action, job.claimed_at, expires))


def on_completion(job: JobFacts, lease_hash: str | None, outcome: str) -> AlreadyReported | None:
    """None: the report is accepted, and `advance` decides the next state."""
    _require_holder(job, lease_hash)
    if job.status == "Completed" and job.outcome == outcome:
        return AlreadyReported()
    _require_processing(job)
    return None


def advance(job: JobFacts, visited: Sequence[str]) -> Advance:
    """`visited` are the states of the job's chain so far."""
    if job.is_move:
        return Advance(job.state, None, tuple(visited))
    progress = transitions.ActionProgress(job.action, tuple(visited))
    step = transitions.after_success(job.lifecycle, progress, job.state)
    return Advance(step.to, job.step + 1 if step.continues else None, transitions.advance(progress, step).visited)


def on_failure(job: JobFacts, lease_hash: str | None, outcome: str, message: str) -> AlreadyReported | EndJob:
    """An agent may fail a job that it never claimed."""
    _require_holder(job, lease_hash)
    if job.status in ("Failed", "Cancelled") and job.outcome == outcome:
        return AlreadyReported()
    if job.status != "Pending":
        _require_processing(job)
    return _end(job, "Cancelled" if job.cancel_requested else "Failed", message)


def on_release(job: JobFacts, lease_hash: str | None) -> EndJob | Requeue:
    """The agent returns the job unfinished; this does not count as an attempt."""
    _require_holder(job, lease_hash)
    _require_processing(job)
    if job.cancel_requested:
        return _end(job, "Cancelled", CANCELLED)
    return Requeue(job.attempt, "job.released")


def on_cancellation(job: JobFacts) -> EndJob | RequestCancel | CancelRequested:
    if job.status == "Pending":
        # No agent has touched the host, so no error transition applies.
        return EndJob("Cancelled", None, job.state)
    _require_processing(job)
    return CancelRequested() if job.cancel_requested else RequestCancel()


def on_deadline(job: JobFacts, now: datetime) -> NotDue | EndJob | Requeue:
    if job.deadline_at is None or job.deadline_at > now or job.status not in ACTIVE:
        return NotDue()
    if job.status == "Pending":
        return _end(job, "Failed", NOT_CLAIMED)
    if job.cancel_requested:
        return _end(job, "Cancelled", CANCELLED)
    action = job.lifecycle.actions.get(job.action)
    timed_out = job.claimed_at is not None and job.claimed_at + _timeout(job.lifecycle, job.action) <= now
    if timed_out or job.lease_expires_at is None:
        return _end(job, "Failed", TIMED_OUT)
    if job.attempt >= (1 if action is None else action.max_attempts):
        return _end(job, "Failed", LEASE_EXPIRED)
    return Requeue(job.attempt + 1, "job.requeued")


def _end(job: JobFacts, status: JobStatus, message: str) -> EndJob:
    """The first error transition that matches the message decides the next state."""
    if job.is_move:
        return EndJob(status, message, job.state)
    to = transitions.after_failure(job.lifecycle, job.action, job.state, message)
    return EndJob(status, message, to or job.state)


def _require_holder(job: JobFacts, lease_hash: str | None) -> None:
    """Refuses an agent whose lease has expired: another attempt may hold the job now, with or without a lease."""
    if job.lease_hash is None and lease_hash is None:
        return
    if job.lease_hash is None or lease_hash is None or not hmac.compare_digest(lease_hash, job.lease_hash):
        raise LeaseLost("the lease has expired or belongs to another attempt; stop the job")


def _require_processing(job: JobFacts) -> None:
    if job.status != "Processing":
        raise NotProcessing(job.status)


def _timeout(lifecycle: Lifecycle, action: str) -> timedelta:
    """The default applies to an action that has been removed from the lifecycle while its job was active."""
    found = lifecycle.actions.get(action)
    return timedelta(seconds=DEFAULT_TIMEOUT_SECONDS if found is None else found.timeout_seconds)
