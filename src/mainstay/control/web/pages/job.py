"""One job: outcome, progress, report with diffs, parameters, attempts and lease; and the form that cancels it."""

from __future__ import annotations

from typing import Any

from mainstay.control.access import relation_of
from mainstay.control.domain.values import is_uuid
from mainstay.control.operations import job_reports
from mainstay.control.operations.machinery.job_chains import definition_of
from mainstay.control.operations.machinery.unit_of_work import UnitOfWork
from mainstay.control.operations.machinery.views import JobView, show_jobs
from mainstay.control.store.jobs import JOBS, JobRow, read_log
from mainstay.control.web.contract import ApiRefusal, PageAnswer, PageCall, WebPage
from mainstay.control.web.views.diffs import DiffBudget
from mainstay.control.web.views.jobs import shown_job
from mainstay.control.web.views.property_rows import MAX_ROWS, property_rows
from mainstay.control.web.views.reports import count_words, read_report, repeats_report, whole_output
from mainstay.foundation.text import keep_ends

MAX_ERROR = 20_000


async def _show(call: PageCall) -> PageAnswer:
    async with call.reading() as work:
        row = await work.find(JOBS, call.path["id"])
        values = await _read(work, row)
    return PageAnswer("job.html", values)


async def _read(work: UnitOfWork, row: JobRow) -> dict[str, Any]:
    (view,) = await show_jobs(work, [row])
    parties = {each.id: each.name for each in (view.provider, view.consumer)}
    contexts = await job_reports.read_contexts(work, [row], parties)
    report = await job_reports.find_report(work, row)
    shown = None if report is None else read_report(report, DiffBudget())
    caller = work.required_caller
    message = view.error_message or ""
    return {
        "job": shown_job(view, contexts.get(row.id), view.service.agent.status, work.now),
        "view": view,
        "log": await read_log(work.tx, row.id),
        "steps": sorted(await JOBS.all_by(work.tx, "run_id", row.run_id), key=lambda job: job.step),
        "report": shown,
        "counts": "" if shown is None else count_words(shown.counts),
        # The report shows the same, with more.
        "error": "" if report is not None and repeats_report(message, report) else keep_ends(message, MAX_ERROR),
        "has_failed": bool(message),
        "params": None if view.params is None else property_rows(view.params),
        "max_rows": MAX_ROWS,
        "may_cancel": not caller.read_only and relation_of(caller, "job", "cancel").holds(caller, view),
        "max_attempts": await _max_attempts(work, view),
    }


async def _show_output(call: PageCall) -> PageAnswer:
    async with call.reading() as work:
        row = await work.find(JOBS, call.path["id"])
        (view,) = await show_jobs(work, [row])
        report = await job_reports.find_report(work, row)
    return PageAnswer("job_output.html", {"view": view, "output": whole_output(view.error_message or "", report)})


async def _max_attempts(work: UnitOfWork, view: JobView) -> int | None:
    """None: the lifecycle has no such action any more."""
    definition = await definition_of(work, view.service)
    action = definition.lifecycle.actions.get(view.action)
    return None if action is None else action.max_attempts


async def _cancel(call: PageCall) -> PageAnswer:
    job_id, service_id = call.path["id"], call.posted("service")
    target = f"/services/{service_id}" if is_uuid(service_id) else f"/jobs/{job_id}"
    try:
        await call.api("POST", f"/api/v1/jobs/{job_id}/cancel")
    except ApiRefusal as refusal:
        if refusal.status != 409:
            raise
        # It ended in the meantime; the page shows how.
        return PageAnswer(redirect=target, notice=f"Not cancelled: {refusal}")
    return PageAnswer(redirect=target, notice="Cancel requested")


PAGES = (
    WebPage(method="GET", path="/jobs/{id}", act=_show, access=("job", "read")),
    WebPage(method="GET", path="/jobs/{id}/output", act=_show_output, access=("job", "read")),
    WebPage(method="POST", path="/jobs/{id}/cancel", act=_cancel, access=("job", "cancel")),
)
