"""Orphans: what forced deletes and moves left on hosts. Their agents confirm the clean-up; admins may forget an orphan."""

from __future__ import annotations

import msgspec

from mainstay.control.api.contract import Answer, Call
from mainstay.control.api.nouns import command_endpoint, detail_endpoint, page_endpoint, report_endpoint
from mainstay.control.operations import agents, orphans
from mainstay.control.operations.machinery.refusals import NotFound
from mainstay.control.operations.machinery.unit_of_work import UnitOfWork
from mainstay.control.operations.orphans import CleanUpConfirmation, CleanUpFailure, OrphanView
from mainstay.control.store.engine.paging import parse_listing
from mainstay.control.store.orphans import OPEN_ONLY, ORPHANS, OrphanRow, report_of

PATH = "/api/v1/orphans"


async def _list_orphans(call: Call) -> Answer:
    listing = parse_listing(ORPHANS, call.query)
    await agents.note_blueprints(call.session)
    async with call.reading() as work:
        page = await work.page(ORPHANS, listing, OPEN_ONLY)
        items = await orphans.show_orphans(work, page.items)
    return Answer(msgspec.structs.replace(page, items=items))


async def _read_report(work: UnitOfWork, row: OrphanRow) -> object:
    report = await report_of(work.tx, row.id)
    if report is None:
        raise NotFound("report of orphan", row.id)
    return report


ENDPOINTS = (
    page_endpoint(
        PATH, ORPHANS, _list_orphans, OrphanView, "List the clean-ups that agents owe after forced deletes and moves"
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
