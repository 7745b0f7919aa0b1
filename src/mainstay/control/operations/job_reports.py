"""What readers see of jobs beyond their rows: the report of the agent, who requested them, and counts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from mainstay.control.operations.machinery.consumer_view import consumer_report, initiator_words, sees_host
from mainstay.control.operations.machinery.refusals import NotFound
from mainstay.control.operations.machinery.unit_of_work import UnitOfWork
from mainstay.control.store import jobs as store
from mainstay.control.store.jobs import JobRow


async def read_report(work: UnitOfWork, job: JobRow) -> object:
    """The report of the agent, as far as the caller may see it."""
    report = await find_report(work, job)
    if report is None:
        raise NotFound("report of job", job.id)
    return report


async def find_report(work: UnitOfWork, job: JobRow, max_characters: int | None = None) -> object | None:
    """None: there is no report, or it has more characters."""
    report = await store.report_of(work.tx, job.id, max_characters)
    return report if report is None or sees_host(work.caller, job.provider_id) else consumer_report(report)


@dataclass(frozen=True, slots=True)
class JobContext:
    """What lists of jobs show beyond their rows."""

    requested_by: str
    # Counts of the report: outcome → number of resources. None: no report, or one that is too large to read in a list.
    summary: object


async def read_contexts(
    work: UnitOfWork, rows: Sequence[JobRow], parties: Mapping[str, str]
) -> dict[str, JobContext]:
    """By id of the job. `parties`: id → name of providers and consumers of the jobs."""
    notes = await store.read_notes(work.tx, [row.id for row in rows])
    return {
        job_id: JobContext(
            initiator_words(work.required_caller, note.role, note.name, note.participant_id, parties), note.summary
        )
        for job_id, note in notes.items()
    }
