"""The interface of a database: transactions with named parameters, named errors, notifications after a commit."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, contextmanager
from typing import Any, Protocol

# Column → value as the driver returns it.
Row = Mapping[str, Any]
Value = str | int | float | bytes | None


class Duplicate(Exception):
    """A unique constraint was violated; `columns` names it as `table.column, table.column`."""

    def __init__(self, columns: str) -> None:
        super().__init__(columns)
        self.columns = columns


class StillReferenced(Exception):
    """A foreign key was violated: another row references this one, or the referenced row does not exist."""


class Unavailable(Exception):
    """The database is not reachable or too busy; the same request may succeed later."""


class Transaction(Protocol):
    # Appended to a SELECT: locks the rows until the commit.
    for_update: str
    # Appended to a SELECT: the rows stay as they are until the commit; other transactions may do the same.
    for_key_share: str
    # Like `for_update`, without rows that other transactions have locked.
    skip_locked: str
    # Whether the name index is a table to query; if not, the planner of the database uses the index.
    asks_name_index: bool
    # The function that returns the items of a JSON array as rows with the column `value`.
    json_items: str
    # Appended to a column of JSON text, before `-> 'member'`.
    as_json: str

    async def fetch(self, statement: str, *, slow: bool = False, **parameters: Value) -> Sequence[Row]: ...

    async def execute(self, statement: str, **parameters: Value) -> int:
        """Returns the number of affected rows."""
        ...

    async def defer(self, statement: str, **parameters: Value) -> None:
        """Queues a write whose result is not needed. It runs before the next statement or the commit, possibly in one
        batch with others, and raises its errors there."""
        ...

    def savepoint(self) -> AbstractAsyncContextManager[None]:
        """A part of the transaction: an exception inside undoes the part and is raised again, and the transaction can
        go on."""
        ...

    async def lock(self, name: str) -> None:
        """Takes a named lock, across all replicas, until the end of the transaction."""
        ...

    async def try_lock(self, name: str) -> bool:
        """Like `lock`, but returns False at once if another transaction holds the lock."""
        ...

    def announce(self, topic: str) -> None:
        """Wakes the listeners of the topic once this transaction is committed."""
        ...


async def ping(tx: Transaction) -> None:
    """Raises `Unavailable` if the database does not answer."""
    await tx.fetch("SELECT 1 AS one")


class ClockWatch:
    """Which step of the clock this process has adopted. A store calls `follow` in the first transaction after another
    one, before the transaction reads the clock. `follow` None: no clock is followed."""

    def __init__(self) -> None:
        self.number = 0
        self.follow: Callable[[Transaction], Awaitable[None]] | None = None


class Store(Protocol):
    dialect: str
    bus: Bus
    clock_watch: ClockWatch

    def transaction(self) -> AbstractAsyncContextManager[Transaction]: ...

    def autocommit(self) -> AbstractAsyncContextManager[Transaction]:
        """For a single query: cheaper, because statements do not share a snapshot."""
        ...

    def reading(self) -> AbstractAsyncContextManager[Transaction]:
        """A read-only snapshot of the committed data."""
        ...

    async def is_new(self) -> bool:
        """Whether no migration was ever applied."""
        ...

    async def migrate(self) -> list[str]:
        """Runs pending migrations under a lock and returns their names."""
        ...

    def connection_counts(self) -> tuple[int, int, int]:
        """Connections to the database: in use, idle, and the most that may be open."""
        ...

    async def close(self) -> None: ...


class Bus:
    """Notifies the listeners of a topic within this process."""

    def __init__(self) -> None:
        self._waiters: dict[str, set[asyncio.Event]] = defaultdict(set)

    @contextmanager
    def listening(self, topic: str) -> Iterator[asyncio.Event]:
        """Listen before reading the tables, so that no commit in between is missed."""
        event = asyncio.Event()
        self._waiters[topic].add(event)
        try:
            yield event
        finally:
            self._waiters[topic].discard(event)
            if not self._waiters[topic]:
                del self._waiters[topic]

    def publish(self, topics: frozenset[str]) -> None:
        for topic in topics:
            for event in self._waiters.get(topic, ()):
                event.set()

    def wake_all(self) -> None:
        self.publish(frozenset(self._waiters))
