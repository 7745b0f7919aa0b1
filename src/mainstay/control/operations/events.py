"""Events as readers see them: numbered without gaps, so that nobody ever skips one."""

from __future__ import annotations

from mainstay.control.operations.work import Work, scope
from mainstay.control.store.contract import Store
from mainstay.control.store.events import EVENTS, Event, has_unnumbered, number_events
from mainstay.control.store.paging import Condition, CursorPage, Listing, Page, list_page

NUMBERED = Condition("sequence_number IS NOT NULL")


async def number(store: Store) -> None:
    """Whoever reads first gives the committed rows their numbers; mostly there is nothing to do, and nothing is written."""
    async with store.reading() as tx:
        if not await has_unnumbered(tx):
            return
    async with store.transaction() as tx:
        await number_events(tx)


async def page(work: Work, listing: Listing) -> Page[Event] | CursorPage[Event]:
    own = scope(work.relation("event", "read"), work.who)
    return await list_page(work.tx, EVENTS, listing, [*own, NUMBERED])
