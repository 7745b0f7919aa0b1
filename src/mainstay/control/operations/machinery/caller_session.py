"""The transactions of one caller, for operations that need several. The caller waits between them."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from datetime import datetime

from mainstay.control.access import Caller
from mainstay.control.operations.machinery.unit_of_work import OperationTools, UnitOfWork
from mainstay.control.store.engine.contract import Store, Transaction


class _RollBack(Exception):
    """Rolls back a transaction that succeeded."""


@dataclass(frozen=True, slots=True)
class CallerSession:
    store: Store
    clock: Callable[[], datetime]
    tools: OperationTools
    # None on endpoints that need no token.
    caller: Caller | None

    def transaction(self) -> AbstractAsyncContextManager[UnitOfWork]:
        return self._unit_of_work(self.store.transaction())

    @asynccontextmanager
    async def rolled_back(self) -> AsyncIterator[UnitOfWork]:
        """A transaction for a forecast: every check runs and every row is written, and nothing is committed."""
        try:
            async with self.transaction() as work:
                yield work
                raise _RollBack
        except _RollBack:
            pass

    def autocommit(self) -> AbstractAsyncContextManager[UnitOfWork]:
        return self._unit_of_work(self.store.autocommit())

    def reading(self) -> AbstractAsyncContextManager[UnitOfWork]:
        return self._unit_of_work(self.store.reading())

    @asynccontextmanager
    async def _unit_of_work(self, transaction: AbstractAsyncContextManager[Transaction]) -> AsyncIterator[UnitOfWork]:
        async with transaction as tx:
            # The clock is read inside, so that with one writer times follow the order of commits.
            yield UnitOfWork(tx, self.clock(), self.tools, self.caller)
