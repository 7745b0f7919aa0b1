"""The contract of a store: one suite, run on both databases."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Awaitable, Callable
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from uuid import uuid4

import pytest

from mainstay.control.store.engine.contract import Duplicate, StillReferenced, Store
from mainstay.control.store.engine.dialects import number_parameters
from mainstay.control.store.engine.migrations import ChangedMigration, Migration, NewerDatabase, migrations, pending
from mainstay.control.store.engine.open import open_store
from mainstay.control.store.engine.paging import BadQuery, CursorPage, Page, list_page, parse_listing
from mainstay.control.store.events import EVENTS, EventRow, lock_chain, number_events
from mainstay.control.store.participants import PARTICIPANTS, Participant
from mainstay.control.store.service_groups import SERVICE_GROUPS, ServiceGroup
from mainstay.control.store.service_options import SERVICE_OPTION_TYPES, ServiceOptionType

NOW = datetime(2026, 3, 1, 12, 0, 0, 123456, tzinfo=UTC)
Run = Callable[[Callable[[Store], Awaitable[None]]], None]


@pytest.fixture(params=["sqlite", "postgresql"])
def run(request: pytest.FixtureRequest, tmp_path: Path) -> Run:
    """Runs a test's coroutine with an empty store of each kind."""
    url = f"sqlite:///{tmp_path}/store.db"
    if request.param == "postgresql":
        url = request.getfixturevalue("postgresql").new_database()

    def run_with_store(test: Callable[[Store], Awaitable[None]]) -> None:
        async def main() -> None:
            store = await open_store(url)
            try:
                await store.migrate()
                await test(store)
            finally:
                await store.close()

        asyncio.run(main())

    return run_with_store


def participant(name: str = "one", **more: object) -> Participant:
    fields: dict[str, object] = {"id": str(uuid4()), "created_at": NOW, "updated_at": NOW, "status": "Enabled"}
    return Participant(**{**fields, "name": name, **more})  # type: ignore[arg-type]


def test_a_savepoint_takes_back_only_its_own_statements(run: Run) -> None:
    async def test(store: Store) -> None:
        before, inside, after = participant("before"), participant("inside"), participant("after")
        async with store.transaction() as tx:
            await PARTICIPANTS.insert(tx, before)
            with suppress(KeyError):
                async with tx.savepoint():
                    await PARTICIPANTS.insert(tx, inside)
                    raise KeyError
            async with tx.savepoint():
                await PARTICIPANTS.insert(tx, after)
        async with store.reading() as tx:
            found = await PARTICIPANTS.many(tx, [before.id, inside.id, after.id])
        assert set(found) == {before.id, after.id}

    run(test)


def test_a_committed_record_is_read_back_unchanged(run: Run) -> None:
    async def test(store: Store) -> None:
        written = participant("Ünïcode ✓")
        async with store.transaction() as tx:
            await PARTICIPANTS.insert(tx, written)
        async with store.reading() as tx:
            assert await PARTICIPANTS.find(tx, written.id) == written

    run(test)


def test_a_transaction_that_fails_leaves_nothing(run: Run) -> None:
    async def test(store: Store) -> None:
        lost = participant()

        async def fail() -> None:
            async with store.transaction() as tx:
                await PARTICIPANTS.insert(tx, lost)
                raise RuntimeError

        with pytest.raises(RuntimeError):
            await fail()
        async with store.reading() as tx:
            assert await PARTICIPANTS.find(tx, lost.id) is None

    run(test)


def test_a_reader_cannot_write(run: Run) -> None:
    async def test(store: Store) -> None:
        with pytest.raises(Exception, match=r"(?i)read.?only"):
            async with store.reading() as tx:
                await PARTICIPANTS.insert(tx, participant())

    run(test)


def test_a_duplicate_is_refused_by_name(run: Run) -> None:
    async def test(store: Store) -> None:
        def option_type() -> ServiceOptionType:
            return ServiceOptionType(
                id=str(uuid4()), created_at=NOW, updated_at=NOW, name="OS", type="os", description=""
            )

        async with store.transaction() as tx:
            await SERVICE_OPTION_TYPES.insert(tx, option_type())
        with pytest.raises(Duplicate) as refused:
            async with store.transaction() as tx:
                await SERVICE_OPTION_TYPES.insert(tx, option_type())
        assert refused.value.columns == "service_option_types.type"

    run(test)


def test_a_referenced_row_cannot_be_deleted(run: Run) -> None:
    async def test(store: Store) -> None:
        referenced = participant()
        group = ServiceGroup(id=str(uuid4()), created_at=NOW, updated_at=NOW, name="g", consumer_id=referenced.id)
        async with store.transaction() as tx:
            await PARTICIPANTS.insert(tx, referenced)
            await SERVICE_GROUPS.insert(tx, group)
        with pytest.raises(StillReferenced):
            async with store.transaction() as tx:
                await PARTICIPANTS.delete(tx, referenced.id)

    run(test)


def test_concurrent_writers_all_succeed(run: Run) -> None:
    async def test(store: Store) -> None:
        async def add(number: int) -> None:
            async with store.transaction() as tx:
                await PARTICIPANTS.insert(tx, participant(f"p{number}"))

        await asyncio.gather(*(add(number) for number in range(50)))
        async with store.reading() as tx:
            page = await list_page(tx, PARTICIPANTS, parse_listing(PARTICIPANTS, []), [])
        assert isinstance(page, Page)
        assert page.total_items == 50

    run(test)


def test_a_cancelled_writer_leaves_the_store_usable(run: Run) -> None:
    async def test(store: Store) -> None:
        async def hold() -> None:
            async with store.transaction() as tx:
                await PARTICIPANTS.insert(tx, participant("held"))
                await asyncio.sleep(60)

        task = asyncio.create_task(hold())
        await asyncio.sleep(0.05)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        async with store.transaction() as tx:
            await PARTICIPANTS.insert(tx, participant("after"))
        async with store.reading() as tx:
            page = await list_page(tx, PARTICIPANTS, parse_listing(PARTICIPANTS, []), [])
        assert [each.name for each in page.items] == ["after"]

    run(test)


def test_listeners_are_notified_only_after_the_commit(run: Run) -> None:
    async def test(store: Store) -> None:
        async def fail() -> None:
            async with store.transaction() as tx:
                tx.announce("topic")
                raise RuntimeError

        with store.bus.listening("topic") as notified:
            with pytest.raises(RuntimeError):
                await fail()
            assert not notified.is_set()
            async with store.transaction() as tx:
                tx.announce("topic")
                assert not notified.is_set()
            await asyncio.wait_for(notified.wait(), timeout=5)

    run(test)


def test_replicas_notify_each_other(postgresql: object) -> None:
    async def main() -> None:
        url = postgresql.new_database()  # type: ignore[attr-defined]
        one, other = await open_store(url), await open_store(url)
        try:
            # The listener connects in the background, so the first announcements may be lost.
            for _ in range(100):
                with other.bus.listening("topic") as notified:
                    async with one.transaction() as tx:
                        tx.announce("topic")
                    try:
                        await asyncio.wait_for(notified.wait(), timeout=0.1)
                    except TimeoutError:
                        continue
                    return
            pytest.fail("the other replica was not notified")
        finally:
            await one.close()
            await other.close()

    asyncio.run(main())


def event(at: datetime) -> EventRow:
    return EventRow(
        id=str(uuid4()),
        created_at=at,
        updated_at=at,
        type="participant.created",
        initiator_type="system",
        initiator_id=str(uuid4()),
        entity_id=str(uuid4()),
        properties={"diff": []},
    )


def test_events_are_numbered_without_gaps(run: Run) -> None:
    async def test(store: Store) -> None:
        seen: list[str] = []
        written: list[str] = []

        async def write(slow: bool) -> None:
            async with store.transaction() as tx:
                row = event(NOW)
                await EVENTS.insert(tx, row, ordinal=0)
                # A slow transaction commits after younger ones; a reader must still find it later.
                if slow and store.dialect == "postgresql":
                    await asyncio.sleep(0.05)
            written.append(row.id)

        async def read() -> None:
            last = 0
            while len(seen) < 60:
                async with store.transaction() as tx:
                    await lock_chain(tx)
                    await number_events(tx)
                async with store.reading() as tx:
                    rows = await tx.fetch(
                        "SELECT id, sequence_number FROM events WHERE sequence_number > :last ORDER BY sequence_number",
                        last=last,
                    )
                for row in rows:
                    last += 1
                    assert row["sequence_number"] == last
                    seen.append(str(row["id"]))
                await asyncio.sleep(0.005)

        reader = asyncio.create_task(read())
        await asyncio.gather(*(write(number % 3 == 0) for number in range(60)))
        await asyncio.wait_for(reader, timeout=20)
        assert sorted(seen) == sorted(written)

    run(test)


async def fill(store: Store, names: list[str]) -> None:
    async with store.transaction() as tx:
        for name in names:
            await PARTICIPANTS.insert(tx, participant(name))


async def names_of(store: Store, *query: tuple[str, str]) -> list[str]:
    async with store.reading() as tx:
        page = await list_page(tx, PARTICIPANTS, parse_listing(PARTICIPANTS, query), [])
    return [each.name for each in page.items]


def test_names_are_found_by_a_substring_in_any_case(run: Run) -> None:
    async def test(store: Store) -> None:
        await fill(store, ["Straße 100%", "STRASSE", "under_score", "underXscore", "ÖL"])
        assert sorted(await names_of(store, ("name", "strasse"))) == ["STRASSE", "Straße 100%"]
        assert await names_of(store, ("name", "100%")) == ["Straße 100%"]
        assert await names_of(store, ("name", "r_s")) == ["under_score"]
        assert await names_of(store, ("name", "öl")) == ["ÖL"]
        assert len(await names_of(store, ("name", "öl"), ("name", "under"))) == 3

    run(test)


def test_text_sorts_by_its_bytes(run: Run) -> None:
    async def test(store: Store) -> None:
        await fill(store, ["b", "B", "a", "_", "Ä", "é"])
        assert await names_of(store, ("sort", "name")) == ["B", "_", "a", "b", "Ä", "é"]
        assert await names_of(store, ("sort", " name")) == ["B", "_", "a", "b", "Ä", "é"]
        assert await names_of(store, ("sort", "-name")) == ["é", "Ä", "b", "a", "_", "B"]

    run(test)


def test_pages_by_cursor_contain_every_row_once(run: Run) -> None:
    async def test(store: Store) -> None:
        await fill(store, [f"n{number % 7}" for number in range(53)])
        for sort in ("name", "-name", "createdAt", "-status"):
            seen: list[str] = []
            after: str | None = ""
            while after is not None:
                query = [("after", after), ("pageSize", "10"), ("sort", sort)]
                async with store.reading() as tx:
                    page = await list_page(tx, PARTICIPANTS, parse_listing(PARTICIPANTS, query), [])
                assert isinstance(page, CursorPage)
                seen += [each.id for each in page.items]
                after = page.next
            assert len(seen) == len(set(seen)) == 53

    run(test)


def test_a_numbered_page_contains_the_totals(run: Run) -> None:
    async def test(store: Store) -> None:
        await fill(store, [f"n{number}" for number in range(21)])
        async with store.reading() as tx:
            page = await list_page(tx, PARTICIPANTS, parse_listing(PARTICIPANTS, [("page", "3")]), [])
        assert isinstance(page, Page)
        assert (page.total_items, page.total_pages, page.current_page) == (21, 3, 3)
        assert (page.has_next, page.has_prev, len(page.items)) == (False, True, 1)

    run(test)


@pytest.mark.parametrize(
    "query",
    [
        ("page", "0"),
        ("page", "x"),
        ("pageSize", "101"),
        ("sort", "nothing"),
        ("nothing", "1"),
        ("createdAt", "yesterday"),
        ("after", "rubbish"),
        ("name", "a\0b"),
    ],
)
def test_an_invalid_list_parameter_is_refused(query: tuple[str, str]) -> None:
    with pytest.raises(BadQuery):
        parse_listing(PARTICIPANTS, [query])


def test_migrations_run_once_and_under_a_lock(run: Run) -> None:
    async def test(store: Store) -> None:
        assert await store.migrate() == []
        assert list(await asyncio.gather(store.migrate(), store.migrate())) == [[], []]

    run(test)


def test_a_changed_migration_is_refused() -> None:
    first = migrations("sqlite")[0]
    with pytest.raises(ChangedMigration):
        pending("sqlite", {first.name: "something else"}, {})


def test_a_database_of_a_newer_release_is_refused() -> None:
    known = {migration.name: migration.checksum for migration in migrations("sqlite")}
    with pytest.raises(NewerDatabase):
        pending("sqlite", {**known, "9999_future": "?"}, {})


def test_migrations_are_numbered_without_gaps() -> None:
    for dialect in ("sqlite", "postgresql"):
        found: tuple[Migration, ...] = migrations(dialect)
        numbers = [migration.name.split("_")[0] for migration in found]
        assert numbers == [f"{number:04d}" for number in range(1, len(numbers) + 1)]


def test_parameters_are_numbered_and_string_literals_are_ignored() -> None:
    statement = "SELECT ':no', :a::text, '''(:x)' WHERE b = :b AND c = :a"
    assert number_parameters(statement) == ("SELECT ':no', $1::text, '''(:x)' WHERE b = $2 AND c = $1", ("a", "b"))


def test_the_database_file_is_private(tmp_path: Path) -> None:
    async def main() -> None:
        store = await open_store(f"sqlite:///{tmp_path}/store.db")
        await store.migrate()
        for file in tmp_path.iterdir():
            assert file.stat().st_mode & 0o077 == 0, file.name
        await store.close()

    asyncio.run(main())


def test_sqlite_waits_for_the_disk_at_a_commit(tmp_path: Path) -> None:
    async def main() -> None:
        store = await open_store(f"sqlite:///{tmp_path}/store.db")
        async with store.transaction() as tx:
            assert [dict(row) for row in await tx.fetch("PRAGMA synchronous")] == [{"synchronous": 2}]
            assert [dict(row) for row in await tx.fetch("PRAGMA foreign_keys")] == [{"foreign_keys": 1}]
        await store.close()

    asyncio.run(main())
    with sqlite3.connect(tmp_path / "store.db") as connection:
        assert connection.execute("PRAGMA journal_mode").fetchone() == ("wal",)
    connection.close()
