"""A long poll costs one database query, however long it waits."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path

from mainstay.control.access import Caller, Role
from mainstay.control.api.contract import Call, Dependencies, Readiness
from mainstay.control.api.endpoints.jobs import list_pending
from mainstay.control.api.limits import FailedAttempts, RequestLimits
from mainstay.control.api.prometheus import ServerMetrics
from mainstay.control.operations.machinery.definitions import Definitions
from mainstay.control.operations.machinery.runs import agent_topic
from mainstay.control.operations.machinery.unit_of_work import OperationTools
from mainstay.control.rulebook import installed_rulebook
from mainstay.control.settings import ServerSettings
from mainstay.control.store.engine.contract import Transaction
from mainstay.control.store.engine.sqlite import SqliteStore


class CountingStore(SqliteStore):
    queries = 0

    @asynccontextmanager
    async def autocommit(self) -> AsyncIterator[Transaction]:
        self.queries += 1
        async with super().autocommit() as tx:
            yield tx

    async def wait_for_queries(self, times: int) -> None:
        async with asyncio.timeout(10):
            while self.queries < times:
                await asyncio.sleep(0.01)


def test_a_long_poll_queries_once_and_again_only_when_notified(tmp_path: Path) -> None:
    async def main() -> None:
        store = CountingStore(tmp_path / "store.db")
        await store.migrate()
        readiness = Readiness()
        tools = OperationTools(Definitions(installed_rulebook()))
        dependencies = Dependencies(
            store,
            ServerSettings(),
            tools,
            lambda: datetime.now(UTC),
            ServerMetrics(),
            RequestLimits(0),
            FailedAttempts("codes"),
            FailedAttempts("tokens"),
            readiness,
        )
        caller = Caller(Role.AGENT, "token", "provider", "agent")
        poll = asyncio.create_task(list_pending(Call(dependencies, {}, [("wait", "60")], {}, b"", caller, "")))
        await store.wait_for_queries(1)
        store.bus.publish(frozenset({agent_topic("another")}))
        await asyncio.sleep(0.2)
        assert store.queries == 1
        store.bus.publish(frozenset({agent_topic("agent")}))
        await store.wait_for_queries(2)
        readiness.stopping.set()
        assert (await asyncio.wait_for(poll, timeout=10)).body == []
        # A last query when the server stops.
        assert store.queries <= 3
        await store.close()

    asyncio.run(main())
