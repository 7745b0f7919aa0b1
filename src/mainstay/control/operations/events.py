"""Events for readers: numbered without gaps after the commit, so that a reader never skips an event, and chained by
hashes, so that a changed or missing event is noticed."""

from __future__ import annotations

from collections.abc import Sequence
from time import monotonic
from typing import Any

import msgspec

from mainstay.control.access import Caller, Role
from mainstay.control.domain.event_chain import FIRST, next_hash
from mainstay.control.domain.event_encoding import canonical_event
from mainstay.control.operations.machinery.consumer_view import consumer_event, sees_host
from mainstay.control.operations.machinery.unit_of_work import UnitOfWork
from mainstay.control.operations.machinery.views import Named
from mainstay.control.store.engine.contract import Store, Transaction
from mainstay.control.store.engine.paging import CursorPage, Listing, Page, list_page
from mainstay.control.store.events import (
    EVENTS,
    NUMBERED,
    ChainedEvent,
    EventParties,
    EventRow,
    has_unnumbered,
    hash_of,
    lock_chain,
    number_events,
    read_checkpoint,
    read_parties,
    read_unhashed,
    read_unnumbered,
    set_numbers_and_hashes,
)
from mainstay.control.store.subscriptions import last_number

# Events may be large: a transaction blocks other writers, and hashing blocks the process.
HASHED_AT_ONCE = 500
HASHING_SECONDS = 0.05


class EventView(EventRow, frozen=True, kw_only=True, omit_defaults=False):
    # For admins and for the initiator's own participant.
    initiator_name: str | None = None
    initiator_participant_id: str | None = None
    # None: no such owner, or it was deleted.
    provider: Named | None = None
    consumer: Named | None = None
    agent: Named | None = None


class EventsCheckpoint(msgspec.Struct, frozen=True, rename="camel"):
    """The last deleted event. Number 0 and 64 zeros: no event was deleted."""

    sequence_number: int
    hash: str
    # How many days events are kept; 0: for ever.
    retention_days: int


async def checkpoint(work: UnitOfWork) -> EventsCheckpoint:
    found = await read_checkpoint(work.tx)
    days = work.tools.retention.events
    if found is None:
        return EventsCheckpoint(0, FIRST, days)
    return EventsCheckpoint(found.sequence_number, found.hash, days)


async def number(store: Store) -> None:
    """Numbers committed events before they are read. Without new events it writes nothing."""
    async with store.reading() as tx:
        if not await has_unnumbered(tx):
            return
    async with store.transaction() as tx:
        await lock_chain(tx)
        if await _chain_new(tx):
            # The reader must not wait for the hashes of a long queue; the background task adds them.
            await number_events(tx)


async def chain_next(tx: Transaction) -> bool:
    """Numbers and hashes committed events in order. Returns whether there may be more."""
    new = await has_unnumbered(tx)
    if not new and not await read_unhashed(tx, 1):
        return False
    await lock_chain(tx)
    # Events that a reader numbered, or a release without hashes, come first.
    more = await _hash_in_order(tx, await read_unhashed(tx, HASHED_AT_ONCE))
    return more or (new and await _chain_new(tx))


async def _chain_new(tx: Transaction) -> bool:
    """Numbers and hashes new events, each with one write. Returns whether there may be more."""
    newest = await last_number(tx)
    if newest and await hash_of(tx, newest) is None:
        await number_events(tx)
        return True
    waiting = await read_unnumbered(tx, HASHED_AT_ONCE)
    for number, event in enumerate(waiting, newest + 1):
        event["sequenceNumber"] = number
    return await _hash_in_order(tx, waiting)


async def _hash_in_order(tx: Transaction, waiting: Sequence[dict[str, Any]]) -> bool:
    """Stores the hashes of these events up to the first gap. Returns whether there may be more."""
    if not waiting:
        return False
    until = monotonic() + HASHING_SECONDS
    last = await hash_of(tx, waiting[0]["sequenceNumber"] - 1) or FIRST
    chained: list[ChainedEvent] = []
    for event in waiting:
        number = event["sequenceNumber"]
        if chained and (number != chained[-1].number + 1 or monotonic() >= until):
            break
        last = next_hash(last, canonical_event(event))
        chained.append(ChainedEvent(event["id"], number, last))
    await set_numbers_and_hashes(tx, chained)
    return len(chained) < len(waiting) or len(waiting) == HASHED_AT_ONCE


async def page(work: UnitOfWork, listing: Listing) -> Page[EventView] | CursorPage[EventView]:
    found = await list_page(work.tx, EVENTS, listing, [*work.scope("event"), NUMBERED])
    return msgspec.structs.replace(found, items=await show_events(work, found.items))  # type: ignore[return-value]


async def show_events(work: UnitOfWork, rows: Sequence[EventRow]) -> list[EventView]:
    parties = await read_parties(work.tx, [row.id for row in rows])
    return [_show(work.required_caller, row, parties[row.id]) for row in rows]


def _show(caller: Caller, row: EventRow, parties: EventParties) -> EventView:
    sees_name = caller.role is Role.ADMIN or (
        caller.participant_id is not None and caller.participant_id == parties.initiator_participant_id
    )
    shown = row if sees_host(caller, row.provider_id) else consumer_event(row)
    if caller.role is not Role.ADMIN:
        # The hash covers what a consumer does not see, and would confirm guesses.
        shown = msgspec.structs.replace(shown, hash=None)
    return EventView(
        **msgspec.structs.asdict(shown),
        initiator_name=parties.initiator_name if sees_name else None,
        initiator_participant_id=parties.initiator_participant_id if sees_name else None,
        provider=_named(row.provider_id, parties.provider),
        consumer=_named(row.consumer_id, parties.consumer),
        agent=_named(row.agent_id, parties.agent),
    )


def _named(record_id: str | None, name: str | None) -> Named | None:
    return None if record_id is None or name is None else Named(record_id, name)
