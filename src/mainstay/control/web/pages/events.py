"""Events, newest first: what changed, from what to what, by whom. Filters are in the URL."""

from __future__ import annotations

from typing import Any

from mainstay.control.access import Role
from mainstay.control.domain.event_types import EVENT_TYPES
from mainstay.control.operations import events as operations
from mainstay.control.operations.events import EventView
from mainstay.control.store.engine.paging import BadQuery, CursorPage, parse_listing
from mainstay.control.store.events import EVENTS, entity_names, first_unhashed
from mainstay.control.web.contract import NavigationEntry, PageAnswer, PageCall, WebPage
from mainstay.control.web.event_changes import event_changes
from mainstay.control.web.event_words import event_words, initiator_of

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
# The page of a row, by the noun of the event.
PAGES_OF_NOUNS = {
    "agent": "/agents/{}",
    "agent_type": "/agent-types/{}/edit",
    "config_pool": "/config-pools/{}",
    "job": "/jobs/{}",
    "metric_type": "/metric-types/{}/edit",
    "orphan": "/orphans/{}",
    "participant": "/participants/{}",
    "service": "/services/{}",
    "service_group": "/groups/{}/edit",
    "service_option": "/options/{}/edit",
    "service_option_type": "/option-types/{}",
    "service_pool": "/pools/{}",
    "service_pool_set": "/pools?set={}",
    "service_type": "/service-types/{}",
    "token": "/tokens/{}/edit",
}
# Forms, which not every reader may use.
FORMS = ("/edit",)


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
        "events": [_shown(call, each, names) for each in page.items],
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


def _shown(call: PageCall, event: EventView, names: dict[str, str]) -> dict[str, Any]:
    changes, more = event_changes(event.properties)
    noun = event.type.partition(".")[0]
    name = names.get(event.entity_id)
    href = PAGES_OF_NOUNS.get(noun, "") if name is not None else ""
    if href.endswith(FORMS) and call.caller.read_only:
        href = ""
    return {
        "event": event,
        "name": name or _last_name(event) or event.entity_id,
        "href": href.format(event.entity_id),
        "words": event_words(event),
        "by": initiator_of(event),
        "changes": changes,
        "more": more,
    }


def _last_name(event: EventView) -> str:
    """The name of a row that no longer exists, from the event of its creation or deletion."""
    patch = event.properties.get("diff")
    for each in patch if isinstance(patch, list) else ():
        if isinstance(each, dict) and each.get("path") == "/name" and isinstance(each.get("value"), str):
            return str(each["value"])
    return ""


PAGES = (
    WebPage(
        method="GET",
        path="/events",
        act=_list,
        access=("event", "read"),
        navigation=NavigationEntry("Events", "i-event", 1, "Record"),
    ),
)
