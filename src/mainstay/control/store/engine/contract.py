"""What a database must offer: transactions with named parameters, refusals by name, and word of what was committed."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, contextmanager
from typing import Protocol

Row = Mapping[str, object]
Value = str | int | float | bytes | None


class Duplicate(Exception):
    """A unique constraint refused the row; `columns` names it as `table.column, table.column`."""

    def __init__(self, columns: str) -> None:
        super().__init__(columns)
        self.columns = columns


class StillReferenced(Exception):
    """A foreign key refused: the row is needed by another, or the one it needs is gone."""


class Unavailable(Exception):
    """The database cannot be reached now, or is too busy; the same request may succeed later."""


class Transaction(Protocol):
    # What the dialect adds to a SELECT so that the row cannot change before the commit.
    for_update: str
    # The same, leaving out rows that others hold.
    skip_locked: str
    # Whether the index of names is a table that must be asked; else the database finds it by itself.
    asks_name_index: bool

    async def fetch(self, statement: str, *, slow: bool = False, **parameters: Value) -> Sequence[Row]: ...

    async def execute(self, statement: str, **parameters: Value) -> int:
        """How many rows were touched."""
        ...

    async def later(self, statement: str, **parameters: Value) -> None:
        """A write whose outcome nobody waits for: done before the next question and before the commit, maybe together
        with others in one go. A refusal comes then."""
        ...

    async def lock(self, name: str) -> None:
        """Holds a named lock until the end of the transaction, over all replicas."""
        ...

    def announce(self, topic: str) -> None:
        """Wakes whoever waits for the topic, once this transaction is committed."""
        ...


async def ping(tx: Transaction) -> None:
    """Raises `Unavailable` if the database does not answer."""
    await tx.fetch("SELECT 1 AS one")


class Store(Protocol):
    dialect: str
    bus: Bus

    def transaction(self) -> AbstractAsyncContextManager[Transaction]: ...

    def asking(self) -> AbstractAsyncContextManager[Transaction]:
        """For a single question: no view is kept from one to the next, which makes it cheaper."""
        ...

    def reading(self) -> AbstractAsyncContextManager[Transaction]:
        """One consistent view of the committed; nothing can be written through it."""
        ...

    async def migrate(self) -> list[str]:
        """Brings the tables up to date under a lock; the names of the migrations that were run."""
        ...

    async def close(self) -> None: ...


class Bus:
    """Who waits for what, in this process."""

    def __init__(self) -> None:
        self._waiters: dict[str, set[asyncio.Event]] = defaultdict(set)

    @contextmanager
    def listening(self, topic: str) -> Iterator[asyncio.Event]:
        """Listen first, look at the tables second: then nothing that is committed in between is missed."""
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
