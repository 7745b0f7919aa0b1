"""Orphans: what forced deletes and moves left on hosts. Their agents confirm the clean-up; admins may forget an orphan."""

from __future__ import annotations

import msgspec

from mainstay.control.api.contract import Answer, Call, Endpoint
from mainstay.control.operations import agents, orphans
from mainstay.control.operations.machinery.refusals import NotFound
from mainstay.control.operations.orphans import CleanUpConfirmation, CleanUpFailure, OrphanView
from mainstay.control.store.engine.paging import Page, parse_listing
from mainstay.control.store.orphans import OPEN_ONLY, ORPHANS, report_of

PATH = "/api/v1/orphans"


async def _list_orphans(call: Call) -> Answer:
    listing = parse_listing(ORPHANS, call.query)
    await agents.note_blueprints(call.session)
    async with call.reading() as work:
        page = await work.page(ORPHANS, listing, OPEN_ONLY)
        items = await orphans.show_orphans(work, page.items)
    return Answer({**msgspec.to_builtins(page), "items": items})


async def _show_report(call: Call) -> Answer:
    async with call.reading() as work:
        row = await work.find(ORPHANS, call.path["id"])
        report = await report_of(work.tx, row.id)
    if report is None:
        raise NotFound("report of orphan", row.id)
    return Answer(report)


async def _confirm(call: Call) -> Answer:
    async with call.transaction() as work:
        orphan = await work.find(ORPHANS, call.path["id"], "work")
        await orphans.confirm(work, orphan, call.read(CleanUpConfirmation))
    return Answer()


async def _fail(call: Call) -> Answer:
    async with call.transaction() as work:
        orphan = await work.find(ORPHANS, call.path["id"], "work")
        await orphans.fail(work, orphan, call.read(CleanUpFailure))
    return Answer()


async def _forget(call: Call) -> Answer:
    async with call.transaction() as work:
        orphan = await work.find(ORPHANS, call.path["id"], "forget")
        call.refuse_body()
        await orphans.forget(work, orphan)
    return Answer()


READ = ("orphan", "read")
WORK = ("orphan", "work")

ENDPOINTS = (
    Endpoint(
        method="GET",
        path=PATH,
        act=_list_orphans,
        access=READ,
        summary="List the clean-ups that agents owe after forced deletes and moves",
        answer=Page[OrphanView],
        lists=ORPHANS,
        refusals=(400,),
    ),
    Endpoint(
        method="GET",
        path=f"{PATH}/{{id}}/report",
        act=_show_report,
        access=READ,
        summary="Show the agent's report of the last clean-up of an orphan",
        answer=object,
        refusals=(404,),
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
            refusals=(404,),
        )
        for name, act, access, summary, body in (
            (
                "confirm",
                _confirm,
                WORK,
                "Confirm that the host is clean; the service releases what it held",
                CleanUpConfirmation,
            ),
            ("fail", _fail, WORK, "Report that a clean-up failed; the orphan stays open", CleanUpFailure),
            ("forget", _forget, ("orphan", "forget"), "Close an orphan without a clean-up", None),
        )
    ),
)
