"""Search by a substring of the name gives the same result with and without an index."""

from __future__ import annotations

import asyncio
import sqlite3
import subprocess
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import closing
from pathlib import Path

import msgspec
import pytest
import structlog
from hypothesis import given, settings
from hypothesis import strategies as st

from bulk_services import Owners, bulk_time, fill, insert_service, new_owners, service
from control_plane import Cluster
from mainstay.control.access import Caller, Role, relation_of
from mainstay.control.store.engine import trigrams
from mainstay.control.store.engine.contract import Store, Transaction
from mainstay.control.store.engine.open import open_store
from mainstay.control.store.engine.paging import CursorPage, Page, SqlCondition, list_page, owned_by, parse_listing
from mainstay.control.store.engine.records import fold
from mainstay.control.store.services import SERVICES, ServiceRow

# Special to LIKE, to the query language of the index, or to case folding.
PIECES = [
    "a",
    "A",
    "b",
    "ab",
    "ß",
    "SS",
    "İ",
    "ı",
    "ſ",
    "Σς",
    "é",
    "e\u0301",
    "%",
    "_",
    "\\",
    "!",
    '"',
    "'",
    "*",
    "(",
    ")",
]
PIECES += [
    ":",
    "^",
    "-",
    "+",
    ".",
    " ",
    " AND ",
    " OR ",
    "NEAR(",
    "🙂",
    "👩‍👩‍👧",
    "日本語",
    "name_folded",
    "\t",
    "\u0130x",
]
names = st.lists(st.sampled_from(PIECES), min_size=1, max_size=8).map("".join) | st.text(
    st.characters(exclude_categories=["Cs"], exclude_characters="\0"), min_size=1, max_size=12
)


class RolledBack(Exception):
    """Raised to roll back a transaction."""


@pytest.fixture(params=["sqlite", "postgresql"])
def inside(
    request: pytest.FixtureRequest, tmp_path: Path
) -> Iterator[Callable[[Callable[[Transaction], Awaitable[None]]], None]]:
    """Runs work in a transaction that is rolled back; the store is reused."""
    url = f"sqlite:///{tmp_path}/store.db"
    if request.param == "postgresql":
        # Otherwise PostgreSQL scans a small table and does not use the index.
        url = request.getfixturevalue("postgresql").new_database() + "&enable_seqscan=off"
    with asyncio.Runner() as runner:
        store = runner.run(open_store(url))
        runner.run(store.migrate())

        async def roll_back(work: Callable[[Transaction], Awaitable[None]]) -> None:
            async with store.transaction() as tx:
                await work(tx)
                raise RolledBack

        def run(work: Callable[[Transaction], Awaitable[None]]) -> None:
            with pytest.raises(RolledBack):
                runner.run(roll_back(work))

        yield run
        runner.run(store.close())


async def search(
    tx: Transaction, query: Sequence[tuple[str, str]], own: Sequence[SqlCondition] = ()
) -> Page[ServiceRow] | CursorPage[ServiceRow]:
    return await list_page(tx, SERVICES, parse_listing(SERVICES, query), own)


async def all_after(
    tx: Transaction, query: Sequence[tuple[str, str]], own: Sequence[SqlCondition] = ()
) -> list[ServiceRow]:
    found: list[ServiceRow] = []
    after: str | None = ""
    while after is not None:
        page = await search(tx, [*query, ("after", after)], own)
        assert isinstance(page, CursorPage)
        found += page.items
        after = page.next
    return found


def test_a_search_finds_what_a_plain_comparison_finds(
    inside: Callable[[Callable[[Transaction], Awaitable[None]]], None],
) -> None:
    @settings(max_examples=60)
    @given(st.data())
    def check(data: st.DataObject) -> None:
        kept = data.draw(st.lists(names, min_size=1, max_size=12))
        part = st.sampled_from(kept).flatmap(
            lambda name: st.tuples(st.integers(0, len(name) - 1), st.integers(1, len(name))).map(
                lambda cut: name[cut[0] : cut[0] + cut[1]]
            )
        )
        wanted = data.draw(st.lists(part | part.map(str.swapcase) | names, min_size=1, max_size=3))
        expected = sorted(name for name in kept if any(fold(each) in fold(name) for each in wanted))
        query = [("name", each) for each in wanted]

        async def work(tx: Transaction) -> None:
            owners = await new_owners(tx)
            for number, name in enumerate(kept):
                await insert_service(tx, service(owners, name, number))
            page = await search(tx, [*query, ("pageSize", "100")])
            assert isinstance(page, Page)
            assert page.total_items == len(expected)
            assert sorted(row.name for row in page.items) == expected
            for sort in ("createdAt", "-createdAt", "name"):
                rows = await all_after(tx, [*query, ("sort", sort), ("pageSize", "2")])
                assert sorted(row.name for row in rows) == expected
                values = [row.name if sort == "name" else row.created_at for row in rows]
                assert values == sorted(values, reverse=sort.startswith("-"))

        inside(work)

    check()


def test_a_search_reflects_renames_and_deletions(
    inside: Callable[[Callable[[Transaction], Awaitable[None]]], None],
) -> None:
    async def work(tx: Transaction) -> None:
        owners = await new_owners(tx)
        row, other = service(owners, "first name"), service(owners, "another name")
        await insert_service(tx, row)
        await insert_service(tx, other)
        await SERVICES.update(tx, msgspec.structs.replace(row, name="second"))
        assert [each.id for each in (await search(tx, [("name", "first")])).items] == []
        assert [each.id for each in (await search(tx, [("name", "SECO")])).items] == [row.id]
        await SERVICES.delete(tx, row.id)
        assert (await search(tx, [("name", "seco")])).items == []
        assert [each.id for each in (await search(tx, [("name", "nam")])).items] == [other.id]

    inside(work)


@pytest.mark.parametrize("part", ["bulk 59", "bul", "k", "no such"])
def test_a_part_of_few_or_very_many_names_is_found_within_scope_and_filters(
    inside: Callable[[Callable[[Transaction], Awaitable[None]]], None], part: str
) -> None:
    count = trigrams.MANY + 1000

    async def work(tx: Transaction) -> None:
        owners = await new_owners(tx)
        stranger = service(await new_owners(tx), "Bulk 59 of another consumer")
        await insert_service(tx, stranger)
        await fill_inside(tx, owners, count)
        caller = Caller(Role.PARTICIPANT, "t", participant_id=owners.consumer_id)
        own = owned_by(relation_of(caller, "service", "read"), caller)
        query = [("name", part), ("status", "Stopped"), ("pageSize", "100")]
        expected = [f"Bulk {number}" for number in range(1, count + 1) if number % 10 == 0]
        expected = [name for name in expected if part in fold(name)]
        rows = await all_after(tx, query, own)
        assert [row.name for row in rows] == expected
        page = await search(tx, query, own)
        assert isinstance(page, Page)
        assert page.total_items == len(expected)
        assert [row.name for row in page.items] == expected[:100]

    inside(work)


async def fill_inside(tx: Transaction, owners: Owners, count: int) -> None:
    class Open:
        """A store that returns the open transaction."""

        def transaction(self) -> Open:
            return self

        async def __aenter__(self) -> Transaction:
            return tx

        async def __aexit__(self, *_: object) -> None:
            return None

    await fill(Open(), owners, 1, count)  # type: ignore[arg-type]


def test_a_compacted_file_finds_the_same_names(tmp_path: Path) -> None:
    """VACUUM may change the row ids of a table."""
    path = tmp_path / "store.db"
    deleted, kept = range(1, 2001), range(2001, 3001)

    async def prepare() -> list[str]:
        store = await open_store(f"sqlite:///{path}")
        run = await store.migrate()
        async with store.transaction() as tx:
            await fill_inside(tx, await new_owners(tx), kept[-1])
            await tx.execute("DELETE FROM services WHERE created_at <= :last", last=bulk_time(deleted[-1]))
        await store.close()
        return run

    async def check() -> None:
        store = await open_store(f"sqlite:///{path}")
        async with store.transaction() as tx:
            for number in (1, 17, 2000, 2001, 2345, 3000):
                expected = [f"Bulk {each}" for each in kept if str(each).startswith(str(number))]
                rows = await all_after(tx, [("name", f"bulk {number}"), ("pageSize", "100")])
                assert [row.name for row in rows] == expected
            await tx.execute("UPDATE services SET name_folded = 'renamed' WHERE name = 'Bulk 2345'")
            await tx.execute("DELETE FROM services WHERE name = 'Bulk 2346'")
            await insert_service(tx, service(await new_owners(tx), "Bulk 23456"))
            assert [row.name for row in await all_after(tx, [("name", "RENAMED")])] == ["Bulk 2345"]
            assert {row.name for row in await all_after(tx, [("name", "bulk 234"), ("pageSize", "100")])} == {
                "Bulk 23456",
                *(f"Bulk {number}" for number in range(2340, 2350) if number not in (2345, 2346)),
            }
            # Fails unless the index contains exactly the names.
            await tx.execute("INSERT INTO service_names (service_names, rank) VALUES ('integrity-check', 1)")
        await store.close()

    assert "0003_name_search" in asyncio.run(prepare())
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("VACUUM")
        # Not every release changes row ids, so the test does.
        connection.execute(
            "UPDATE services SET rowid = (SELECT count(*) FROM services AS others WHERE others.id <= services.id)"
        )
        connection.commit()
        assert connection.execute("SELECT min(rowid), max(rowid) FROM services").fetchone() == (1, len(kept))
    asyncio.run(check())


def test_a_search_fetches_only_rows_of_matching_services(tmp_path: Path) -> None:
    """Names that match by trigrams only are excluded before their rows are read."""

    async def main() -> None:
        store = await open_store(f"sqlite:///{tmp_path}/store.db")
        await store.migrate()
        async with store.transaction() as tx:
            owners = await new_owners(tx)
            for number in range(500):
                await insert_service(tx, service(owners, f"x 999{number}", number))
            await insert_service(tx, service(owners, "x 999999"))
            found = await trigrams.find(tx, "service_names", '"999"', "name_folded LIKE '%999999%'", {})
            assert found is not None
            assert len(msgspec.json.decode(found)) == 1
        await store.close()

    asyncio.run(main())


def test_a_database_that_cannot_have_the_index_works_without_it(postgresql: Cluster) -> None:
    """The role of the server may lack the right to create the extension; once it exists, the next start uses it."""
    url = postgresql.new_database()
    database = url.removeprefix("postgresql://postgres@/").partition("?")[0]
    role = f"r{database}"

    def as_owner(statement: str) -> None:
        subprocess.run(["psql", "-q", "-d", url, "-c", statement], check=True, capture_output=True)

    as_owner(f"CREATE ROLE {role} LOGIN")
    as_owner(f"GRANT ALL ON SCHEMA public TO {role}")
    limited = url.replace("postgres@", f"{role}@")

    async def start() -> tuple[list[str], list[str]]:
        store: Store = await open_store(limited)
        try:
            run = await store.migrate()
            async with store.transaction() as tx:
                if "0001_tables" in run:
                    await insert_service(tx, service(await new_owners(tx), "Straße"))
                found = (await search(tx, [("name", "STRASS")])).items
            return run, [row.name for row in found]
        finally:
            await store.close()

    with structlog.testing.capture_logs() as logs:
        run, found = asyncio.run(start())
    assert "0003_name_search" not in run
    assert found == ["Straße"]
    assert [each["event"] for each in logs] == ["optional migration skipped"]
    as_owner("CREATE EXTENSION pg_trgm")
    assert asyncio.run(start()) == (["0003_name_search"], ["Straße"])
