"""A long poll costs one database query, however long it waits."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path

import pytest

from mainstay.control.access import Caller, Role
from mainstay.control.api.contract import Answer, Call, Dependencies, Readiness
from mainstay.control.api.endpoints.jobs import list_pending
from mainstay.control.api.limits import FailedAttempts, RequestLimits
from mainstay.control.api.prometheus import ServerMetrics
from mainstay.control.operations.machinery.definitions import Definitions
from mainstay.control.operations.machinery.job_chains import agent_topic
from mainstay.control.operations.machinery.unit_of_work import OperationTools
from mainstay.control.rulebook import installed_rulebook
from mainstay.control.settings import ServerSettings
from mainstay.control.store.engine.contract import Transaction, Unavailable
from mainstay.control.store.engine.sqlite import SqliteStore


class CountingStore(SqliteStore):
    queries = 0
    is_available = True

    @asynccontextmanager
    async def autocommit(self) -> AsyncIterator[Transaction]:
        self.queries += 1
        if not self.is_available:
            raise Unavailable("failover")
        async with super().autocommit() as tx:
            yield tx

    async def wait_for_queries(self, times: int) -> None:
        async with asyncio.timeout(10):
            while self.queries < times:
                await asyncio.sleep(0.01)


@asynccontextmanager
async def polling(folder: Path, seconds: int) -> AsyncIterator[tuple[CountingStore, Readiness, asyncio.Task[Answer]]]:
    """A long poll of `agent` that has queried once."""
    store = CountingStore(folder / "store.db")
    await store.migrate()
    readiness = Readiness()
    dependencies = Dependencies(
        store,
        ServerSettings(),
        OperationTools(Definitions(installed_rulebook())),
        lambda: datetime.now(UTC),
        ServerMetrics(),
        RequestLimits(0),
        FailedAttempts("codes"),
        FailedAttempts("tokens"),
        readiness,
    )
    caller = Caller(Role.AGENT, "token", "provider", "agent")
    poll = asyncio.create_task(list_pending(Call(dependencies, {}, [("wait", str(seconds))], {}, b"", caller, "")))
    await store.wait_for_queries(1)
    yield store, readiness, poll
    await store.close()


def test_a_long_poll_queries_once_and_again_only_when_notified(tmp_path: Path) -> None:
    async def main() -> None:
        async with polling(tmp_path, 60) as (store, readiness, poll):
            store.bus.publish(frozenset({agent_topic("another")}))
            await asyncio.sleep(0.2)
            assert store.queries == 1
            store.bus.publish(frozenset({agent_topic("agent")}))
            await store.wait_for_queries(2)
            readiness.stopping.set()
            assert (await asyncio.wait_for(poll, timeout=10)).body == []
            # A last query when the server stops.
            assert store.queries <= 3

    asyncio.run(main())


def test_a_long_poll_goes_on_waiting_while_the_database_is_unavailable(tmp_path: Path) -> None:
    async def main() -> None:
        async with polling(tmp_path, 60) as (store, readiness, poll):
            store.is_available = False
            # Sent when the connection to the database is lost.
            store.bus.wake_all()
            # It tries again without a further announcement.
            await store.wait_for_queries(3)
            assert not poll.done()
            store.is_available = True
            await store.wait_for_queries(4)
            readiness.stopping.set()
            assert (await asyncio.wait_for(poll, timeout=10)).body == []

    asyncio.run(main())


def test_a_long_poll_is_refused_if_the_database_is_still_unavailable_at_its_end(tmp_path: Path) -> None:
    async def main() -> None:
        async with polling(tmp_path, 2) as (store, _, poll):
            store.is_available = False
            with pytest.raises(Unavailable):
                await asyncio.wait_for(poll, timeout=10)

    asyncio.run(main())
