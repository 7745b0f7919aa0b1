"""Orphans: what forced deletes and moves left on hosts. Their agents confirm the clean-up; admins may forget an orphan."""

from __future__ import annotations

import msgspec

from mainstay.control.api.contract import MAX_WAIT_SECONDS, WAIT, Answer, Call
from mainstay.control.api.nouns import command_endpoint, detail_endpoint, page_endpoint, report_endpoint
from mainstay.control.operations import agents, orphans
from mainstay.control.operations.machinery.refusals import BadInput, NotFound
from mainstay.control.operations.machinery.unit_of_work import UnitOfWork
from mainstay.control.operations.orphans import CleanUpConfirmation, CleanUpFailure, OrphanView
from mainstay.control.operations.plans import question_topic
from mainstay.control.store.engine.paging import CursorPage, Page, parse_listing
from mainstay.control.store.orphans import OPEN_ONLY, ORPHANS, OrphanRow, report_of

PATH = "/api/v1/orphans"


async def _list_orphans(call: Call) -> Answer:
    wait = call.number("wait", 0, 0, MAX_WAIT_SECONDS)
    agent_id = call.required_caller.agent_id
    if wait and agent_id is None:
        raise BadInput("only an agent can wait for its clean-ups; omit `wait`", code="bad_query")
    listing = parse_listing(ORPHANS, [each for each in call.query if each[0] != "wait"])
    await agents.note_blueprints(call.session)
    found: list[Page[OrphanRow] | CursorPage[OrphanRow]] = []

    async def check() -> bool:
        async with call.reading() as work:
            page = await work.page(ORPHANS, listing, OPEN_ONLY)
            items = await orphans.show_orphans(work, page.items)
        found[:] = [msgspec.structs.replace(page, items=items)]
        return bool(items)

    if wait:
        await call.wait_until_found(question_topic(str(agent_id)), check, wait)
    else:
        await check()
    return Answer(found[0])


async def _read_report(work: UnitOfWork, row: OrphanRow) -> object:
    report = await report_of(work.tx, row.id)
    if report is None:
        raise NotFound("report of orphan", row.id)
    return report


ENDPOINTS = (
    page_endpoint(
        PATH,
        ORPHANS,
        _list_orphans,
        OrphanView,
        "List the clean-ups that agents owe after forced deletes and moves; an agent may `wait` for the first",
        (WAIT,),
    ),
    detail_endpoint(
        f"{PATH}/{{id}}/report",
        ORPHANS,
        _read_report,
        summary="Show the agent's report of the last clean-up of an orphan",
        answer=object,
    ),
    report_endpoint(
        f"{PATH}/{{id}}/confirm",
        ORPHANS,
        CleanUpConfirmation,
        orphans.confirm,
        summary="Confirm that the host is clean; the service releases what it held",
        refusals=(404,),
    ),
    report_endpoint(
        f"{PATH}/{{id}}/fail",
        ORPHANS,
        CleanUpFailure,
        orphans.fail,
        summary="Report that a clean-up failed; the orphan stays open",
        refusals=(404,),
    ),
    command_endpoint(
        f"{PATH}/{{id}}/forget",
        ORPHANS,
        "forget",
        orphans.forget,
        summary="Close an orphan without a clean-up",
        status=204,
        refusals=(404,),
        lock=False,
    ),
)
