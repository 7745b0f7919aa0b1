"""Roll-outs: one action on all services of a type, in waves. Admins start, pause, resume and abort them."""

from __future__ import annotations

import msgspec

from mainstay.control.api.contract import Answer, Call, Endpoint
from mainstay.control.api.nouns import command_endpoint, detail_endpoint, page_endpoint
from mainstay.control.domain.rollouts import RolloutVerb
from mainstay.control.operations import rollouts
from mainstay.control.operations.machinery.unit_of_work import UnitOfWork
from mainstay.control.operations.rollouts import NewRollout, RolloutItemView, RolloutView
from mainstay.control.store.engine.paging import Page, list_page, parse_listing
from mainstay.control.store.rollouts import ROLLOUT_ITEMS, ROLLOUTS, RolloutRow, items_of

PATH = "/api/v1/rollouts"


async def _list_rollouts(call: Call) -> Answer:
    listing = parse_listing(ROLLOUTS, call.query)
    async with call.reading() as work:
        page = await work.page(ROLLOUTS, listing)
        items = await rollouts.show_rollouts(work, page.items)
    return Answer(msgspec.structs.replace(page, items=items))


async def _list_items(call: Call) -> Answer:
    listing = parse_listing(ROLLOUT_ITEMS, call.query)
    async with call.reading() as work:
        row = await work.find(ROLLOUTS, call.path["id"])
        page = await list_page(work.tx, ROLLOUT_ITEMS, listing, [items_of(row.id)])
        items = await rollouts.show_items(work, page.items)
    return Answer(msgspec.structs.replace(page, items=items))


async def _create(call: Call) -> Answer:
    async with call.transaction() as work:
        row = await rollouts.create(work, call.read(NewRollout))
        return Answer(await rollouts.show_rollout(work, row))


def _verb_endpoint(verb: RolloutVerb, summary: str) -> Endpoint:
    async def change(work: UnitOfWork, row: RolloutRow) -> RolloutView:
        return await rollouts.show_rollout(work, await rollouts.change_status(work, row, verb))

    return command_endpoint(
        f"{PATH}/{{id}}/{verb}",
        ROLLOUTS,
        "write",
        change,
        summary=summary,
        answer=RolloutView,
        refusals=(404, 409),
    )


ENDPOINTS = (
    page_endpoint(PATH, ROLLOUTS, _list_rollouts, RolloutView, "List roll-outs"),
    Endpoint(
        method="POST",
        path=PATH,
        act=_create,
        access=("rollout", "write"),
        summary="Roll out an action to all living services of a type, in waves",
        status=201,
        body=NewRollout,
        answer=RolloutView,
        refusals=(400, 409),
    ),
    detail_endpoint(
        f"{PATH}/{{id}}",
        ROLLOUTS,
        rollouts.show_rollout,
        summary="Show one roll-out with the number of its items by state",
        answer=RolloutView,
    ),
    Endpoint(
        method="GET",
        path=f"{PATH}/{{id}}/items",
        act=_list_items,
        access=("rollout", "read"),
        summary="List the services of a roll-out with their wave and result",
        answer=Page[RolloutItemView],
        lists=ROLLOUT_ITEMS,
        refusals=(400, 404),
    ),
    _verb_endpoint("pause", "Pause a roll-out; running items end"),
    _verb_endpoint("resume", "Resume a paused or stopped roll-out, beginning with its failed items"),
    _verb_endpoint("abort", "Abort a roll-out; nothing is undone"),
)
