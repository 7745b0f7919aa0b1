"""Events, newest first: what changed, from what to what, by whom. Filters are in the URL."""

from __future__ import annotations

from typing import Any

from mainstay.control.access import Role
from mainstay.control.domain.event_types import EVENT_TYPES
from mainstay.control.operations import events as operations
from mainstay.control.store.engine.paging import BadQuery, CursorPage, parse_listing
from mainstay.control.store.events import EVENTS, entity_names, first_unhashed
from mainstay.control.web.contract import NavigationEntry, PageAnswer, PageCall, WebPage
from mainstay.control.web.views.events import show_event

PAGE_SIZE = "50"
SUBSTRINGS = frozenset({"type"})
# What other pages link with, besides the type.
FILTERS = {
    "entityId": "of one row",
    "initiatorId": "by one token",
    "agentId": "of one agent",
    "providerId": "of one provider",
    "consumerId": "of one consumer",
    "participantId": "of one participant",
}
NOUNS = sorted({each.partition(".")[0] for each in EVENT_TYPES})


async def _list(call: PageCall) -> PageAnswer:
    wanted, after = call.asked("type").strip(), call.asked("after")
    filters = [(name, call.asked(name)) for name in FILTERS if call.asked(name)]
    query = [("type", wanted), *filters, ("after", after), ("sort", "-sequenceNumber"), ("pageSize", PAGE_SIZE)]
    await operations.number(call.call.dependencies.store)
    is_admin = call.caller.role is Role.ADMIN
    page: Any = CursorPage([], has_next=False)
    names: dict[str, str] = {}
    fault, unhashed = "", None
    try:
        listing = parse_listing(EVENTS, query, substrings=SUBSTRINGS)
    except BadQuery as refusal:
        fault = str(refusal)
    else:
        async with call.reading() as work:
            page = await operations.page(work, listing)
            names = await entity_names(work.tx, [each.entity_id for each in page.items])
            unhashed = await first_unhashed(work.tx) if is_admin else None
    values = {
        "events": [show_event(each, names, call.caller) for each in page.items],
        "type": wanted,
        "filters": filters,
        "filter_words": FILTERS,
        "nouns": NOUNS,
        "older": page.next,
        "after": after,
        "fault": fault,
        "is_admin": is_admin,
        "unhashed": unhashed,
    }
    return PageAnswer("events.html", values, status=400 if fault else 200)


PAGES = (
    WebPage(
        method="GET",
        path="/events",
        act=_list,
        access=("event", "read"),
        navigation=NavigationEntry("Events", "i-event", 1, "Record"),
    ),
)
