"""Jobs and the chains they belong to: the jobs of one order, one after the other (table `runs`). One guarded UPDATE decides which agent gets a claim."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from datetime import datetime

import msgspec

from mainstay.control.domain.jobs import ACTIVE, JobStatus
from mainstay.control.store.engine.contract import (
    Transaction,
    decode_optional,
    encode_optional,
    fetch_column,
    fetch_number,
    fetch_value,
    literals,
    placeholders,
)
from mainstay.control.store.engine.paging import SqlCondition
from mainstay.control.store.engine.records import (
    MAX_DEPENDANTS,
    Record,
    Table,
    to_microseconds,
    to_optional_microseconds,
    to_time,
)

ACTIVE_STATUSES = literals(ACTIVE)


class JobRow(Record, frozen=True, kw_only=True):
    action: str
    params: dict[str, object] | None = None
    priority: int = 1
    status: JobStatus = "Pending"
    error_message: str | None = None
    claimed_at: datetime | None = None
    completed_at: datetime | None = None
    # None: claimed without a lease.
    lease_expires_at: datetime | None = None
    attempt: int = 1
    progress: dict[str, object] | None = None
    cancel_requested: bool = False
    # Id of the job chain.
    run_id: str
    step: int = 1
    blueprint_digest: str | None = None
    # Digest of the host's forecast, which must still match when the job starts; None: ordered without a plan.
    plan_digest: str | None = None
    # Creates the service on another agent, which gets the service when the job completes.
    is_move: bool = False
    # The service that must leave its initial state before an agent may claim the job. None: none.
    waiting_for: str | None = None
    agent_id: str
    service_id: str
    provider_id: str
    consumer_id: str


class JobChainRow(Record, frozen=True, kw_only=True):
    service_id: str
    action: str
    visited: list[str]
    # The properties of the service once the chain succeeds; None: unchanged.
    properties: dict[str, object] | None = None
    # Which actor set each property, by path.
    origins: dict[str, object]
    # Pool values and secrets allocated for the chain: kept if it succeeds, released if it fails. A secret is recorded as
    # its place: [reference, schema path, type].
    taken_values: list[str]
    new_secrets: list[object]
    # Pool values and secrets that the chain replaces: released if it succeeds.
    released_values: list[str]
    retired_secrets: list[object]
    # The blueprint version of the service once the chain succeeds; None: unchanged.
    blueprint_digest: str | None = None


JOBS = Table(
    "jobs",
    "job",
    JobRow,
    owner_indexes=("service_id created_at", "agent_id created_at"),
    single_owner=("service_id", "agent_id"),
)

_UNSUCCESSFUL = "status IN ('Failed', 'Cancelled')"
# More jobs are never active at once in practice.
_MAX_NARROWED = 100_000
# Characters of a report whose summary a list reads.
_MAX_SUMMARIZED = 200_000


# Where a list for all participants finds active jobs. A query with a limit is not merged into the one around it, so that
# the databases do not read a million jobs by age. The jobs of one participant have an index of their own.
ACTIVE_JOBS = f"(SELECT * FROM jobs WHERE status IN {ACTIVE_STATUSES} LIMIT {_MAX_NARROWED}) AS jobs"


def with_status(statuses: Collection[JobStatus]) -> list[SqlCondition]:
    """The conditions of jobs with one of these states, in the form of the indexes; empty: all."""
    if not statuses:
        return []
    wanted = [f"status IN {literals(sorted(statuses))}"]
    wanted += [f"status IN {ACTIVE_STATUSES}"] if set(statuses) <= set(ACTIVE) else []
    wanted += [_UNSUCCESSFUL] if set(statuses) <= {"Failed", "Cancelled"} else []
    return [SqlCondition(each) for each in wanted]


JOB_CHAINS = Table("runs", "job chain", JobChainRow)


class LoggedProgress(msgspec.Struct, frozen=True, array_like=True):
    at: datetime
    attempt: int
    text: str


class JobHold(msgspec.Struct, frozen=True):
    """Columns of a job that are not part of its public record."""

    deadline_at: datetime | None
    lease_hash: str | None
    claim_id: str | None
    # Digest of the reported outcome, so that a repeated report is idempotent.
    outcome: str | None
    # The last messages of the agent about its progress; emptied when the job ends.
    progress_log: list[LoggedProgress]


async def find_job_with_hold(tx: Transaction, job_id: str, *, lock: bool = False) -> tuple[JobRow, JobHold] | None:
    ending = tx.for_update if lock else ""
    rows = await tx.fetch(
        f"SELECT {JOBS.select()}, deadline_at, lease_hash, claim_id, outcome, progress_log FROM jobs WHERE id = :id{ending}",
        id=job_id,
    )
    if not rows:
        return None
    (row,) = rows
    deadline = row["deadline_at"]
    return JOBS.decode(row), JobHold(
        None if deadline is None else to_time(deadline),
        row["lease_hash"],
        row["claim_id"],
        row["outcome"],
        _decode_log(row["progress_log"]),
    )


def _decode_log(text: str | None) -> list[LoggedProgress]:
    return [] if text is None else msgspec.json.decode(text, type=list[LoggedProgress])


async def read_log(tx: Transaction, job_id: str) -> list[LoggedProgress]:
    """What the agent reported about the progress of an active job, oldest first."""
    return _decode_log(await fetch_value(tx, "SELECT progress_log FROM jobs WHERE id = :id", id=job_id))


async def newest_of_service(tx: Transaction, service_id: str, limit: int) -> list[JobRow]:
    return await JOBS.where(
        tx, f"service_id = :id ORDER BY created_at DESC, id DESC LIMIT {int(limit)}", id=service_id
    )


async def active_job(tx: Transaction, service_id: str) -> JobRow | None:
    return await JOBS.first(tx, f"service_id = :id AND status IN {ACTIVE_STATUSES}", id=service_id)


async def claim(
    tx: Transaction,
    job_id: str,
    now: datetime,
    deadline: datetime,
    lease: tuple[datetime, str, str | None] | None,
) -> JobRow | None:
    """`lease` is (expiry, hash of the lease token, the caller's claim id). Returns None if the job is not pending."""
    expires, lease_hash, claim_id = lease if lease is not None else (None, None, None)
    rows = await tx.fetch(
        "UPDATE jobs SET status = 'Processing', claimed_at = :now, updated_at = :now, lease_expires_at = :expires,"
        " was_claimed = 1, lease_hash = :lease_hash, claim_id = :claim_id, deadline_at = :deadline, progress = NULL"
        f" WHERE id = :id AND status = 'Pending' AND waiting_for IS NULL RETURNING {JOBS.select()}",
        id=job_id,
        now=to_microseconds(now),
        expires=to_optional_microseconds(expires),
        lease_hash=lease_hash,
        claim_id=claim_id,
        deadline=to_microseconds(deadline),
    )
    return JOBS.decode(rows[0]) if rows else None


async def pending_jobs(
    tx: Transaction, agent_id: str, limit: int, service_id: str | None
) -> list[tuple[JobRow, str | None]]:
    """Jobs that the agent may claim now: one per service group, none of a group with a job in progress.

    Each with the open orphan of the agent that has the service's type and name, if there is one."""
    wanted = "" if service_id is None else " AND service_id = :service_id"
    rows = await tx.fetch(
        f"SELECT {JOBS.select()}, (SELECT min(orphans.id) FROM orphans"
        " JOIN services AS ended ON ended.id = orphans.service_id"
        " JOIN services AS own ON own.id = placed.service_id AND own.service_type_id = ended.service_type_id"
        " AND own.name = orphans.service_name WHERE orphans.agent_id = :agent_id AND orphans.closed_at IS NULL)"
        f" AS orphan_id FROM (SELECT {JOBS.select()}, row_number() OVER"
        " (PARTITION BY group_id ORDER BY priority DESC, created_at, id) AS place FROM jobs"
        f" WHERE agent_id = :agent_id AND status = 'Pending' AND waiting_for IS NULL{wanted} AND NOT EXISTS"
        " (SELECT 1 FROM jobs AS others WHERE others.agent_id = :agent_id AND others.status = 'Processing'"
        " AND others.group_id = jobs.group_id)) AS placed"
        f" WHERE place = 1 ORDER BY priority DESC, created_at, id LIMIT {int(limit)}",
        agent_id=agent_id,
        service_id=service_id,
    )
    return [(JOBS.decode(row), row["orphan_id"]) for row in rows]


async def lock_chain(tx: Transaction, chain_id: str, service_id: str) -> tuple[JobChainRow, bool]:
    """The chain of a job, and whether jobs may wait for its service. Under the lock of the service: an order that refers
    to it waits for that lock."""
    (row,) = await tx.fetch(
        f"SELECT {JOB_CHAINS.select()},"
        " EXISTS (SELECT 1 FROM service_references WHERE target_id = :service_id) AS is_referenced"
        f" FROM {JOB_CHAINS.name} WHERE id = :id{tx.for_update}",
        id=chain_id,
        service_id=service_id,
    )
    return JOB_CHAINS.decode(row), bool(row["is_referenced"])


async def waiting_jobs(tx: Transaction, service_id: str) -> list[tuple[str, str]]:
    """The jobs that wait until references of their service are there, one of which is this service; each with the id of
    its service."""
    rows = await tx.fetch(
        "SELECT DISTINCT jobs.id, jobs.service_id FROM service_references"
        " JOIN jobs ON jobs.service_id = service_references.service_id AND jobs.status = 'Pending'"
        " AND jobs.waiting_for IS NOT NULL WHERE service_references.target_id = :id ORDER BY jobs.service_id",
        id=service_id,
    )
    return [(row["id"], row["service_id"]) for row in rows]


async def agents_with_pending_jobs(tx: Transaction, before: datetime, limit: int) -> list[str]:
    """Agents with jobs that have been pending since before this time."""
    return await fetch_column(
        tx,
        f"SELECT DISTINCT agent_id FROM jobs WHERE status = 'Pending' AND created_at < :before LIMIT {limit}",
        before=to_microseconds(before),
    )


async def overdue_ids(tx: Transaction, now: datetime, limit: int) -> list[str]:
    return await fetch_column(
        tx,
        f"SELECT id FROM jobs WHERE status IN {ACTIVE_STATUSES} AND deadline_at <= :now ORDER BY deadline_at LIMIT {limit}",
        now=to_microseconds(now),
    )


async def was_claimed(tx: Transaction, job_id: str) -> bool:
    """Whether an agent ever claimed the job, also if it was released or requeued since."""
    return bool(await fetch_number(tx, "SELECT was_claimed FROM jobs WHERE id = :id", id=job_id))


async def active_ids_of_agent(tx: Transaction, agent_id: str) -> list[str]:
    return await fetch_column(
        tx,
        f"SELECT id FROM jobs WHERE agent_id = :id AND status IN {ACTIVE_STATUSES} ORDER BY created_at, id LIMIT {MAX_DEPENDANTS}",
        id=agent_id,
    )


async def delete_ended_of_agent(tx: Transaction, agent_id: str) -> None:
    """Jobs that the agent ran for services which have moved to another one since; their events stay."""
    await tx.execute(
        "UPDATE services SET failed_job_id = NULL WHERE failed_job_id IN"
        f" (SELECT id FROM jobs WHERE agent_id = :id AND status NOT IN {ACTIVE_STATUSES})",
        id=agent_id,
    )
    await tx.execute(f"DELETE FROM jobs WHERE agent_id = :id AND status NOT IN {ACTIVE_STATUSES}", id=agent_id)


async def ever_claimed(tx: Transaction, service_id: str) -> bool:
    """Whether an agent ever claimed a job of the service, also one that was released or requeued."""
    statement = "SELECT 1 AS found FROM jobs WHERE service_id = :id AND was_claimed = 1 LIMIT 1"
    return bool(await tx.fetch(statement, id=service_id))


async def ever_completed(tx: Transaction, service_id: str) -> bool:
    statement = "SELECT 1 AS found FROM jobs WHERE service_id = :id AND status = 'Completed' LIMIT 1"
    return bool(await tx.fetch(statement, id=service_id))


async def report_of(tx: Transaction, job_id: str, max_characters: int | None = None) -> object | None:
    """None: there is no report, or it has more characters."""
    limit = "" if max_characters is None else f" AND length(report) <= {int(max_characters)}"
    return decode_optional(await fetch_value(tx, f"SELECT report FROM jobs WHERE id = :id{limit}", id=job_id))


class JobNotes(msgspec.Struct, frozen=True):
    """What lists of jobs show beyond their rows."""

    # Role of the caller whose order started the chain. None: unknown.
    role: str | None
    name: str | None
    participant_id: str | None
    # Counts of the report: outcome → number of resources. None: no report, or one that is too large to read in a list.
    summary: object


async def read_notes(tx: Transaction, ids: Sequence[str]) -> dict[str, JobNotes]:
    """Later steps of a chain are queued by the agent; the request is the one of the first step."""
    listed, marks = placeholders(ids)
    if not marks:
        return {}
    rows = await tx.fetch(
        "SELECT jobs.id, events.initiator_role, events.initiator_name, events.initiator_participant_id,"
        # PostgreSQL does not read JSON with a zero character.
        f" CASE WHEN length(jobs.report) <= {_MAX_SUMMARIZED} AND jobs.report NOT LIKE '%\\u0000%' ESCAPE '!'"
        f" THEN jobs.report{tx.as_json} -> 'summary' END"
        " AS summary FROM jobs LEFT JOIN jobs AS first ON first.run_id = jobs.run_id AND first.step = 1"
        " LEFT JOIN events ON events.entity_id = first.id AND events.type = 'job.created'"
        f" WHERE jobs.id IN {listed}",
        **marks,
    )
    return {
        row["id"]: JobNotes(
            row["initiator_role"],
            row["initiator_name"],
            row["initiator_participant_id"],
            decode_optional(row["summary"]),
        )
        for row in rows
    }


class JobName(msgspec.Struct, frozen=True):
    id: str
    action: str
    created_at: datetime


async def find_by_times(
    tx: Transaction, service_id: str, times: Sequence[datetime], ids: Sequence[str]
) -> list[JobName]:
    """The jobs of the service that were created at one of these times, and those with one of these ids."""
    listed_times, at = placeholders([to_microseconds(time) for time in times], "at")
    listed_ids, by_id = placeholders(ids)
    conditions = [f"created_at IN {listed_times}"] if at else []
    conditions += [f"id IN {listed_ids}"] if by_id else []
    if not conditions:
        return []
    rows = await tx.fetch(
        " UNION ".join(
            f"SELECT id, action, created_at FROM jobs WHERE service_id = :service_id AND {condition}"
            for condition in conditions
        ),
        service_id=service_id,
        **at,
        **by_id,
    )
    return [JobName(row["id"], row["action"], to_time(row["created_at"])) for row in rows]


async def latest_job_id(tx: Transaction, service_id: str, *, other_than: str) -> str | None:
    return await fetch_value(
        tx,
        "SELECT id FROM jobs WHERE service_id = :service_id AND id <> :other_than"
        " ORDER BY created_at DESC, id DESC LIMIT 1",
        service_id=service_id,
        other_than=other_than,
    )


class PastJob(msgspec.Struct, frozen=True, kw_only=True):
    """What an ended job keeps of the values of its service."""

    id: str
    params: dict[str, object] | None
    report: object
    error_message: object
    progress: object


async def past_jobs(tx: Transaction, service_ids: Sequence[str]) -> dict[str, list[PastJob]]:
    """The ended jobs by service."""
    listed, marks = placeholders(service_ids)
    if not marks:
        return {}
    rows = await tx.fetch(
        f"SELECT id, service_id, params, report, error_message, progress FROM jobs WHERE status NOT IN {ACTIVE_STATUSES}"
        f" AND service_id IN {listed} ORDER BY created_at, id",
        slow=True,
        **marks,
    )
    found: dict[str, list[PastJob]] = {}
    for row in rows:
        job = PastJob(
            id=row["id"],
            params=decode_optional(row["params"]),
            report=decode_optional(row["report"]),
            error_message=row["error_message"],
            progress=decode_optional(row["progress"]),
        )
        found.setdefault(row["service_id"], []).append(job)
    return found


async def rewrite_past_job(tx: Transaction, job: PastJob) -> None:
    await tx.execute(
        "UPDATE jobs SET params = :params, report = :report, error_message = :error_message, progress = :progress"
        " WHERE id = :id",
        id=job.id,
        params=encode_optional(job.params),
        report=encode_optional(job.report),
        error_message=None if job.error_message is None else str(job.error_message),
        progress=encode_optional(job.progress),
    )


async def planned_properties(tx: Transaction, service_ids: Sequence[str]) -> dict[str, dict[str, dict[str, object]]]:
    """The properties that job chains gave or would have given to their service, by service and chain."""
    listed, marks = placeholders(service_ids)
    if not marks:
        return {}
    rows = await tx.fetch(
        f"SELECT id, service_id, properties FROM runs WHERE properties IS NOT NULL AND service_id IN {listed}",
        slow=True,
        **marks,
    )
    found: dict[str, dict[str, dict[str, object]]] = {}
    for row in rows:
        found.setdefault(row["service_id"], {})[row["id"]] = msgspec.json.decode(row["properties"])
    return found


async def set_planned_properties(tx: Transaction, run_id: str, properties: dict[str, object]) -> None:
    await tx.execute(
        "UPDATE runs SET properties = :properties WHERE id = :id", id=run_id, properties=encode_optional(properties)
    )
