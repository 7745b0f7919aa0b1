"""Events: what happened, strictly in order."""

from __future__ import annotations

from mainstay.control.api.contract import Answer, Call, Endpoint
from mainstay.control.operations import events
from mainstay.control.store.events import EVENTS, Event
from mainstay.control.store.paging import Page, parse_listing

PATH = "/api/v1/events"


async def list_events(call: Call) -> Answer:
    listing = parse_listing(EVENTS, call.query, substrings=frozenset({"type"}))
    await events.number(call.parts.store)
    async with call.reading() as work:
        return Answer(await events.page(work, listing))


ENDPOINTS = (
    Endpoint(
        method="GET",
        path=PATH,
        act=list_events,
        access=("event", "read"),
        summary="List events",
        answer=Page[Event],
        lists=EVENTS,
        refusals=(400,),
    ),
)
