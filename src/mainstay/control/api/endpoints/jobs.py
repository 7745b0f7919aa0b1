"""Jobs: lists for all roles; claim, renew, release, complete and fail for agents."""

from __future__ import annotations

from datetime import datetime

import msgspec

from mainstay.control.api.contract import LIMIT, MAX_WAIT_SECONDS, WAIT, Answer, Call, Endpoint, QueryParameter
from mainstay.control.api.nouns import command_endpoint, detail_endpoint, page_endpoint, report_endpoint
from mainstay.control.operations import job_reports, jobs
from mainstay.control.operations.jobs import Claim, Completion, FailureReport, Release, Renewal, Renewed
from mainstay.control.operations.machinery.consumer_view import refuse_as_criterion
from mainstay.control.operations.machinery.job_chains import agent_topic
from mainstay.control.operations.machinery.unit_of_work import UnitOfWork
from mainstay.control.operations.machinery.views import JobView, show_jobs
from mainstay.control.store.engine.paging import parse_listing
from mainstay.control.store.jobs import JOBS, JobRow

PATH = "/api/v1/jobs"


class LeasedJob(msgspec.Struct, frozen=True, rename="camel"):
    lease_token: str
    lease_expires_at: datetime
    job: JobView


async def _list_jobs(call: Call) -> Answer:
    refuse_as_criterion(call.required_caller, "errorMessage", call.query)
    listing = parse_listing(JOBS, call.query)
    async with call.reading() as work:
        page = await work.page(JOBS, listing)
        items = await show_jobs(work, page.items)
    return Answer(msgspec.structs.replace(page, items=items))


async def _show(work: UnitOfWork, row: JobRow) -> JobView:
    return (await show_jobs(work, [row]))[0]


async def list_pending(call: Call) -> Answer:
    limit = call.number("limit", 10, 1, 100)
    wait = call.number("wait", 0, 0, MAX_WAIT_SECONDS)
    service_id = call.uuid("serviceId")

    async def check() -> list[JobView]:
        # Without a snapshot: a change between the two queries is as harmless as one after the response.
        async with call.autocommit() as work:
            return await jobs.pending(work, limit, service_id)

    return Answer(await call.wait_until_found(agent_topic(str(call.required_caller.agent_id)), check, wait))


async def _claim(call: Call) -> Answer:
    async with call.transaction() as work:
        job = await work.find(JOBS, call.path["id"], "work")
        leased = await jobs.claim(work, job, call.read(Claim))
        if leased is None:
            return Answer(status=204)
        (shown,) = await show_jobs(work, [leased.job])
    return Answer(LeasedJob(leased.lease_token, leased.lease_expires_at, shown))


WORK = ("job", "work")
REFUSALS = (400, 404, 409)

ENDPOINTS = (
    page_endpoint(PATH, JOBS, _list_jobs, JobView, "List jobs"),
    Endpoint(
        method="GET",
        path=f"{PATH}/pending",
        act=list_pending,
        access=WORK,
        summary="List the jobs that the agent may claim; `wait` holds the request until there is one",
        answer=list[JobView],
        query=(LIMIT, WAIT, QueryParameter("serviceId", "Only jobs of this service")),
        refusals=(400,),
    ),
    detail_endpoint(f"{PATH}/{{id}}", JOBS, _show, summary="Show one job", answer=JobView),
    detail_endpoint(
        f"{PATH}/{{id}}/report",
        JOBS,
        job_reports.read_report,
        summary="Show the agent's report of a finished job",
        answer=object,
    ),
    Endpoint(
        method="POST",
        path=f"{PATH}/{{id}}/claim",
        act=_claim,
        access=WORK,
        summary="Claim a job: with `leaseSeconds` under a lease (200), else until its action's timeout (204)",
        body=Claim,
        answer=LeasedJob,
        refusals=(204, *REFUSALS),
    ),
    report_endpoint(
        f"{PATH}/{{id}}/renew",
        JOBS,
        Renewal,
        jobs.renew,
        summary="Renew the lease and report progress",
        answer=Renewed,
        refusals=REFUSALS,
    ),
    report_endpoint(
        f"{PATH}/{{id}}/release",
        JOBS,
        Release,
        jobs.release,
        summary="Release a job, so that it is pending again",
        refusals=REFUSALS,
    ),
    report_endpoint(
        f"{PATH}/{{id}}/complete",
        JOBS,
        Completion,
        jobs.complete,
        summary="Report that a job is completed, with its results",
        refusals=REFUSALS,
    ),
    report_endpoint(
        f"{PATH}/{{id}}/fail",
        JOBS,
        FailureReport,
        jobs.fail,
        summary="Report that a job failed",
        refusals=REFUSALS,
    ),
    command_endpoint(
        f"{PATH}/{{id}}/cancel",
        JOBS,
        "cancel",
        jobs.cancel,
        summary="Cancel a run: at once if the job is pending, else through the agent",
        status=204,
        refusals=REFUSALS,
        lock=False,
    ),
)
