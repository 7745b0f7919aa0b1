"""One reader per process reads new events, and passes them on to all open streams of pages and of the API.

A message to a page names what changed, not how: the page asks for the region again, under the usual rules of access. A
stream of the API is woken, and shares its query with the other streams of its participant."""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import Awaitable, Callable, Iterator
from typing import Any, TypeVar

import msgspec
import structlog

from mainstay.control.access import Caller, relation_of
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
# Queries that streams of the API may share at a time.
MAX_SHARED = 1000
# A catch-up with more events than this asks the page to refresh everything instead.
MAX_CATCH_UP = 1000
# Between two reads: a burst of commits is one read.
INTERVAL_SECONDS = 0.2
RETRY_SECONDS = 1.0
HEARTBEAT_SECONDS = 15.0
RESET = b"event: reset\ndata: {}\n\n"

T = TypeVar("T")

log = structlog.get_logger("mainstay.api")


class LiveStream:
    """The messages that wait for one browser. A stream of the API keeps none: `changed` wakes it."""

    def __init__(self, caller: Caller, *, keeps_messages: bool) -> None:
        self._caller = caller
        self._keeps_messages = keeps_messages
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
        if not self._keeps_messages:
            pass
        elif len(self._waiting) >= MAX_WAITING:
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
        # What streams of the API read at once, by caller and position.
        self._shared: dict[object, asyncio.Future[Any]] = {}
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

    async def share(self, key: object, read: Callable[[], Awaitable[T]]) -> T:
        """What `read` returns; streams that ask for the same key between two events share one call of it."""
        if len(self._shared) > MAX_SHARED:
            self._shared.clear()
        reading = self._shared.get(key)
        if reading is None or (reading.done() and reading.exception() is not None):
            reading = self._shared[key] = asyncio.ensure_future(read())
        result: T = await asyncio.shield(reading)
        return result

    @contextlib.contextmanager
    def attached(self, caller: Caller, *, keeps_messages: bool = True) -> Iterator[LiveStream]:
        stream = LiveStream(caller, keeps_messages=keeps_messages)
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
        self._shared.clear()

    async def catch_up(self, stream: LiveStream, after: int | None) -> bytes:
        """The messages after a number, up to the ones that the stream receives from now on: from memory, or from the
        database if they are older. None: the browser has missed nothing."""
        until = self.newest or 0
        stream.take()
        missed = b"" if after is None else await self._missed(stream, after, until)
        return missed + position_message(until)

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
                # The first event after a pause is passed on at once.
                await asyncio.sleep(INTERVAL_SECONDS)
                await first_of((committed, self._stopping), HEARTBEAT_SECONDS)

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
        self._shared.clear()
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


def position_message(number: int) -> bytes:
    return b": still here\nid: %d\n\n" % number
