"""Jobs: lists for all roles; claim, renew, release, complete and fail for agents."""

from __future__ import annotations

from datetime import datetime

import msgspec

from mainstay.control.api.contract import Answer, Call, Endpoint, QueryParameter
from mainstay.control.api.long_poll import wait_until_found
from mainstay.control.operations import jobs
from mainstay.control.operations.jobs import Claim, Completion, FailureReport, Release, Renewal, Renewed
from mainstay.control.operations.machinery.consumer_view import refuse_as_criterion
from mainstay.control.operations.machinery.runs import agent_topic
from mainstay.control.operations.machinery.views import JobView, show_jobs
from mainstay.control.store.engine.paging import Page, parse_listing
from mainstay.control.store.jobs import JOBS

PATH = "/api/v1/jobs"
MAX_WAIT_SECONDS = 60


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
    return Answer({**msgspec.to_builtins(page), "items": items})


async def _show(call: Call) -> Answer:
    async with call.reading() as work:
        row = await work.find(JOBS, call.path["id"])
        return Answer((await show_jobs(work, [row]))[0])


async def _show_report(call: Call) -> Answer:
    async with call.reading() as work:
        row = await work.find(JOBS, call.path["id"])
        return Answer(await jobs.read_report(work, row))


async def list_pending(call: Call) -> Answer:
    limit = call.number("limit", 10, 1, 100)
    wait = call.number("wait", 0, 0, MAX_WAIT_SECONDS)
    service_id = call.uuid("serviceId")

    async def check() -> list[JobView]:
        # Without a snapshot: a change between the two queries is as harmless as one after the response.
        async with call.autocommit() as work:
            return await jobs.pending(work, limit, service_id)

    return Answer(await wait_until_found(call, agent_topic(str(call.required_caller.agent_id)), check, wait))


async def _claim(call: Call) -> Answer:
    async with call.transaction() as work:
        job = await work.find(JOBS, call.path["id"], "work")
        leased = await jobs.claim(work, job, call.read(Claim))
        if leased is None:
            return Answer(status=204)
        (shown,) = await show_jobs(work, [leased.job])
    return Answer(LeasedJob(leased.lease_token, leased.lease_expires_at, shown))


async def _renew(call: Call) -> Answer:
    async with call.transaction() as work:
        job = await work.find(JOBS, call.path["id"], "work")
        return Answer(await jobs.renew(work, job, call.read(Renewal)))


async def _release(call: Call) -> Answer:
    async with call.transaction() as work:
        job = await work.find(JOBS, call.path["id"], "work")
        await jobs.release(work, job, call.read(Release))
    return Answer()


async def _complete(call: Call) -> Answer:
    async with call.transaction() as work:
        job = await work.find(JOBS, call.path["id"], "work")
        await jobs.complete(work, job, call.read(Completion))
    return Answer()


async def _fail(call: Call) -> Answer:
    async with call.transaction() as work:
        job = await work.find(JOBS, call.path["id"], "work")
        await jobs.fail(work, job, call.read(FailureReport))
    return Answer()


async def _cancel(call: Call) -> Answer:
    async with call.transaction() as work:
        job = await work.find(JOBS, call.path["id"], "cancel")
        call.refuse_body()
        await jobs.cancel(work, job)
    return Answer()


READ = ("job", "read")
WORK = ("job", "work")

ENDPOINTS = (
    Endpoint(
        method="GET",
        path=PATH,
        act=_list_jobs,
        access=READ,
        summary="List jobs",
        answer=Page[JobView],
        lists=JOBS,
        refusals=(400,),
    ),
    Endpoint(
        method="GET",
        path=f"{PATH}/pending",
        act=list_pending,
        access=WORK,
        summary="List the jobs that the agent may claim; `wait` holds the request until there is one",
        answer=list[JobView],
        query=(
            QueryParameter("limit", "Maximum number", {"type": "integer", "minimum": 1, "maximum": 100}),
            QueryParameter("wait", "Seconds to wait", {"type": "integer", "minimum": 0, "maximum": MAX_WAIT_SECONDS}),
            QueryParameter("serviceId", "Only jobs of this service"),
        ),
        refusals=(400,),
    ),
    Endpoint(
        method="GET",
        path=f"{PATH}/{{id}}",
        act=_show,
        access=READ,
        summary="Show one job",
        answer=JobView,
        refusals=(404,),
    ),
    Endpoint(
        method="GET",
        path=f"{PATH}/{{id}}/report",
        act=_show_report,
        access=READ,
        summary="Show the agent's report of a finished job",
        answer=object,
        refusals=(404,),
    ),
    Endpoint(
        method="POST",
        path=f"{PATH}/{{id}}/claim",
        act=_claim,
        access=WORK,
        summary="Claim a job: with `leaseSeconds` under a lease (200), else until its action's timeout (204)",
        body=Claim,
        answer=LeasedJob,
        refusals=(204, 400, 404, 409),
    ),
    Endpoint(
        method="POST",
        path=f"{PATH}/{{id}}/renew",
        act=_renew,
        access=WORK,
        summary="Renew the lease and report progress",
        body=Renewal,
        answer=Renewed,
        refusals=(400, 404, 409),
    ),
    *(
        Endpoint(
            method="POST",
            path=f"{PATH}/{{id}}/{name}",
            act=act,
            access=access,
            summary=summary,
            status=204,
            body=body,
            refusals=(400, 404, 409),
        )
        for name, act, access, summary, body in (
            ("release", _release, WORK, "Release a job, so that it is pending again", Release),
            ("complete", _complete, WORK, "Report that a job is completed, with its results", Completion),
            ("fail", _fail, WORK, "Report that a job failed", FailureReport),
            (
                "cancel",
                _cancel,
                ("job", "cancel"),
                "Cancel a run: at once if the job is pending, else through the agent",
                None,
            ),
        )
    ),
)
