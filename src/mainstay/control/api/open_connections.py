"""Long polls and streams end with their token or browser session. One query per pass checks all open connections, and
each is checked again before it receives something that it has waited for."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, field
from datetime import datetime

import structlog

from mainstay.control.access import Caller
from mainstay.control.api.admission import refusal_of
from mainstay.control.api.errors import HttpRefusal
from mainstay.control.operations import browser_sessions
from mainstay.control.store.engine.contract import Store, Unavailable
from mainstay.control.store.tokens import find_callers

# A pass and its query on a busy database take less than the promised 5 s together.
INTERVAL_SECONDS = 2.0

log = structlog.get_logger("mainstay.api")


@dataclass(slots=True, eq=False)
class OpenConnection:
    token_hash: str
    # None for API clients.
    session_id: str | None
    # Set once the token no longer admits the caller.
    ended: asyncio.Event = field(default_factory=asyncio.Event)
    refusal: HttpRefusal | None = None

    def end(self, refusal: HttpRefusal) -> None:
        self.refusal = refusal
        self.ended.set()

    def refuse_if_ended(self) -> None:
        if self.refusal is not None:
            raise self.refusal


class OpenConnections:
    """The open connections of this process."""

    def __init__(self) -> None:
        self._open: set[OpenConnection] = set()
        self._unconfirmed: set[OpenConnection] = set()
        self._confirming = asyncio.Lock()

    @contextlib.contextmanager
    def opened(self, caller: Caller, session_id: str | None = None) -> Iterator[OpenConnection]:
        connection = OpenConnection(caller.token_hash, session_id)
        self._open.add(connection)
        try:
            yield connection
        finally:
            self._open.discard(connection)

    async def end_refused(self, store: Store, now: datetime) -> None:
        await self._end_refused(list(self._open), store, now)

    async def confirm(self, connection: OpenConnection, store: Store, clock: Callable[[], datetime]) -> None:
        """Raises the refusal if the token has ended. One commit wakes many connections: those that come while a query
        runs share the next one."""
        self._unconfirmed.add(connection)
        try:
            async with self._confirming:
                if connection in self._unconfirmed:
                    checked = set(self._unconfirmed)
                    await self._end_refused(checked, store, clock())
                    self._unconfirmed -= checked
        finally:
            self._unconfirmed.discard(connection)
        connection.refuse_if_ended()

    async def _end_refused(self, checked: Collection[OpenConnection], store: Store, now: datetime) -> None:
        hashes = sorted({each.token_hash for each in checked})
        if not hashes:
            return
        session_ids = sorted({each.session_id for each in checked if each.session_id is not None})
        async with store.autocommit() as tx:
            found = await find_callers(tx, hashes)
            living = await browser_sessions.living(tx, session_ids, now) if session_ids else frozenset()
        refusals = {each: refusal_of(found.get(each), now) for each in hashes}
        for connection in checked:
            refusal = refusals[connection.token_hash]
            if refusal is None and connection.session_id not in (None, *living):
                refusal = HttpRefusal(401, "session_ended", "this session has ended; sign in again")
            if refusal is not None:
                connection.end(refusal)


async def watch(connections: OpenConnections, store: Store, clock: Callable[[], datetime]) -> None:
    """Runs until cancelled. A failure is logged; the next pass tries again."""
    while True:
        try:
            await connections.end_refused(store, clock())
        except Unavailable as error:
            log.warning("database unavailable", task="open connections", reason=str(error))
        except Exception:
            log.exception("bug", task="open connections")
        await asyncio.sleep(INTERVAL_SECONDS)
