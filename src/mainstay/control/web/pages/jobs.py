"""The list of jobs, newest first: filters by state, service and agent and pages by cursor, all in the URL."""

from __future__ import annotations

from typing import Any, get_args

from mainstay.control.access import Role, reading_relation
from mainstay.control.domain.jobs import ACTIVE, JobStatus
from mainstay.control.domain.values import is_uuid
from mainstay.control.operations import job_reports
from mainstay.control.operations.machinery.unit_of_work import UnitOfWork
from mainstay.control.operations.machinery.views import JobView, show_jobs
from mainstay.control.store.agents import AGENTS
from mainstay.control.store.engine.paging import CursorPage, parse_listing
from mainstay.control.store.engine.records import Table
from mainstay.control.store.jobs import ACTIVE_JOBS, JOBS, with_status
from mainstay.control.store.services import SERVICES
from mainstay.control.web.contract import NavigationEntry, PageAnswer, PageCall, WebPage
from mainstay.control.web.views.jobs import ShownJob, shown_job

PAGE_SIZE = "50"
MATCHING_NAMES = "100"
# No row has this id.
NOTHING = "00000000-0000-0000-0000-000000000000"
FILTERS = ("service", "agent", "serviceId", "agentId")
VIEWS = (
    ("All", ()),
    ("In flight", ACTIVE),
    ("Failed", ("Failed",)),
    ("Done", ("Completed",)),
    ("Cancelled", ("Cancelled",)),
)


async def _show(call: PageCall) -> PageAnswer:
    statuses = tuple(value for name, value in call.query if name == "status" and value)
    service, agent, after = call.asked("service"), call.asked("agent"), call.asked("after")
    async with call.reading() as work:
        filters = [
            *(("agentId", each) for each in await _ids(work, AGENTS, agent or call.asked("agentId"))),
            *(("serviceId", each) for each in await _ids(work, SERVICES, service or call.asked("serviceId"))),
        ]
        query = [*filters, ("sort", "-createdAt"), ("pageSize", PAGE_SIZE), ("after", after)]
        wanted = _job_statuses(statuses)
        reads_all = call.caller.role is Role.ADMIN and not filters
        source = ACTIVE_JOBS if reads_all and wanted and {*wanted} <= {*ACTIVE} else None
        page = await work.page(JOBS, parse_listing(JOBS, query), *with_status(wanted), source=source)
        items = await show_jobs(work, page.items)
        shown = await _with_context(work, items)
    kept = [(name, value) for name, value in call.query if name in FILTERS and value]
    chosen = [("status", each) for each in statuses]
    values = {
        "rows": list(zip(shown, items, strict=True)),
        "views": [
            (label, [*(("status", each) for each in wanted), *kept], set(wanted) == set(statuses))
            for label, wanted in VIEWS
        ],
        "statuses": statuses,
        "statuses_only": chosen,
        "filters": dict.fromkeys(FILTERS, "") | dict(kept),
        "is_filtered": bool(kept),
        "query": [*chosen, *kept],
        "next": page.next if isinstance(page, CursorPage) else None,
        "after": after,
        "has_active": any(job.is_active for job in shown),
    }
    return PageAnswer("jobs.html", values)


def _job_statuses(given: tuple[str, ...]) -> list[JobStatus]:
    # Refuses unknown ones.
    parse_listing(JOBS, [("status", each) for each in given])
    return [status for status in get_args(JobStatus) if status in given]


async def _ids(work: UnitOfWork, table: Table[Any], wanted: str) -> list[str]:
    """The rows with this id, or with this text in their name, as far as the caller may read them; [] : all."""
    if not wanted:
        return []
    if is_uuid(wanted):
        return [wanted.lower()]
    if reading_relation(work.required_caller, table.noun) is None:
        return [NOTHING]
    query = [("name", wanted), ("pageSize", MATCHING_NAMES), ("after", "")]
    found = await work.page(table, parse_listing(table, query))
    return [row.id for row in found.items] or [NOTHING]


async def _with_context(work: UnitOfWork, items: list[JobView]) -> list[ShownJob]:
    parties = {each.id: each.name for job in items for each in (job.provider, job.consumer)}
    contexts = await job_reports.read_contexts(work, items, parties)
    return [shown_job(job, contexts.get(job.id), job.service.agent.status, work.now) for job in items]


PAGES = (
    WebPage(
        method="GET",
        path="/jobs",
        act=_show,
        access=("job", "read"),
        navigation=NavigationEntry("Jobs", "i-jobs", 3),
    ),
)
