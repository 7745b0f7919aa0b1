"""Events for readers: numbered without gaps after the commit, so that a reader never skips an event."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from mainstay.control.operations.machinery.consumer_view import consumer_event, sees_host
from mainstay.control.operations.machinery.unit_of_work import UnitOfWork
from mainstay.control.store.engine.contract import Store
from mainstay.control.store.engine.paging import CursorPage, Listing, Page, list_page, owned_by
from mainstay.control.store.events import EVENTS, NUMBERED, EventRow, has_unnumbered, number_events


async def number(store: Store) -> None:
    """Numbers committed events before they are read. Without new events it writes nothing."""
    async with store.reading() as tx:
        if not await has_unnumbered(tx):
            return
    async with store.transaction() as tx:
        await number_events(tx)


async def page(work: UnitOfWork, listing: Listing) -> Page[EventRow] | CursorPage[EventRow]:
    own = owned_by(work.relation("event", "read"), work.required_caller)
    found = await list_page(work.tx, EVENTS, listing, [*own, NUMBERED])
    return msgspec.structs.replace(found, items=shown_to(work, found.items))


def shown_to(work: UnitOfWork, events: Sequence[EventRow]) -> list[EventRow]:
    """The events as the caller may see them."""
    caller = work.required_caller
    return [event if sees_host(caller, event.provider_id) else consumer_event(event) for event in events]
