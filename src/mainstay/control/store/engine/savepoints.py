"""Several requests in one transaction: a store whose transactions are parts of one that is already open."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from mainstay.control.store.engine.contract import Store, Transaction


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
