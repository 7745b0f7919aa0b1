"""The live stream of a signed-in browser (Server-Sent Events)."""

from __future__ import annotations

from mainstay.control.operations.machinery.refusals import BadInput
from mainstay.control.web.contract import PageAnswer, PageCall, WebPage
from mainstay.control.web.live import live_messages
from mainstay.foundation.numbers import LARGEST_NUMBER, parse_count


async def _stream(call: PageCall) -> PageAnswer:
    given = call.call.headers.get("last-event-id", "").strip() or call.asked("after")
    after = parse_count(given, 0, LARGEST_NUMBER)
    if given and after is None:
        raise BadInput("Last-Event-ID must be the number of an event", code="bad_query")
    dependencies, caller = call.call.dependencies, call.caller
    dependencies.long_poll_slots.refuse_if_full(caller)
    session_id = None if call.session is None else call.session.id
    return PageAnswer(stream=live_messages(dependencies, call.hub, caller, session_id, after))


PAGES = (WebPage(method="GET", path="/live", act=_stream, access=("event", "read")),)
