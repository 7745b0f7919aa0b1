"""Jobs as pages show them: how long, what they did, and why they wait. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime

from mainstay.control.operations.job_reports import JobContext
from mainstay.control.store.jobs import JobRow
from mainstay.control.web.views.formatting import AGENT_STATES, duration, running_time
from mainstay.control.web.views.reports import count_words, summary_counts

MAX_NOTE = 300


@dataclass(frozen=True, slots=True)
class ShownJob:
    row: JobRow
    requested_by: str
    # How long it waits, runs or ran.
    time: str
    # What it did, or why it waits; one line.
    note: str

    @property
    def is_active(self) -> bool:
        return self.row.status in ("Pending", "Processing")

    @property
    def percent(self) -> float | None:
        found = (self.row.progress or {}).get("percent")
        return float(found) if isinstance(found, int | float) else None

    @property
    def text(self) -> str:
        return str((self.row.progress or {}).get("text") or "")


def shown_job(row: JobRow, context: JobContext | None, agent_status: str, now: datetime) -> ShownJob:
    return ShownJob(
        row,
        "" if context is None else context.requested_by,
        _time(row, now),
        _note(row, None if context is None else context.summary, agent_status),
    )


def progress_word(job: ShownJob) -> str:
    """For the title of a page: `update, 62 %`."""
    return f"{job.row.action}, {job.percent:.0f} %" if job.percent is not None else job.row.action


def _time(row: JobRow, now: datetime) -> str:
    if row.completed_at is not None:
        return duration(max(0.0, (row.completed_at - (row.claimed_at or row.created_at)).total_seconds()))
    return running_time((now - (row.claimed_at or row.created_at)).total_seconds())


def _note(row: JobRow, summary: object, agent_status: str) -> str:
    step = f"step {row.step}" if row.step > 1 else ""
    return " · ".join(part for part in (step, _outcome(row, summary, agent_status)) if part)


def _outcome(row: JobRow, summary: object, agent_status: str) -> str:
    if row.status == "Pending":
        waits = agent_status == "Connected"
        return "waits for its agent" if waits else f"waits for its agent, which is {_agent_word(agent_status)}"
    if row.status == "Processing":
        return str((row.progress or {}).get("text") or "")[:MAX_NOTE]
    if row.error_message:
        return row.error_message.split("\n", 1)[0][:MAX_NOTE]
    return count_words(summary_counts(summary if isinstance(summary, Mapping) else None))


def _agent_word(status: str) -> str:
    return AGENT_STATES.get(status, ("", status))[1].lower()
