"""The live stream of the pages: one reader per process reads new events, and passes them on to all open streams.

A message names what changed, not how: the page asks for the region again, under the usual rules of access."""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import AsyncIterator, Iterator

import msgspec
import structlog

from mainstay.control.access import Caller, relation_of
from mainstay.control.api.contract import Dependencies
from mainstay.control.api.errors import HttpRefusal
from mainstay.control.api.long_poll import first_of
from mainstay.control.operations import events
from mainstay.control.operations.machinery.unit_of_work import EVENT_TOPIC
from mainstay.control.store.engine.contract import Store, Unavailable
from mainstay.control.store.engine.paging import owned_by
from mainstay.control.store.events import EventSummary, read_checkpoint, read_summaries
from mainstay.control.store.subscriptions import last_number

RECENT = 2000
READ_AT_ONCE = 500
# A stream that lags further behind is closed; its browser connects again and catches up.
MAX_WAITING = 500
# A catch-up with more events than this asks the page to refresh everything instead.
MAX_CATCH_UP = 1000
# Between two reads: a burst of commits is one read.
INTERVAL_SECONDS = 0.2
RETRY_SECONDS = 1.0
HEARTBEAT_SECONDS = 15.0
RESET = b"event: reset\ndata: {}\n\n"
ENDED = b"event: ended\ndata: {}\n\n"

log = structlog.get_logger("mainstay.web")


class LiveStream:
    """The messages that wait for one browser."""

    def __init__(self, caller: Caller) -> None:
        self._caller = caller
        self._relation = relation_of(caller, "event", "read")
        # The same rule for the database.
        self.scope = owned_by(self._relation, caller)
        self._waiting: deque[bytes] = deque()
        # Set when messages wait, and when the stream lags too far behind.
        self.changed = asyncio.Event()
        self.lags = False

    def admits(self, change: EventSummary) -> bool:
        return self._relation.holds(self._caller, change)

    def offer(self, change: EventSummary, message: bytes) -> None:
        if self.lags or not self.admits(change):
            return
        if len(self._waiting) >= MAX_WAITING:
            self.lags = True
            self._waiting.clear()
        else:
            self._waiting.append(message)
        self.changed.set()

    def take(self) -> bytes:
        """All messages that wait, as one piece."""
        taken = b"".join(self._waiting)
        self._waiting.clear()
        self.changed.clear()
        return taken


class LiveHub:
    """Reads new events once and offers them to all streams. Without streams it reads nothing."""

    def __init__(self, store: Store, stopping: asyncio.Event) -> None:
        self._store = store
        self._stopping = stopping
        self._streams: set[LiveStream] = set()
        # All events after `_floor`, up to `newest`.
        self._recent: deque[tuple[EventSummary, bytes]] = deque()
        self._floor = 0
        # None: the reader has not started.
        self.newest: int | None = None
        # Set while `newest` is known.
        self.ready = asyncio.Event()
        self._reader: asyncio.Task[None] | None = None

    async def position(self) -> int:
        """The number of the newest known event. What happens after this call has a higher number."""
        if self.newest is not None:
            return self.newest
        async with self._store.autocommit() as tx:
            return await last_number(tx)

    @contextlib.contextmanager
    def attached(self, caller: Caller) -> Iterator[LiveStream]:
        stream = LiveStream(caller)
        self._streams.add(stream)
        if self._reader is None:
            self._reader = asyncio.create_task(self._read())
        try:
            yield stream
        finally:
            self._streams.discard(stream)
            if not self._streams:
                self._stop()

    def _stop(self) -> None:
        if self._reader is not None:
            self._reader.cancel()
        self._reader = None
        self.newest = None
        self.ready.clear()
        self._recent.clear()

    async def catch_up(self, stream: LiveStream, after: int | None) -> bytes:
        """The messages after a number, up to the ones that the stream receives from now on: from memory, or from the
        database if they are older. None: the browser has missed nothing."""
        until = self.newest or 0
        stream.take()
        missed = b"" if after is None else await self._missed(stream, after, until)
        return missed + _position(until)

    async def _missed(self, stream: LiveStream, after: int, until: int) -> bytes:
        if after > until:
            # Numbers of another history: the database was restored from a backup.
            return RESET
        if after >= self._floor:
            recent = [(change, text) for change, text in self._recent if after < change.sequence_number <= until]
            return b"".join(text for change, text in recent if stream.admits(change))
        async with self._store.reading() as tx:
            checkpoint = await read_checkpoint(tx)
            if checkpoint is not None and after < checkpoint.sequence_number:
                # Events that the browser has missed are deleted.
                return RESET
            found = await read_summaries(tx, after, until, MAX_CATCH_UP + 1, stream.scope)
        if len(found) > MAX_CATCH_UP:
            return RESET
        return b"".join(_message(change) for change in found)

    async def _read(self) -> None:
        """Runs until cancelled. A failure is logged; the next pass tries again."""
        while not self._stopping.is_set():
            with self._store.bus.listening(EVENT_TOPIC) as committed:
                try:
                    await self._read_new()
                except Unavailable as error:
                    log.warning("database unavailable", task="live pages", reason=str(error))
                    await asyncio.sleep(RETRY_SECONDS)
                    continue
                except Exception:
                    log.exception("bug", task="live pages")
                    await asyncio.sleep(RETRY_SECONDS)
                    continue
                await first_of((committed, self._stopping), HEARTBEAT_SECONDS)
            await asyncio.sleep(INTERVAL_SECONDS)

    async def _read_new(self) -> None:
        await events.number(self._store)
        if self.newest is None:
            async with self._store.reading() as tx:
                self.newest = self._floor = await last_number(tx)
            self.ready.set()
        while True:
            async with self._store.reading() as tx:
                found = await read_summaries(tx, self.newest, None, READ_AT_ONCE, ())
            for change in found:
                self._publish(change)
            if len(found) < READ_AT_ONCE:
                return

    def _publish(self, change: EventSummary) -> None:
        message = _message(change)
        self._recent.append((change, message))
        if len(self._recent) > RECENT:
            self._floor = self._recent.popleft()[0].sequence_number
        self.newest = change.sequence_number
        for stream in self._streams:
            stream.offer(change, message)


def _message(change: EventSummary) -> bytes:
    named = {
        "type": change.type,
        "entity": change.entity_id,
        "agent": change.agent_id,
        "service": change.service_id,
    }
    data = msgspec.json.encode({name: value for name, value in named.items() if value is not None})
    return b"id: %d\nevent: change\ndata: %s\n\n" % (change.sequence_number, data)


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
                yield _position(hub.newest)


def _position(number: int) -> bytes:
    return b": still here\nid: %d\n\n" % number
