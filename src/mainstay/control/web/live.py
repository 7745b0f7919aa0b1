"""The live stream of a page: messages of the hub, until the session ends."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator

from mainstay.control.access import Caller
from mainstay.control.api.contract import Dependencies
from mainstay.control.api.errors import HttpRefusal
from mainstay.control.api.live_hub import HEARTBEAT_SECONDS, LiveHub, position_message
from mainstay.control.api.long_poll import first_of
from mainstay.control.store.engine.contract import Unavailable

ENDED = b"event: ended\ndata: {}\n\n"


async def live_messages(
    dependencies: Dependencies, hub: LiveHub, caller: Caller, session_id: str | None, after: int | None
) -> AsyncIterator[bytes]:
    """Messages as events are committed, until the session ends. A periodic message keeps the connection open, and
    moves the position of a browser past events that it may not read."""
    yield b": connected\n\n"
    stopping = dependencies.readiness.stopping
    with (
        dependencies.long_poll_slots.taken(caller),
        dependencies.open_connections.opened(caller, session_id) as connection,
        hub.attached(caller) as stream,
    ):
        while not (hub.ready.is_set() or stopping.is_set() or connection.ended.is_set()):
            await first_of((hub.ready, stopping, connection.ended), HEARTBEAT_SECONDS)
            yield b": waiting for the database\n\n"
        try:
            caught_up = await hub.catch_up(stream, after)
        except Unavailable:
            # The browser connects again.
            return
        yield caught_up
        while not (stopping.is_set() or stream.lags):
            if connection.ended.is_set():
                yield ENDED
                return
            if waiting := stream.take():
                with contextlib.suppress(HttpRefusal):
                    await dependencies.open_connections.confirm(connection, dependencies.store, dependencies.clock)
                if not connection.ended.is_set():
                    yield waiting
                continue
            await first_of((stream.changed, stopping, connection.ended), HEARTBEAT_SECONDS)
            if not stream.changed.is_set() and hub.newest is not None:
                yield position_message(hub.newest)
