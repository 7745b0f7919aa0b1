"""Group commits on SQLite, and batches of writes on PostgreSQL."""

from __future__ import annotations

import asyncio
import itertools
import random
import sqlite3
import subprocess
import sys
from contextlib import closing, suppress
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


def test_a_failed_transaction_does_not_fail_the_others_of_its_group(tmp_path: Path) -> None:
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


def test_a_transaction_returns_only_after_the_commit(tmp_path: Path) -> None:
    """After a transaction another connection, which sees only committed rows, finds the new row."""

    async def main() -> None:
        store = await open_store(f"sqlite:///{tmp_path}/store.db")
        await store.migrate()

        async def write(number: int) -> None:
            async with store.transaction() as tx:
                await PARTICIPANTS.insert(tx, participant(f"p{number}"))
            async with store.autocommit() as tx:
                assert await PARTICIPANTS.find(tx, f"p{number}") is not None

        await asyncio.gather(*(write(number) for number in range(50)))
        await store.close()

    asyncio.run(main())


def test_a_transaction_writes_no_temporary_file(tmp_path: Path) -> None:
    """SQLite moves the undo data of a savepoint to a file once it exceeds 64 KiB, which an order does."""

    def temporary_files() -> list[str]:
        found = []
        for descriptor in Path("/proc/self/fd").iterdir():
            with suppress(OSError):
                found.append(str(descriptor.readlink()))
        return [name for name in found if "etilqs" in name]

    async def main() -> None:
        store = await open_store(f"sqlite:///{tmp_path}/store.db")
        await store.migrate()
        async with store.transaction() as tx:
            for number in range(300):
                await PARTICIPANTS.insert(tx, participant(f"{number} {'x' * 1000}"))
        async with store.transaction() as tx:
            assert await tx.execute("UPDATE participants SET status = 'Disabled'") == 300
            assert temporary_files() == []
        await store.close()

    asyncio.run(main())


def test_cancelling_a_queued_writer_leaves_the_other_commits_intact(tmp_path: Path) -> None:
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


def test_a_failed_commit_raises_in_every_transaction_of_its_group(tmp_path: Path) -> None:
    """A constraint checked at the commit fails the whole group; the next group is not affected."""

    async def main() -> None:
        store = await open_store(f"sqlite:///{tmp_path}/store.db")
        await store.migrate()

        async def write(tx: Transaction) -> None:
            await tx.execute("PRAGMA defer_foreign_keys=ON")
            await tx.execute(
                "INSERT INTO service_groups (id, created_at, updated_at, name, name_folded, consumer_id)"
                " VALUES ('g', 1, 1, 'g', 'g', 'missing')"
            )

        async def refused() -> None:
            async with store.transaction() as tx:
                await write(tx)

        async def valid() -> None:
            async with store.transaction() as tx:
                await PARTICIPANTS.insert(tx, participant("with"))

        outcomes = await asyncio.gather(refused(), valid(), return_exceptions=True)
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
def test_a_violated_deferred_foreign_key_fails_only_its_own_transaction(tmp_path: Path, fault: str) -> None:
    """A pool value may precede its service within a transaction, but a missing service is an error."""

    async def main() -> None:
        store = await open_store(f"sqlite:///{tmp_path}/store.db")
        await store.migrate()
        async with store.transaction() as tx:
            owners = await add_pool(tx)
            existing = service(owners, "existing")
            await insert_service(tx, existing)
            await tx.execute(VALUE, id="held", service_id=existing.id, provider_id=owners.provider_id)
        commits = 0

        def count(statement: str) -> None:
            nonlocal commits
            commits += statement == "COMMIT"

        store._writer.set_trace_callback(count)  # type: ignore[attr-defined]  # groups are not observable otherwise

        async def violating() -> None:
            async with store.transaction() as tx:
                await PARTICIPANTS.insert(tx, participant("violating"))
                if fault == "taken":
                    await tx.execute(VALUE, id="lost", service_id="missing", provider_id=owners.provider_id)
                elif fault == "moved":
                    await tx.execute("UPDATE service_pool_values SET service_id = 'missing'")
                else:
                    await tx.execute("DELETE FROM services WHERE id = :id", id=existing.id)

        async def valid(number: int) -> None:
            async with store.transaction() as tx:
                late = service(owners, "late")
                await tx.execute(VALUE, id=f"v{number}", service_id=late.id, provider_id=owners.provider_id)
                await insert_service(tx, late)

        async def deleting() -> None:
            """Valid as well: deletes the service together with its pool value."""
            async with store.transaction() as tx:
                deleted = service(owners, "deleted")
                await insert_service(tx, deleted)
                await tx.execute(VALUE, id="deleted", service_id=deleted.id, provider_id=owners.provider_id)
                await tx.execute("DELETE FROM service_pool_values WHERE id = 'deleted'")
                await tx.execute("DELETE FROM services WHERE id = :id", id=deleted.id)

        outcomes = await asyncio.gather(
            *(valid(number) for number in range(10)),
            violating(),
            deleting(),
            *(valid(number) for number in range(10, 20)),
            return_exceptions=True,
        )
        assert [type(each) for each in outcomes] == [type(None)] * 10 + [StillReferenced] + [type(None)] * 11
        assert commits < 5, "the transactions did not share a commit"
        async with store.reading() as tx:
            values = await tx.fetch("SELECT id FROM service_pool_values")
            assert {row["id"] for row in values} == {"held", *(f"v{number}" for number in range(20))}
            assert await PARTICIPANTS.find(tx, "violating") is None
            assert not await tx.fetch("PRAGMA foreign_key_check")
        await store.close()

    asyncio.run(main())


def test_every_deferred_foreign_key_is_checked_before_the_end_of_a_transaction(tmp_path: Path) -> None:
    """Several transactions share a commit, where SQLite would check it. Another one needs triggers in DEFERRED_CHECKS."""

    async def main() -> None:
        store = await open_store(f"sqlite:///{tmp_path}/store.db")
        await store.migrate()
        async with store.reading() as tx:
            tables = await tx.fetch("SELECT name, sql FROM sqlite_master WHERE sql LIKE '% DEFERRED%'")
        assert {row["name"]: str(row["sql"]).count("INITIALLY DEFERRED") for row in tables} == {
            "service_pool_values": 1,
            "config_pool_values": 1,
        }
        await store.close()

    asyncio.run(main())


def test_a_cancelled_transaction_is_committed_completely_or_not_at_all(tmp_path: Path) -> None:
    """Cancelled while queued, while running, or during the commit; in the last case it is committed."""

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


def test_a_full_disk_raises_unavailable_and_loses_no_acknowledged_write(tmp_path: Path) -> None:
    async def main() -> None:
        store = await open_store(f"sqlite:///{tmp_path}/store.db")
        await store.migrate()
        pragma = store._writer.execute  # type: ignore[attr-defined]  # simulates a disk of a known size
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


def test_acknowledged_writes_of_shared_commits_survive_a_killed_process(tmp_path: Path) -> None:
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
        acknowledged = {line.strip() for line in lines if line.endswith("\n") and line != "commit\n"}
        commits = lines.count("commit\n")
        # Otherwise no commit was shared, and the test proves nothing.
        assert 0 < commits * 2 < len(acknowledged), (commits, len(acknowledged))
        with closing(sqlite3.connect(path)) as connection:
            found = {row[0] for row in connection.execute("SELECT id FROM participants")}
            assert connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)
        assert acknowledged <= found
        assert all(f"{name}, too" in found for name in found if not name.endswith(", too"))


def test_a_batch_refuses_an_update_beside_another_write_to_the_same_table() -> None:
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


def test_a_batch_is_bounded() -> None:
    batch = Batch()
    while batch.takes("INSERT INTO a (x) VALUES (:x)"):
        batch.add("INSERT INTO a (x) VALUES (:x)", {"x": 1})
    assert len(batch.together()[1]) == Batch.LIMIT


def test_an_error_of_a_queued_write_rolls_back_the_transaction(postgresql: object) -> None:
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
