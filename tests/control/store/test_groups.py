"""Writers that share a commit on the embedded database, and writes that PostgreSQL is told together."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from bulk import NOW
from mainstay.control.store.contract import Duplicate, Transaction
from mainstay.control.store.dialects import Batch
from mainstay.control.store.open import open_store
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
