"""Roll-outs: one action on all services of a type, in waves. Admins start, pause, resume and abort them."""

from __future__ import annotations

import msgspec

from mainstay.control.api.contract import Answer, Call, Endpoint
from mainstay.control.domain.rollouts import RolloutVerb
from mainstay.control.operations import rollouts
from mainstay.control.operations.rollouts import NewRollout, RolloutItemView, RolloutView
from mainstay.control.store.engine.paging import Page, list_page, parse_listing
from mainstay.control.store.rollouts import ROLLOUT_ITEMS, ROLLOUTS, items_of

PATH = "/api/v1/rollouts"
READ = ("rollout", "read")
WRITE = ("rollout", "write")


async def _list_rollouts(call: Call) -> Answer:
    listing = parse_listing(ROLLOUTS, call.query)
    async with call.reading() as work:
        page = await work.page(ROLLOUTS, listing)
        items = await rollouts.show_rollouts(work, page.items)
    return Answer({**msgspec.to_builtins(page), "items": items})


async def _show(call: Call) -> Answer:
    async with call.reading() as work:
        return Answer(await rollouts.show_rollout(work, await work.find(ROLLOUTS, call.path["id"])))


async def _list_items(call: Call) -> Answer:
    listing = parse_listing(ROLLOUT_ITEMS, call.query)
    async with call.reading() as work:
        row = await work.find(ROLLOUTS, call.path["id"])
        page = await list_page(work.tx, ROLLOUT_ITEMS, listing, [items_of(row.id)])
        items = await rollouts.show_items(work, page.items)
    return Answer({**msgspec.to_builtins(page), "items": items})


async def _create(call: Call) -> Answer:
    async with call.transaction() as work:
        row = await rollouts.create(work, call.read(NewRollout))
        return Answer(await rollouts.show_rollout(work, row))


async def _change(call: Call, verb: RolloutVerb) -> Answer:
    async with call.transaction() as work:
        row = await work.find(ROLLOUTS, call.path["id"], "write", lock=True)
        call.refuse_body()
        return Answer(await rollouts.show_rollout(work, await rollouts.change_status(work, row, verb)))


async def _pause(call: Call) -> Answer:
    return await _change(call, "pause")


async def _resume(call: Call) -> Answer:
    return await _change(call, "resume")


async def _abort(call: Call) -> Answer:
    return await _change(call, "abort")


ENDPOINTS = (
    Endpoint(
        method="GET",
        path=PATH,
        act=_list_rollouts,
        access=READ,
        summary="List roll-outs",
        answer=Page[RolloutView],
        lists=ROLLOUTS,
        refusals=(400,),
    ),
    Endpoint(
        method="POST",
        path=PATH,
        act=_create,
        access=WRITE,
        summary="Roll out an action to all living services of a type, in waves",
        status=201,
        body=NewRollout,
        answer=RolloutView,
        refusals=(400, 409),
    ),
    Endpoint(
        method="GET",
        path=f"{PATH}/{{id}}",
        act=_show,
        access=READ,
        summary="Show one roll-out with the number of its items by state",
        answer=RolloutView,
        refusals=(404,),
    ),
    Endpoint(
        method="GET",
        path=f"{PATH}/{{id}}/items",
        act=_list_items,
        access=READ,
        summary="List the services of a roll-out with their wave and result",
        answer=Page[RolloutItemView],
        lists=ROLLOUT_ITEMS,
        refusals=(400, 404),
    ),
    *(
        Endpoint(
            method="POST",
            path=f"{PATH}/{{id}}/{verb}",
            act=act,
            access=WRITE,
            summary=summary,
            answer=RolloutView,
            refusals=(404, 409),
        )
        for verb, act, summary in (
            ("pause", _pause, "Pause a roll-out; running items end"),
            ("resume", _resume, "Resume a paused or stopped roll-out, beginning with its failed items"),
            ("abort", _abort, "Abort a roll-out; nothing is undone"),
        )
    ),
)
