"""Job decisions: a table of cases for each event. The time is a parameter."""

from __future__ import annotations

import re
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from itertools import product
from pathlib import Path
from typing import Any, get_args

import pytest

import mainstay.control.store.engine.migrations as migrations
from mainstay.control.domain.jobs import (
    ACTIVE,
    CANCELLED,
    LEASE_EXPIRED,
    NOT_CLAIMED,
    TIMED_OUT,
    Advance,
    AlreadyReported,
    CancelRequested,
    EndJob,
    JobFacts,
    JobStatus,
    NotDue,
    Renew,
    RequestCancel,
    Requeue,
    advance,
    ended_event_type,
    hold_deadline,
    on_cancellation,
    on_completion,
    on_deadline,
    on_failure,
    on_release,
    on_renewal,
    pending_deadline,
)
from mainstay.control.domain.lifecycle.parse import parse_lifecycle
from mainstay.control.domain.refusals import LeaseLost, NotProcessing
from mainstay.control.store.jobs import ACTIVE_STATUSES

NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)
TIMEOUT, MAX_ATTEMPTS, PENDING_TIMEOUT = 1000, 3, 60
OURS, THEIRS = "hash of our lease", "hash of another lease"
ENDED: tuple[JobStatus, ...] = ("Completed", "Failed", "Cancelled")

LIFECYCLE = parse_lifecycle(
    {
        "states": [{"name": name} for name in ("New", "Between", "Done", "Late", "Stopped", "Broken")],
        "actions": [
            {
                "name": "create",
                "timeoutSeconds": TIMEOUT,
                "pendingTimeoutSeconds": PENDING_TIMEOUT,
                "maxAttempts": MAX_ATTEMPTS,
                "transitions": [
                    {"from": "New", "to": "Between"},
                    {"from": "Between", "to": "Done"},
                    {"from": "New", "to": "Late", "onError": True, "onErrorRegexp": "timed out|not claimed|expired"},
                    {"from": "New", "to": "Stopped", "onError": True, "onErrorRegexp": "^cancelled"},
                    {"from": "New", "to": "Broken", "onError": True, "onErrorRegexp": "boom"},
                ],
            }
        ],
        "initialState": "New",
    }
)


def seconds(count: float) -> timedelta:
    return timedelta(seconds=count)


def pending(**facts: Any) -> JobFacts:
    return replace(JobFacts(lifecycle=LIFECYCLE, state="New", action="create", updated_at=NOW), **facts)


def leased(**facts: Any) -> JobFacts:
    """Claimed with a lease that has just expired, long before the timeout of the action."""
    held: dict[str, Any] = {
        "status": "Processing",
        "claimed_at": NOW - seconds(30),
        "updated_at": NOW - seconds(30),
        "lease_expires_at": NOW,
        "lease_hash": OURS,
        "deadline_at": NOW,
    }
    return pending(**held | facts)


def unleased(**facts: Any) -> JobFacts:
    """Claimed without a lease, so long ago that the action has just timed out."""
    claimed = NOW - seconds(TIMEOUT)
    return pending(status="Processing", claimed_at=claimed, updated_at=claimed, deadline_at=NOW, **facts)


def ended(status: JobStatus, **facts: Any) -> JobFacts:
    return leased(status=status, deadline_at=None, **facts)


LATE = EndJob("Failed", TIMED_OUT, "Late")
STOPPED = EndJob("Cancelled", CANCELLED, "Stopped")

DEADLINES = [
    ("pending, no limit", pending(), NotDue()),
    ("pending, in time", pending(deadline_at=NOW + seconds(1)), NotDue()),
    ("pending, late", pending(deadline_at=NOW), EndJob("Failed", NOT_CLAIMED, "Late")),
    (
        "pending, late, cancel requested",
        pending(deadline_at=NOW, cancel_requested=True),
        EndJob("Failed", NOT_CLAIMED, "Late"),
    ),
    ("pending again, late", pending(deadline_at=NOW, attempt=MAX_ATTEMPTS), EndJob("Failed", NOT_CLAIMED, "Late")),
    ("lease renewed meanwhile", leased(deadline_at=NOW + seconds(1)), NotDue()),
    ("lease expired, first attempt", leased(), Requeue(2, "job.requeued")),
    ("lease expired, one attempt left", leased(attempt=MAX_ATTEMPTS - 1), Requeue(MAX_ATTEMPTS, "job.requeued")),
    ("lease expired, last attempt", leased(attempt=MAX_ATTEMPTS), EndJob("Failed", LEASE_EXPIRED, "Late")),
    ("lease expired, beyond the last attempt", leased(attempt=9), EndJob("Failed", LEASE_EXPIRED, "Late")),
    ("lease expired, cancel requested", leased(cancel_requested=True), STOPPED),
    ("lease expired, cancel requested, last attempt", leased(cancel_requested=True, attempt=MAX_ATTEMPTS), STOPPED),
    (
        "lease valid, action timed out",
        leased(claimed_at=NOW - seconds(TIMEOUT), lease_expires_at=NOW + seconds(9)),
        LATE,
    ),
    ("lease expired, action timed out", leased(claimed_at=NOW - seconds(TIMEOUT)), LATE),
    ("action timed out, last attempt", leased(claimed_at=NOW - seconds(TIMEOUT), attempt=MAX_ATTEMPTS), LATE),
    ("action timed out, cancel requested", leased(claimed_at=NOW - seconds(TIMEOUT), cancel_requested=True), STOPPED),
    ("no lease, in time", replace(unleased(), deadline_at=NOW + seconds(1)), NotDue()),
    ("no lease, timed out", unleased(), LATE),
    ("no lease, timed out, last attempt", unleased(attempt=MAX_ATTEMPTS), LATE),
    ("no lease, cancel requested", unleased(cancel_requested=True), STOPPED),
    ("no error transition from this state", unleased(state="Done"), EndJob("Failed", TIMED_OUT, "Done")),
    ("the action was removed, lease expired", leased(action="gone"), EndJob("Failed", LEASE_EXPIRED, "New")),
    (
        "the action was removed, never claimed",
        pending(action="gone", deadline_at=NOW),
        EndJob("Failed", NOT_CLAIMED, "New"),
    ),
    *((f"{status} since", replace(ended(status), deadline_at=NOW), NotDue()) for status in ENDED),
]


@pytest.mark.parametrize(("job", "decision"), [row[1:] for row in DEADLINES], ids=[row[0] for row in DEADLINES])
def test_a_passed_deadline_ends_the_job_or_requeues_it(job: JobFacts, decision: object) -> None:
    assert on_deadline(job, NOW) == decision


REPORTS = [
    ("pending, no lease", pending(), None),
    ("pending, no lease, cancel requested", pending(cancel_requested=True), None),
    ("processing with a lease", leased(), OURS),
    ("processing with a lease, cancel requested", leased(cancel_requested=True), OURS),
    ("processing without a lease", unleased(), None),
    ("processing without a lease, cancel requested", unleased(cancel_requested=True), None),
]


@pytest.mark.parametrize(("job", "lease"), [row[1:] for row in REPORTS], ids=[row[0] for row in REPORTS])
def test_a_failure_ends_an_active_job_and_its_message_decides_the_next_state(
    job: JobFacts, lease: str | None
) -> None:
    status: JobStatus = "Cancelled" if job.cancel_requested else "Failed"
    for message, state in (("boom", "Broken"), ("cancelled after 1 of 2", "Stopped"), ("other", "New")):
        assert on_failure(job, lease, "digest", message) == EndJob(status, message, state)


@pytest.mark.parametrize(("job", "lease"), [row[1:] for row in REPORTS], ids=[row[0] for row in REPORTS])
def test_only_a_claimed_job_completes_or_is_released(job: JobFacts, lease: str | None) -> None:
    if job.status == "Pending":
        for act in (lambda: on_completion(job, lease, "digest"), lambda: on_release(job, lease)):
            with pytest.raises(NotProcessing, match="the job is Pending, not Processing"):
                act()
        return
    # A job that completes before the agent sees the cancel request has completed.
    assert on_completion(job, lease, "digest") is None
    assert on_release(job, lease) == (STOPPED if job.cancel_requested else Requeue(job.attempt, "job.released"))


def test_a_release_keeps_the_number_of_the_attempt() -> None:
    assert on_release(leased(attempt=MAX_ATTEMPTS), OURS) == Requeue(MAX_ATTEMPTS, "job.released")


@pytest.mark.parametrize("status", ENDED)
def test_the_same_report_twice_is_accepted_once_and_another_is_refused(status: JobStatus) -> None:
    job = ended(status, outcome="digest")
    if status == "Completed":
        assert on_completion(job, OURS, "digest") == AlreadyReported()
    else:
        assert on_failure(job, OURS, "digest", "boom") == AlreadyReported()
    for outcome in (None, "another"):
        refused = replace(job, outcome=outcome)
        for act in (
            lambda: on_completion(refused, OURS, "digest"),  # noqa: B023  # called within the loop
            lambda: on_failure(refused, OURS, "digest", "boom"),  # noqa: B023
            lambda: on_release(refused, OURS),  # noqa: B023
            lambda: on_renewal(refused, OURS, 30, NOW),  # noqa: B023
        ):
            with pytest.raises(NotProcessing, match=f"the job is {status}, not Processing"):
                act()


def test_the_same_digest_with_another_outcome_is_refused() -> None:
    with pytest.raises(NotProcessing):
        on_completion(ended("Failed", outcome="digest"), OURS, "digest")
    with pytest.raises(NotProcessing):
        on_failure(ended("Completed", outcome="digest"), OURS, "digest", "boom")


LEASES = [(stored, sent) for stored, sent in product((None, OURS, THEIRS), repeat=2) if stored != sent]


@pytest.mark.parametrize("status", get_args(JobStatus))
@pytest.mark.parametrize(("stored", "sent"), LEASES)
def test_without_the_current_lease_every_report_is_refused(
    stored: str | None, sent: str | None, status: JobStatus
) -> None:
    # The lease is checked before the status.
    job = leased(status=status, lease_hash=stored, outcome="digest")
    for act in (
        lambda: on_completion(job, sent, "digest"),
        lambda: on_failure(job, sent, "digest", "boom"),
        lambda: on_release(job, sent),
        lambda: on_renewal(job, sent, 30, NOW),
    ):
        with pytest.raises(LeaseLost, match="the lease has expired or belongs to another attempt; stop the job"):
            act()


CANCELLATIONS = [
    ("pending", pending(), EndJob("Cancelled", None, "New")),
    ("pending, after a cancel request", pending(cancel_requested=True), EndJob("Cancelled", None, "New")),
    ("with a lease", leased(), RequestCancel()),
    ("without a lease", unleased(), RequestCancel()),
    ("requested before", leased(cancel_requested=True), CancelRequested()),
    ("requested before, no lease", unleased(cancel_requested=True), CancelRequested()),
]


@pytest.mark.parametrize(
    ("job", "decision"), [row[1:] for row in CANCELLATIONS], ids=[row[0] for row in CANCELLATIONS]
)
def test_a_cancellation_ends_a_pending_job_and_requests_the_agent_to_stop_a_claimed_one(
    job: JobFacts, decision: object
) -> None:
    assert on_cancellation(job) == decision


@pytest.mark.parametrize("status", ENDED)
def test_an_ended_job_cannot_be_cancelled(status: JobStatus) -> None:
    with pytest.raises(NotProcessing, match=f"the job is {status}, not Processing"):
        on_cancellation(ended(status))


def test_a_completed_job_advances_its_service_until_the_run_is_complete() -> None:
    assert advance(leased(), ["New"]) == Advance("Between", 2, ("New", "Between"))
    last = advance(leased(state="Between", step=2), ["New", "Between"])
    assert last == Advance("Done", None, ("New", "Between", "Done"))
    # The lifecycle changed while the job ran: the state stays.
    assert advance(leased(action="gone"), ["New"]) == Advance("New", None, ("New", "New"))


RENEWALS = [
    ("previous length", leased(), None, 30),
    ("length since the last renewal", leased(updated_at=NOW - seconds(20)), None, 20),
    ("shortest lease", leased(updated_at=NOW - seconds(1)), None, 10),
    ("requested length", leased(), 90, 90),
]


@pytest.mark.parametrize(
    ("job", "length", "expected"), [row[1:] for row in RENEWALS], ids=[row[0] for row in RENEWALS]
)
def test_a_renewal_extends_the_lease(job: JobFacts, length: int | None, expected: int) -> None:
    assert on_renewal(job, OURS, length, NOW) == Renew(NOW + seconds(expected), NOW + seconds(expected))


def test_a_renewal_never_moves_the_deadline_beyond_the_timeout_of_the_action() -> None:
    job = leased(claimed_at=NOW - seconds(TIMEOUT - 5))
    assert on_renewal(job, OURS, 30, NOW) == Renew(NOW + seconds(30), NOW + seconds(5))


def test_a_job_held_without_a_lease_cannot_be_renewed() -> None:
    with pytest.raises(LeaseLost, match="the job is held without a lease"):
        on_renewal(unleased(), None, 30, NOW)


def test_deadlines_come_from_the_action() -> None:
    assert hold_deadline(LIFECYCLE, "create", NOW, None) == NOW + seconds(TIMEOUT)
    assert hold_deadline(LIFECYCLE, "create", NOW, NOW + seconds(30)) == NOW + seconds(30)
    assert hold_deadline(LIFECYCLE, "create", NOW, NOW + seconds(9999)) == NOW + seconds(TIMEOUT)
    assert hold_deadline(LIFECYCLE, "gone", NOW, None) == NOW + seconds(300)
    assert pending_deadline(LIFECYCLE, "create", NOW) == NOW + seconds(PENDING_TIMEOUT)
    assert pending_deadline(LIFECYCLE, "gone", NOW) is None


def test_every_status_is_active_or_has_an_event_type() -> None:
    assert {*ACTIVE, *ENDED} == set(get_args(JobStatus))
    assert [ended_event_type(status) for status in ENDED] == ["job.completed", "job.failed", "job.cancelled"]


def test_the_indexes_of_active_jobs_use_the_definition_of_the_domain() -> None:
    folder = Path(str(migrations.__file__)).parent
    sql = "".join(file.read_text() for file in sorted(folder.glob("*.sql")))
    found = re.findall(r"INDEX (\w+) ON jobs .* WHERE status IN (\(.*\));", sql)
    of_active = [(name, statuses) for name, statuses in found if any(each in statuses for each in ACTIVE)]
    names = ["jobs_one_active", "jobs_by_deadline", "jobs_active_by_provider", "jobs_active_by_consumer"]
    assert of_active == [(name, ACTIVE_STATUSES) for name in names]
