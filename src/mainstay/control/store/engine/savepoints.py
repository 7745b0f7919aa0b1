"""Several requests in one transaction: a store whose transactions are parts of one that is already open, and a transaction
whose writes can be repeated in another one."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

from mainstay.control.store.engine.contract import Row, Store, Transaction, Value


class RepeatableTransaction:
    """Keeps what it writes in `writes`. To repeat that takes a small part of the time, since nothing is read and decided
    again."""

    def __init__(self, tx: Transaction, writes: list[tuple[str, dict[str, Any]]]) -> None:
        self._tx = tx
        self.writes = writes
        self.for_update, self.for_key_share, self.skip_locked = tx.for_update, tx.for_key_share, tx.skip_locked
        self.asks_name_index, self.json_items, self.as_json = tx.asks_name_index, tx.json_items, tx.as_json

    async def repeat(self) -> None:
        """Writes again what earlier transactions with these writes have written, before they were rolled back."""
        for statement, parameters in self.writes:
            await self._tx.defer(statement, **parameters)

    async def fetch(self, statement: str, *, slow: bool = False, **parameters: Value) -> Sequence[Row]:
        if statement.startswith(("INSERT", "UPDATE", "DELETE")):
            self.writes.append((statement, parameters))
        return await self._tx.fetch(statement, slow=slow, **parameters)

    async def execute(self, statement: str, **parameters: Value) -> int:
        self.writes.append((statement, parameters))
        return await self._tx.execute(statement, **parameters)

    async def defer(self, statement: str, **parameters: Value) -> None:
        self.writes.append((statement, parameters))
        await self._tx.defer(statement, **parameters)

    @asynccontextmanager
    async def savepoint(self) -> AsyncIterator[None]:
        before = len(self.writes)
        try:
            async with self._tx.savepoint():
                yield
        except BaseException:
            del self.writes[before:]
            raise

    async def lock(self, name: str) -> None:
        await self._tx.lock(name)

    async def try_lock(self, name: str) -> bool:
        return await self._tx.try_lock(name)

    def announce(self, topic: str) -> None:
        """Nothing is committed."""


class JoinedStore:
    """What one part writes, the next parts read. The caller commits or rolls back, and separates parts with `Transaction.savepoint`."""

    def __init__(self, store: Store, transaction: Transaction) -> None:
        self._store = store
        self._transaction = transaction
        self.dialect = store.dialect
        self.bus = store.bus
        self.clock_watch = store.clock_watch

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[Transaction]:
        yield self._transaction

    autocommit = transaction
    reading = transaction

    async def is_new(self) -> bool:
        return await self._store.is_new()

    async def migrate(self) -> list[str]:
        raise RuntimeError("a part of a transaction cannot migrate")

    def connection_counts(self) -> tuple[int, int, int]:
        return self._store.connection_counts()

    async def close(self) -> None:
        """The store stays open: it is not this one's."""
