"""The number of living services of each agent, which triggers keep. The services themselves are the evidence."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path
from uuid import uuid4

import msgspec
import pytest

from bulk_services import Owners, insert_service, new_owners, service
from control_plane import Cluster
from mainstay.control.store.agent_loads import LIVING_SERVICES, combine_rows
from mainstay.control.store.agents import AGENTS
from mainstay.control.store.engine.backup import dump, load
from mainstay.control.store.engine.contract import Store, Transaction
from mainstay.control.store.engine.open import open_store

STEPS = 200
WAITING = "SELECT 1 AS found FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'"
Urls = Callable[[], str]


@pytest.fixture(params=["sqlite", "postgresql"])
def new_url(request: pytest.FixtureRequest, tmp_path: Path) -> Urls:
    if request.param == "postgresql":
        cluster: Cluster = request.getfixturevalue("postgresql")
        return cluster.new_database
    return lambda: f"sqlite:///{tmp_path}/{uuid4()}.db"


def with_agents(url: str, test: Callable[[Store, list[Owners]], Awaitable[None]]) -> None:
    """Runs the coroutine with an empty store of three agents."""

    async def main() -> None:
        store = await open_store(url)
        await store.migrate()
        async with store.transaction() as tx:
            first = await new_owners(tx)
            owners = [first]
            row = await AGENTS.find(tx, first.agent_id)
            assert row is not None
            for name in ("b", "c"):
                another = msgspec.structs.replace(row, id=str(uuid4()), name=name)
                await AGENTS.insert(tx, another)
                owners.append(replace(first, agent_id=another.id))
        try:
            await test(store, owners)
        finally:
            await store.close()

    asyncio.run(main())


async def loads(tx: Transaction) -> dict[str, int]:
    rows = await tx.fetch(f"SELECT id, {LIVING_SERVICES} AS living FROM agents")
    return {str(row["id"]): int(str(row["living"])) for row in rows}


async def counted(tx: Transaction) -> dict[str, int]:
    rows = await tx.fetch(
        "SELECT id, (SELECT count(*) FROM services WHERE agent_id = agents.id AND is_terminal = 0) AS living FROM agents"
    )
    return {str(row["id"]): int(str(row["living"])) for row in rows}


async def row_count(tx: Transaction) -> int:
    return int(str((await tx.fetch("SELECT count(*) AS number FROM agent_loads"))[0]["number"]))


def test_the_load_is_the_number_of_living_services_whatever_happens_to_them(new_url: Urls) -> None:
    chance = random.Random(1)

    async def change(tx: Transaction, owners: list[Owners], known: list[str]) -> None:
        if not known or chance.random() < 0.4:
            row = service(chance.choice(owners), "s")
            await insert_service(tx, row)
            known.append(row.id)
            return
        record_id = chance.choice(known)
        await tx.execute(
            chance.choice(
                [
                    "UPDATE services SET agent_id = :agent_id WHERE id = :id",
                    "UPDATE services SET is_terminal = 1 WHERE id = :id AND :agent_id <> ''",
                    "UPDATE services SET is_terminal = 0, agent_id = :agent_id WHERE id = :id",
                    "UPDATE services SET name = 'other' WHERE id = :id AND :agent_id <> ''",
                    "DELETE FROM services WHERE id = :id AND :agent_id <> ''",
                ]
            ),
            id=record_id,
            agent_id=chance.choice(owners).agent_id,
        )

    async def test(store: Store, owners: list[Owners]) -> None:
        known: list[str] = []
        for _ in range(STEPS):
            async with store.transaction() as tx:
                await change(tx, owners, known)
                if chance.random() < 0.2:
                    await combine_rows(tx, chance.choice([2, 10_000]))
                assert await loads(tx) == await counted(tx)
        async with store.transaction() as tx:
            while await combine_rows(tx, 5):
                pass
            assert await row_count(tx) <= len(owners)
            assert await loads(tx) == await counted(tx)
            assert sum((await loads(tx)).values()) > 0

    with_agents(new_url(), test)


def test_a_restored_database_has_the_loads_of_its_services(new_url: Urls) -> None:
    async def test(store: Store, owners: list[Owners]) -> None:
        async with store.transaction() as tx:
            for number in range(10):
                await insert_service(tx, service(owners[number % 3], "s"))
            await combine_rows(tx, 10_000)
        async with store.reading() as tx:
            lines = [line async for line in dump(tx)]
            before = await loads(tx)
        restored = await open_store(new_url())
        await restored.migrate()
        async with restored.transaction() as tx:
            await load(tx, lines)
        async with restored.transaction() as tx:
            assert await loads(tx) == before == await counted(tx)
        await restored.close()

    with_agents(new_url(), test)


def test_a_service_that_is_committed_while_rows_are_combined_still_counts(postgresql: Cluster) -> None:
    async def test(store: Store, owners: list[Owners]) -> None:
        async with store.transaction() as tx:
            for _ in range(3):
                await insert_service(tx, service(owners[0], "s"))

        async def combine() -> None:
            async with store.transaction() as tx:
                await combine_rows(tx, 10_000)

        async with store.transaction() as order:
            await insert_service(order, service(owners[0], "late"))
            # A query sends the deferred writes.
            assert (await loads(order))[owners[0].agent_id] == 4
            async with store.transaction() as first:
                await combine_rows(first, 10_000)
                second = asyncio.create_task(combine())
                async with store.autocommit() as observer, asyncio.timeout(30):
                    while not await observer.fetch(WAITING):
                        await asyncio.sleep(0.01)
            await second
        async with store.transaction() as tx:
            assert (await loads(tx))[owners[0].agent_id] == 4
            assert await loads(tx) == await counted(tx)

    with_agents(postgresql.new_database(), test)
