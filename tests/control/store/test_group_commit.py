"""Writers that share a commit on the embedded database, and writes that PostgreSQL is told together."""

from __future__ import annotations

import asyncio
import itertools
import random
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import msgspec
import pytest

from bulk_services import NOW, Owners, insert_service, new_owners, service
from mainstay.control.store.engine.contract import Duplicate, StillReferenced, Transaction, Unavailable
from mainstay.control.store.engine.dialects import Batch
from mainstay.control.store.engine.open import open_store
from mainstay.control.store.participants import PARTICIPANTS, Participant


def participant(name: str) -> Participant:
    return Participant(id=name, created_at=NOW, updated_at=NOW, name=name, status="Enabled")


def test_who_fails_in_a_group_takes_nobody_along(tmp_path: Path) -> None:
    async def main() -> None:
        store = await open_store(f"sqlite:///{tmp_path}/store.db")
        await store.migrate()

        async def write(number: int) -> None:
            async with store.transaction() as tx:
                await PARTICIPANTS.insert(tx, participant(f"p{number}"))
                if number % 3 == 0:
                    raise RuntimeError

        outcomes = await asyncio.gather(*(write(number) for number in range(30)), return_exceptions=True)
        assert [type(each) for each in outcomes] == [RuntimeError, type(None), type(None)] * 10
        async with store.reading() as tx:
            found = await PARTICIPANTS.many(tx, [f"p{number}" for number in range(30)])
        assert found.keys() == {f"p{number}" for number in range(30) if number % 3}
        await store.close()

    asyncio.run(main())


def test_nobody_is_told_before_the_commit(tmp_path: Path) -> None:
    """Whoever has come out of a transaction finds what he wrote on another connection, which sees only the committed."""

    async def main() -> None:
        store = await open_store(f"sqlite:///{tmp_path}/store.db")
        await store.migrate()

        async def write(number: int) -> None:
            async with store.transaction() as tx:
                await PARTICIPANTS.insert(tx, participant(f"p{number}"))
            async with store.asking() as tx:
                assert await PARTICIPANTS.find(tx, f"p{number}") is not None

        await asyncio.gather(*(write(number) for number in range(50)))
        await store.close()

    asyncio.run(main())


def test_a_writer_that_gives_up_in_line_leaves_the_others_their_commit(tmp_path: Path) -> None:
    async def main() -> None:
        store = await open_store(f"sqlite:///{tmp_path}/store.db")
        await store.migrate()

        async def write(name: str) -> None:
            async with store.transaction() as tx:
                await PARTICIPANTS.insert(tx, participant(name))
                await asyncio.sleep(0.01)

        tasks = [asyncio.create_task(write(name)) for name in "abcd"]
        await asyncio.sleep(0)
        tasks[1].cancel()
        tasks[3].cancel()
        await asyncio.wait_for(asyncio.gather(*tasks, return_exceptions=True), timeout=10)
        async with store.reading() as tx:
            assert (await PARTICIPANTS.many(tx, "abcd")).keys() == {"a", "c"}
        await store.close()

    asyncio.run(main())


def test_a_commit_that_fails_is_told_to_everybody_in_it(tmp_path: Path) -> None:
    """A constraint that is checked at the commit refuses the whole group; the next one is not concerned."""

    async def main() -> None:
        store = await open_store(f"sqlite:///{tmp_path}/store.db")
        await store.migrate()

        async def write(tx: Transaction) -> None:
            await tx.execute("PRAGMA defer_foreign_keys=ON")
            await tx.execute(
                "INSERT INTO service_groups (id, created_at, updated_at, name, name_folded, consumer_id)"
                " VALUES ('g', 1, 1, 'g', 'g', 'nobody')"
            )

        async def refused() -> None:
            async with store.transaction() as tx:
                await write(tx)

        async def innocent() -> None:
            async with store.transaction() as tx:
                await PARTICIPANTS.insert(tx, participant("with"))

        outcomes = await asyncio.gather(refused(), innocent(), return_exceptions=True)
        assert [type(each).__name__ for each in outcomes] == ["StillReferenced"] * 2
        async with store.transaction() as tx:
            await PARTICIPANTS.insert(tx, participant("after"))
        async with store.reading() as tx:
            assert (await PARTICIPANTS.many(tx, ["with", "after"])).keys() == {"after"}
        await store.close()

    asyncio.run(main())


VALUE = (
    "INSERT INTO service_pool_values (id, created_at, updated_at, name, name_folded, value, service_pool_id, provider_id,"
    " service_id, value_key) VALUES (:id, 1, 1, 'v', 'v', '1', 'pool', :provider_id, :service_id, :id)"
)


async def add_pool(tx: Transaction) -> Owners:
    owners = await new_owners(tx)
    await tx.execute(
        "INSERT INTO service_pool_sets (id, created_at, updated_at, name, name_folded, provider_id)"
        " VALUES ('set', 1, 1, 's', 's', :provider_id)",
        provider_id=owners.provider_id,
    )
    await tx.execute(
        "INSERT INTO service_pools (id, created_at, updated_at, name, name_folded, type, property_type, generator_type,"
        " service_pool_set_id, provider_id) VALUES ('pool', 1, 1, 'p', 'p', 't', 'string', 'list', 'set', :provider_id)",
        provider_id=owners.provider_id,
    )
    return owners


@pytest.mark.parametrize("fault", ["taken", "moved", "deleted"])
def test_a_key_that_is_looked_at_late_fails_only_whoever_broke_it(tmp_path: Path, fault: str) -> None:
    """A pool value may be taken for a service that comes later in the same transaction, but not for one that never does."""

    async def main() -> None:
        store = await open_store(f"sqlite:///{tmp_path}/store.db")
        await store.migrate()
        async with store.transaction() as tx:
            owners = await add_pool(tx)
            there = service(owners, "there")
            await insert_service(tx, there)
            await tx.execute(VALUE, id="held", service_id=there.id, provider_id=owners.provider_id)
        commits = 0

        def count(statement: str) -> None:
            nonlocal commits
            commits += statement == "COMMIT"

        store._writer.set_trace_callback(count)  # type: ignore[attr-defined]  # nothing else tells of groups

        async def guilty() -> None:
            async with store.transaction() as tx:
                await PARTICIPANTS.insert(tx, participant("guilty"))
                if fault == "taken":
                    await tx.execute(VALUE, id="lost", service_id="nobody", provider_id=owners.provider_id)
                elif fault == "moved":
                    await tx.execute("UPDATE service_pool_values SET service_id = 'nobody'")
                else:
                    await tx.execute("DELETE FROM services WHERE id = :id", id=there.id)

        async def innocent(number: int) -> None:
            async with store.transaction() as tx:
                late = service(owners, "late")
                await tx.execute(VALUE, id=f"v{number}", service_id=late.id, provider_id=owners.provider_id)
                await insert_service(tx, late)

        async def renewing() -> None:
            """Deletes the service together with what it holds, and is innocent too."""
            async with store.transaction() as tx:
                passing = service(owners, "passing")
                await insert_service(tx, passing)
                await tx.execute(VALUE, id="passing", service_id=passing.id, provider_id=owners.provider_id)
                await tx.execute("DELETE FROM service_pool_values WHERE id = 'passing'")
                await tx.execute("DELETE FROM services WHERE id = :id", id=passing.id)

        outcomes = await asyncio.gather(
            *(innocent(number) for number in range(10)),
            guilty(),
            renewing(),
            *(innocent(number) for number in range(10, 20)),
            return_exceptions=True,
        )
        assert [type(each) for each in outcomes] == [type(None)] * 10 + [StillReferenced] + [type(None)] * 11
        assert commits < 5, "they did not share a commit"
        async with store.reading() as tx:
            values = await tx.fetch("SELECT id FROM service_pool_values")
            assert {row["id"] for row in values} == {"held", *(f"v{number}" for number in range(20))}
            assert await PARTICIPANTS.find(tx, "guilty") is None
            assert not await tx.fetch("PRAGMA foreign_key_check")
        await store.close()

    asyncio.run(main())


def test_only_one_key_is_looked_at_late(tmp_path: Path) -> None:
    """Another one would have to be looked at as well before its writer is done."""

    async def main() -> None:
        store = await open_store(f"sqlite:///{tmp_path}/store.db")
        await store.migrate()
        async with store.reading() as tx:
            tables = await tx.fetch("SELECT name, sql FROM sqlite_master WHERE sql LIKE '% DEFERRED%'")
        assert [(row["name"], str(row["sql"]).count("INITIALLY DEFERRED")) for row in tables] == [
            ("service_pool_values", 1)
        ]
        await store.close()

    asyncio.run(main())


def test_whoever_is_cancelled_anywhere_in_a_group_leaves_nothing_or_all(tmp_path: Path) -> None:
    """In line, at work, or while the commit runs, in which case it is committed though nobody is told."""

    async def main() -> None:
        store = await open_store(f"sqlite:///{tmp_path}/store.db")
        await store.migrate()
        acknowledged: set[str] = set()

        async def write(name: str) -> None:
            async with store.transaction() as tx:
                await PARTICIPANTS.insert(tx, participant(name))
                await tx.fetch("SELECT 1 AS one", slow=True)
                await PARTICIPANTS.insert(tx, participant(f"{name}, too"))
            acknowledged.add(name)

        chance = random.Random(3)
        for turn in range(40):
            names = [f"{turn}-{number}" for number in range(12)]
            tasks = {name: asyncio.create_task(write(name)) for name in names}
            for _ in range(4):
                await asyncio.sleep(chance.uniform(0, 0.003))
                tasks[chance.choice(names)].cancel()
            outcomes = await asyncio.wait_for(asyncio.gather(*tasks.values(), return_exceptions=True), timeout=30)
            assert {type(each) for each in outcomes} <= {type(None), asyncio.CancelledError}
            async with store.transaction() as tx:
                found = await PARTICIPANTS.many(tx, [*names, *(f"{name}, too" for name in names)])
            assert acknowledged & set(names) <= found.keys()
            assert all((name in found) == (f"{name}, too" in found) for name in names)
        await store.close()

    asyncio.run(main())


def test_a_full_disk_is_told_as_such_and_takes_nothing_that_was_acknowledged(tmp_path: Path) -> None:
    async def main() -> None:
        store = await open_store(f"sqlite:///{tmp_path}/store.db")
        await store.migrate()
        pragma = store._writer.execute  # type: ignore[attr-defined]  # a disk of a known size
        pages = pragma("PRAGMA page_count").fetchone()[0]
        pragma(f"PRAGMA max_page_count={pages + 20}")
        outcomes: dict[str, object] = {}

        async def write(name: str) -> None:
            try:
                async with store.transaction() as tx:
                    for number in range(3):
                        row = msgspec.structs.replace(participant(f"{name}-{number}"), name="x" * 2000)
                        await PARTICIPANTS.insert(tx, row)
                outcomes[name] = None
            except Unavailable as error:
                outcomes[name] = error

        async def check() -> None:
            async with store.reading() as tx:
                for name, outcome in outcomes.items():
                    found = await PARTICIPANTS.many(tx, [f"{name}-{number}" for number in range(3)])
                    assert len(found) == (3 if outcome is None else 0), name

        await asyncio.gather(*(write(f"a{number}") for number in range(5)))
        assert set(outcomes.values()) == {None}
        for turn in range(10):
            await asyncio.gather(*(write(f"b{turn}-{number}") for number in range(5)))
        assert None not in [outcomes[f"b9-{number}"] for number in range(5)]
        await check()
        pragma("PRAGMA max_page_count=1000000")
        await asyncio.gather(*(write(f"c{number}") for number in range(5)))
        assert [outcomes[f"c{number}"] for number in range(5)] == [None] * 5
        await check()
        await store.close()

    asyncio.run(main())


WRITERS = """
import asyncio, sys
sys.path[:0] = {folders!r}
from mainstay.control.store.engine.open import open_store
from mainstay.control.store.participants import PARTICIPANTS
from test_group_commit import participant

async def main():
    store = await open_store("sqlite:///" + sys.argv[1])
    store._writer.set_trace_callback(lambda text: text == "COMMIT" and print("commit", flush=True))

    async def write(number):
        for turn in range(10_000):
            name = f"{{sys.argv[2]}}-{{number}}-{{turn}}"
            async with store.transaction() as tx:
                await PARTICIPANTS.insert(tx, participant(name))
                await PARTICIPANTS.insert(tx, participant(name + ", too"))
            print(name, flush=True)

    await asyncio.gather(*(write(number) for number in range(16)))

asyncio.run(main())
"""


def test_many_who_share_a_commit_keep_what_they_were_told_when_the_process_is_killed(tmp_path: Path) -> None:
    path = tmp_path / "store.db"

    async def prepare() -> None:
        store = await open_store(f"sqlite:///{path}")
        await store.migrate()
        await store.close()

    asyncio.run(prepare())
    script = WRITERS.format(folders=[str(Path(__file__).parent), str(Path(__file__).parents[2])])
    chance = random.Random(5)
    for turn in range(4):
        command = [sys.executable, "-c", script, str(path), str(turn)]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
            assert process.stdout is not None
            lines = list(itertools.islice(process.stdout, chance.randint(200, 400)))
            process.kill()
            lines += process.stdout
        told = {line.strip() for line in lines if line.endswith("\n") and line != "commit\n"}
        commits = lines.count("commit\n")
        # Else nobody shared anything, and this tests nothing.
        assert 0 < commits * 2 < len(told), (commits, len(told))
        with closing(sqlite3.connect(path)) as connection:
            found = {row[0] for row in connection.execute("SELECT id FROM participants")}
            assert connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)
        assert told <= found
        assert all(f"{name}, too" in found for name in found if not name.endswith(", too"))


def test_a_batch_changes_no_table_that_it_also_touches_otherwise() -> None:
    batch = Batch()
    for statement in (
        "INSERT INTO a (x) VALUES (:x)",
        "INSERT INTO a (x) VALUES (:x)",
        "UPDATE b SET x = :x WHERE y = :y",
    ):
        assert batch.takes(statement)
        batch.add(statement, {"x": 1, "y": 2})
    for statement in ("UPDATE a SET x = 1", "UPDATE b SET x = 1", "INSERT INTO b (x) VALUES (1)"):
        assert not batch.takes(statement)
    assert batch.together() == (
        (
            "WITH part_0 AS (INSERT INTO a (x) VALUES ($1)), part_1 AS (INSERT INTO a (x) VALUES ($2))"
            " UPDATE b SET x = $3 WHERE y = $4"
        ),
        [1, 1, 1, 2],
    )


def test_a_batch_has_an_end() -> None:
    batch = Batch()
    while batch.takes("INSERT INTO a (x) VALUES (:x)"):
        batch.add("INSERT INTO a (x) VALUES (:x)", {"x": 1})
    assert len(batch.together()[1]) == Batch.LIMIT


def test_a_refusal_of_what_was_put_off_undoes_everything(postgresql: object) -> None:
    async def main() -> None:
        store = await open_store(postgresql.new_database())  # type: ignore[attr-defined]
        await store.migrate()

        async def write() -> None:
            async with store.transaction() as tx:
                for name in ("kept", "twice", "twice"):
                    await PARTICIPANTS.insert(tx, participant(name))

        with pytest.raises(Duplicate):
            await write()
        async with store.reading() as tx:
            assert await PARTICIPANTS.find(tx, "kept") is None
        await store.close()

    asyncio.run(main())
