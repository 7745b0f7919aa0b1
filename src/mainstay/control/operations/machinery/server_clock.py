"""The clock of the server: the time since boot, plus an offset to the wall clock that changes only under control.

A step of the wall clock reaches a request only after the deadlines have moved with it: until then the clock goes on as
if there had been no step. A store compares the number of the last step at the start of every transaction."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta

import structlog

from mainstay.control.domain.clock import ClockReading, step_of
from mainstay.control.store import clock as store
from mainstay.control.store.engine.contract import ClockWatch, Store, Transaction
from mainstay.control.store.engine.records import EPOCH

log = structlog.get_logger("mainstay.clock")
ReadTime = Callable[[Transaction], Awaitable[datetime]]


async def _read_host_time(_tx: Transaction) -> datetime:
    return datetime.now(UTC)


def _seconds_since_boot() -> float:
    """Counts while the host sleeps: a sleep is no step, its leases have really expired."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


class ServerClock:
    def __init__(
        self, watch: ClockWatch, read_time: ReadTime, seconds_since_boot: Callable[[], float] = _seconds_since_boot
    ) -> None:
        self._watch = watch
        self._read_time = read_time
        self._seconds_since_boot = seconds_since_boot
        self._offset = timedelta(0)

    def __call__(self) -> datetime:
        return EPOCH + timedelta(seconds=self._seconds_since_boot()) + self._offset

    async def adopt(self, tx: Transaction) -> None:
        """Sets the clock: at the start, and after the deadlines have moved."""
        reading = await self._read(tx)
        self._offset += reading.actual - reading.latest
        self._watch.number = await store.last_step(tx)

    async def follow(self, tx: Transaction) -> None:
        """Follows drift. After a step moves the deadlines, once for all replicas; the next transaction adopts it."""
        # Before the reading: a request may adopt the step of another replica while this waits for the lock.
        known = self._watch.number
        reading = await self._read(tx)
        step = step_of(reading)
        if step is None:
            self._offset += reading.actual - reading.latest
            return
        await tx.lock("clock")
        if await store.last_step(tx) != known:
            # Another replica has just moved the deadlines.
            return
        log.warning("the clock has stepped, deadlines are moved", seconds=round(step.total_seconds(), 1))
        await store.move_times(tx, known + 1, step, reading.actual)

    async def _read(self, tx: Transaction) -> ClockReading:
        earliest = self()
        actual = await self._read_time(tx)
        return ClockReading(actual, earliest, self())


async def start_clock(database: Store) -> ServerClock:
    """The clock to follow is the one of PostgreSQL, which all replicas share; with SQLite the one of this host."""
    is_shared = database.dialect == "postgresql"
    clock = ServerClock(database.clock_watch, store.read_database_time if is_shared else _read_host_time)
    async with database.transaction() as tx:
        await clock.adopt(tx)
    database.clock_watch.follow = clock.adopt
    return clock
