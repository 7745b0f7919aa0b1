"""Events in strict order: lists, a stream, and leases for subscribers."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from functools import partial

import msgspec

from mainstay.control.api.contract import Answer, Call, Endpoint
from mainstay.control.api.errors import HttpRefusal
from mainstay.control.api.long_poll import first_of
from mainstay.control.api.nouns import page_endpoint
from mainstay.control.operations import events, subscriptions
from mainstay.control.operations.events import EventsCheckpoint, EventView
from mainstay.control.operations.machinery.consumer_view import refuse_as_criterion
from mainstay.control.operations.machinery.refusals import BadInput
from mainstay.control.operations.subscriptions import Acknowledged, Acknowledgement, LeasedEvents, LeaseRequest
from mainstay.control.store.engine.paging import parse_listing
from mainstay.control.store.events import EVENTS
from mainstay.control.store.subscriptions import last_number
from mainstay.foundation.numbers import LARGEST_NUMBER, parse_count

PATH = "/api/v1/events"
STREAMED_AT_ONCE = 200
HEARTBEAT_SECONDS = 15.0


class EventReset(msgspec.Struct, frozen=True, rename="camel"):
    """Events up to this number are deleted; the client has missed some of them."""

    deleted_up_to: int


async def _list_events(call: Call) -> Answer:
    refuse_as_criterion(call.required_caller, "hash", call.query)
    listing = parse_listing(EVENTS, call.query, substrings=frozenset({"type"}))
    await events.number(call.dependencies.store)
    async with call.reading() as work:
        return Answer(await events.page(work, listing))


async def _lease(call: Call) -> Answer:
    wanted = call.read(LeaseRequest)
    await events.number(call.dependencies.store)
    async with call.transaction() as work:
        return Answer(await subscriptions.lease(work, wanted))


async def _show_checkpoint(call: Call) -> Answer:
    async with call.reading() as work:
        return Answer(await events.checkpoint(work))


async def _acknowledge(call: Call) -> Answer:
    wanted = call.read(Acknowledgement)
    async with call.transaction() as work:
        return Answer(await subscriptions.acknowledge(work, wanted))


async def _stream(call: Call) -> Answer:
    given = call.headers.get("last-event-id", "").strip()
    number = parse_count(given, 0, LARGEST_NUMBER)
    if given and number is None:
        raise BadInput("Last-Event-ID must be the number of an event", code="bad_query")
    call.dependencies.long_poll_slots.refuse_if_full(call.required_caller)
    await events.number(call.dependencies.store)
    async with call.reading() as work:
        deleted = (await events.checkpoint(work)).sequence_number
        last = await last_number(work.tx) if number is None else number
    headers = {"X-Accel-Buffering": "no"}
    return Answer(stream=_send_events(call, last, deleted), media_type="text/event-stream", headers=headers)


async def _send_events(call: Call, last: int, deleted: int) -> AsyncIterator[bytes]:
    """Events as they are committed, until the token of the caller ends. A periodic comment keeps the connection open.
    `deleted`: the number of the last deleted event; a client that has not received it must read everything anew."""
    yield b": connected\n\n"
    if last < deleted:
        data = msgspec.json.encode(EventReset(deleted))
        yield f"id: {deleted}\nevent: reset\ndata: ".encode() + data + b"\n\n"
        last = deleted
    dependencies, caller = call.dependencies, call.required_caller
    hub, stopping = dependencies.live, dependencies.readiness.stopping
    with (
        dependencies.long_poll_slots.taken(caller),
        dependencies.open_connections.opened(caller) as connection,
        hub.attached(caller, keeps_messages=False) as woken,
    ):
        while not (stopping.is_set() or connection.ended.is_set()):
            if not hub.ready.is_set():
                await first_of((hub.ready, stopping, connection.ended), HEARTBEAT_SECONDS)
                continue
            woken.changed.clear()
            newest = hub.newest or 0
            key = (caller.role, caller.participant_id, last, newest)
            found = await hub.share(key, partial(_read_after, call, last)) if last < newest else []
            if found:
                with contextlib.suppress(HttpRefusal):
                    await dependencies.open_connections.confirm(connection, dependencies.store, dependencies.clock)
            for number, message in found:
                if connection.ended.is_set():
                    return
                yield message
                last = number
            if len(found) == STREAMED_AT_ONCE:
                continue
            # Skips events that the caller may not read.
            last = max(last, newest)
            await first_of((woken.changed, stopping, connection.ended), HEARTBEAT_SECONDS)
            if not woken.changed.is_set():
                yield b": still here\n\n"
                # Events of others have moved the position.
                last = max(last, hub.newest or 0) if not woken.changed.is_set() else last


async def _read_after(call: Call, last: int) -> list[tuple[int, bytes]]:
    """Numbers and messages of the next events that the caller may read."""
    async with call.reading() as work:
        found = await subscriptions.events_after(work, last, STREAMED_AT_ONCE)
    return [
        (
            event.sequence_number or last,
            f"id: {event.sequence_number}\nevent: {event.type}\ndata: ".encode()
            + msgspec.json.encode(event)
            + b"\n\n",
        )
        for event in found
    ]


ENDPOINTS = (
    Endpoint(
        method="POST",
        path=f"{PATH}/lease",
        act=_lease,
        access=("event", "lease"),
        summary="Lease the next events of a subscriber to one of its instances",
        body=LeaseRequest,
        answer=LeasedEvents,
        refusals=(409,),
    ),
    Endpoint(
        method="POST",
        path=f"{PATH}/ack",
        act=_acknowledge,
        access=("event", "lease"),
        summary="Acknowledge events of a subscriber up to a number",
        body=Acknowledgement,
        answer=Acknowledged,
        refusals=(409,),
    ),
    Endpoint(
        method="GET",
        path=f"{PATH}/checkpoint",
        act=_show_checkpoint,
        access=("event", "verify"),
        summary="Number and hash of the last deleted event, where the hash chain begins",
        answer=EventsCheckpoint,
    ),
    Endpoint(
        method="GET",
        path=f"{PATH}/stream",
        act=_stream,
        access=("event", "read"),
        summary="Stream events (Server-Sent Events); Last-Event-ID resumes after that event, or sends `reset` if events"
        " after it are deleted",
        answer=str,
        media_type="text/event-stream",
        refusals=(400,),
    ),
    page_endpoint(PATH, EVENTS, _list_events, EventView, "List events"),
)
