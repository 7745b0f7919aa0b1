"""A list reads no rows of others: for every list, filter, order and role the plan starts from the rows of the caller."""

from __future__ import annotations

import asyncio
import re
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import msgspec
import pytest

from bulk_services import RUN_OF_EACH, bulk_id, fill, job_of_each, new_owners
from mainstay.control.access import ACCESS, Caller, Role, reading_relation
from mainstay.control.api.endpoints import all_endpoints
from mainstay.control.store.engine.contract import Row, Store, Transaction, Value
from mainstay.control.store.engine.open import open_store
from mainstay.control.store.engine.paging import (
    MAX_TOTAL,
    Listing,
    Page,
    SqlCondition,
    list_page,
    owned_by,
    parse_listing,
)
from mainstay.control.store.engine.records import ColumnKind, Table, wire_names
from mainstay.control.store.engine.sqlite import SqliteStore
from mainstay.control.store.events import EVENTS, NUMBERED
from mainstay.control.store.jobs import JOBS, with_status
from mainstay.control.store.metrics import METRIC_ENTRIES, resource_ids
from mainstay.control.store.orphans import OPEN_ONLY
from mainstay.control.store.placement import OFFERED_TO_CALLER
from mainstay.control.store.service_types import count_by_type, count_services
from mainstay.control.store.services import (
    DRIFTED_ONLY,
    ENDED_ONLY,
    FAILED_ONLY,
    IN_SYNC_ONLY,
    LIVING_ONLY,
    SERVICES,
    UNKNOWN_ONLY,
    WITH_JOB_ONLY,
)

WITHOUT_ROWS = "11111111-1111-4111-8111-111111111111"
CALLERS = {
    Role.PARTICIPANT: Caller(Role.PARTICIPANT, "t", participant_id=WITHOUT_ROWS),
    Role.AGENT: Caller(Role.AGENT, "t", participant_id=WITHOUT_ROWS, agent_id=WITHOUT_ROWS),
}
# Conditions that pages and endpoints add to the list of a noun.
ALWAYS = {"orphan": [OPEN_ONLY], "event": [NUMBERED]}
VIEWS = {
    "service": [
        *([each] for each in (LIVING_ONLY, ENDED_ONLY, DRIFTED_ONLY, FAILED_ONLY, WITH_JOB_ONLY, UNKNOWN_ONLY)),
        *([each] for each in IN_SYNC_ONLY.values()),
    ],
    "job": [with_status(["Pending", "Processing"]), with_status(["Failed"]), with_status(["Completed"])],
}
EVENT_OF_EACH = (
    "INSERT INTO events (id, created_at, updated_at, ordinal, sequence_number, type, initiator_type, initiator_id,"
    " entity_id, properties, provider_id, consumer_id)"
    " SELECT id, created_at, updated_at, 0, row_number() OVER (ORDER BY id), 'service.created', 'system', id,"
    " id, '{}', provider_id, consumer_id FROM services"
)
METRIC_TYPE = (
    "INSERT INTO metric_types (id, created_at, updated_at, name, name_folded, entity_type)"
    " VALUES ('t', 1, 1, 'load', 'load', 'Service')"
)
METRIC_OF_EACH = (
    "INSERT INTO metric_entries (id, created_at, updated_at, resource_id, value, type_id, agent_id, service_id,"
    " provider_id, consumer_id) SELECT id, created_at, updated_at, 'r', 1, 't', agent_id, id, provider_id, consumer_id"
    " FROM services"
)
ORPHAN_OF_EACH = (
    "INSERT INTO orphans (id, created_at, updated_at, service_id, service_name, agent_id, provider_id, reason, attempts)"
    " SELECT id, created_at, updated_at, id, name, agent_id, provider_id, 'deleted', 0 FROM services"
)
OTHERS = 3000
# The caller has no row: SQLite carries out some instructions for each index that a statement looks into.
INSTRUCTIONS_OF_NOTHING = 4000
MAX_ROWS = 5


class Recording:
    """A transaction that keeps its statements."""

    for_update = skip_locked = for_key_share = ""

    def __init__(self, tx: Transaction) -> None:
        self.asks_name_index, self.json_items, self.as_json = tx.asks_name_index, tx.json_items, tx.as_json
        self.tx = tx
        self.statements: list[tuple[str, dict[str, Value]]] = []

    async def fetch(self, statement: str, *, slow: bool = False, **parameters: Value) -> Sequence[Row]:
        self.statements.append((statement, parameters))
        return await self.tx.fetch(statement, slow=slow, **parameters)


class Plane:
    """A database with rows of others only."""

    def __init__(self, runner: asyncio.Runner, store: Store, foreign: dict[str, str]) -> None:
        self.runner, self.store, self.foreign = runner, store, foreign

    def record(self, read: Any) -> tuple[Any, list[tuple[str, dict[str, Value]]]]:
        async def run() -> tuple[Any, list[tuple[str, dict[str, Value]]]]:
            async with self.store.reading() as tx:
                recording = Recording(tx)
                return await read(recording), recording.statements

        return self.runner.run(run())

    def leading_columns(self, table: str, statement: str, parameters: dict[str, Value]) -> list[str]:
        """The first column of each index by which the plan finds rows of the table; "everything" for a scan."""
        return self.runner.run(self._leading_columns(table, statement, parameters))

    async def _leading_columns(self, table: str, statement: str, parameters: dict[str, Value]) -> list[str]:
        async with self.store.reading() as tx:
            if isinstance(self.store, SqliteStore):
                plan = [row["detail"] for row in await tx.fetch(f"EXPLAIN QUERY PLAN {statement}", **parameters)]  # type: ignore[arg-type]
                steps = [line for line in plan if re.match(rf"(SCAN|SEARCH) {table}\b", line)]
                found = [re.search(r"\((\w+)=\?", line) for line in steps]
                return [step[1] if step else "everything" for step in found]
            rows = await tx.fetch(f"EXPLAIN (FORMAT JSON) {statement}", **parameters)  # type: ignore[arg-type]
            indexes = list(_indexes(table, msgspec.json.decode(rows[0]["QUERY PLAN"])[0]["Plan"]))
            definitions = await tx.fetch("SELECT indexname, indexdef FROM pg_indexes WHERE tablename = :t", t=table)
        first = {row["indexname"]: re.search(r"\((\w+)", row["indexdef"]) for row in definitions}
        return [column[1] if (column := first.get(each)) else "everything" for each in indexes]

    def rows_read(self, statement: str, parameters: dict[str, Value]) -> int:
        """Rows that PostgreSQL reads, or instructions of SQLite beyond those for an empty table: at least one for a row."""

        async def analyzed() -> int:
            async with self.store.reading() as tx:
                rows = await tx.fetch(f"EXPLAIN (ANALYZE, FORMAT JSON) {statement}", **parameters)  # type: ignore[arg-type]
            return _rows(msgspec.json.decode(rows[0]["QUERY PLAN"])[0]["Plan"])

        if not isinstance(self.store, SqliteStore):
            return self.runner.run(analyzed())
        steps = 0

        def count() -> None:
            nonlocal steps
            steps += 1

        with sqlite3.connect(self.store.path) as connection:
            connection.set_progress_handler(count, 1)
            connection.execute(statement, parameters).fetchall()
        return max(0, steps - INSTRUCTIONS_OF_NOTHING)


def _indexes(table: str, node: dict[str, Any]) -> Iterator[str]:
    if node.get("Relation Name") == table and node["Node Type"] != "Bitmap Heap Scan":
        yield node.get("Index Name", "")
    elif node["Node Type"] == "Bitmap Index Scan":
        yield node["Index Name"]
    for child in node.get("Plans", ()):
        yield from _indexes(table, child)


def _rows(node: dict[str, Any]) -> int:
    read = node["Actual Rows"] + node.get("Rows Removed by Filter", 0) if "Relation Name" in node else 0
    return int(read) * int(node["Actual Loops"]) + sum(map(_rows, node.get("Plans", ())))


@contextmanager
def filled(url: str, services: int) -> Iterator[Plane]:
    with asyncio.Runner() as runner:
        store = runner.run(open_store(url))

        async def prepare() -> dict[str, str]:
            await store.migrate()
            async with store.transaction() as tx:
                owners = await new_owners(tx)
            await fill(store, owners, 1, services)
            async with store.transaction() as tx:
                status = "CASE WHEN status = 'Started' THEN 'Completed' ELSE 'Pending' END"
                for statement in (
                    RUN_OF_EACH,
                    job_of_each(status),
                    EVENT_OF_EACH,
                    METRIC_TYPE,
                    METRIC_OF_EACH,
                    ORPHAN_OF_EACH,
                ):
                    await tx.execute(statement)
                if store.dialect == "postgresql":
                    await tx.execute("ANALYZE")
                one = await tx.fetch("SELECT id FROM services LIMIT 1")
            known = {name: getattr(owners, name) for name in owners.__dataclass_fields__}
            return {**known, "service_id": one[0]["id"], "entity_id": one[0]["id"]}

        foreign = runner.run(prepare())
        yield Plane(runner, store, foreign)
        runner.run(store.close())


def url_of(request: pytest.FixtureRequest, folder: str) -> str:
    if request.param == "sqlite":
        return f"sqlite:///{folder}/store.db"
    # Otherwise PostgreSQL scans small tables; without a fitting index it still does.
    return str(request.getfixturevalue("postgresql").new_database()) + "&enable_seqscan=off"


@pytest.fixture(scope="module", params=["sqlite", "postgresql"])
def plane(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Plane]:
    with filled(url_of(request, str(tmp_path_factory.mktemp("own"))), OTHERS) as plane:
        yield plane


LISTED: dict[str, Any] = {each.lists.noun: each.lists for each in all_endpoints() if isinstance(each.lists, Table)}


def value_of(plane: Plane, table: Table[Any], column: str) -> str:
    """A value that rows of others have, where there is one."""
    if column in plane.foreign:
        return plane.foreign[column]
    if column in table.choices:
        return table.choices[column][0]
    if column in table.ids:
        return next(iter(plane.foreign.values()))
    kind = table.kinds[column]
    samples = {ColumnKind.TIME: "2020-09-13T12:26:41Z", ColumnKind.BOOLEAN: "true", ColumnKind.TEXT: "Started"}
    return samples.get(kind, "1")


def queries(plane: Plane, table: Table[Any]) -> Iterator[list[tuple[str, str]]]:
    for name, column in wire_names(table.record).items():
        if table.kinds[column] is ColumnKind.JSON:
            continue
        given = (name, value_of(plane, table, column))
        for page in ([], [("after", "")], [("page", "200")], [("sort", "-createdAt"), ("after", "")]):
            yield [given, *page]
        yield [("sort", name)]
        yield [("sort", f"-{name}"), ("after", "")]


def scoped_lists(plane: Plane) -> Iterator[tuple[str, Table[Any], Listing, list[SqlCondition]]]:
    for noun, table in LISTED.items():
        for role, caller in CALLERS.items():
            relation = reading_relation(caller, noun)
            if relation is None or relation.everything or relation.by_tables:
                continue
            own = owned_by(relation, caller, OFFERED_TO_CALLER)
            for query in queries(plane, table):
                yield f"{noun} {role} {query}", table, parse_listing(table, query), own + ALWAYS.get(noun, [])
            for view in VIEWS.get(noun, []):
                plain = parse_listing(table, [("after", "")])
                yield f"{noun} {role} {view[0].sql}", table, plain, own + view


def test_every_list_of_a_caller_is_examined() -> None:
    own = {noun for (noun, action), roles in ACCESS.items() if action == "read" and Role.PARTICIPANT in roles}
    unlisted = {noun for noun in own if noun not in LISTED}
    assert unlisted <= {"catalogue", "batch", "secret"}, unlisted


def test_every_list_starts_from_the_rows_of_the_caller(plane: Plane) -> None:
    offences = []
    count = 0
    for name, table, listing, own in scoped_lists(plane):
        owners = {alternative.split()[0] for alternative in own[0].alternatives} | {"id"}
        found, statements = plane.record(
            lambda tx, table=table, listing=listing, own=own: list_page(tx, table, listing, own)
        )
        assert found.items == [], name
        # A question for the first row of the filter's value, the total and the page.
        assert len(statements) <= 3, name
        for statement, parameters in statements:
            count += 1
            if "AS first_" in statement:
                assert statement.count("LIMIT 1)") == statement.count("AS first_"), name
                continue
            columns = plane.leading_columns(table.name, statement, parameters)
            if not {*columns} <= owners | ({"provider_id"} if table.noun == "service_option" else set()):
                offences.append(f"{name}: {columns}")
    assert count > 500
    assert not offences, "\n".join(offences[:20])


def test_a_list_reads_nothing_of_others(plane: Plane) -> None:
    offences = []
    for name, table, listing, own in scoped_lists(plane):
        if table.noun not in ("service", "job", "event"):
            continue
        _, statements = plane.record(
            lambda tx, table=table, listing=listing, own=own: list_page(tx, table, listing, own)
        )
        read = sum(plane.rows_read(*each) for each in statements)
        if read > MAX_ROWS:
            offences.append(f"{name}: {read}")
    assert not offences, "\n".join(offences[:20])


def test_resource_ids_start_from_the_rows_of_the_caller(plane: Plane) -> None:
    caller = CALLERS[Role.PARTICIPANT]
    relation = reading_relation(caller, "metric_entry")
    assert relation is not None
    for filters in ([], [("serviceId", plane.foreign["service_id"])], [("typeId", plane.foreign["service_id"])]):
        scope = owned_by(relation, caller) + list(parse_listing(METRIC_ENTRIES, filters).conditions)
        _, statements = plane.record(lambda tx, scope=scope: resource_ids(tx, scope, 10, 0))
        for statement, parameters in statements:
            assert {*plane.leading_columns("metric_entries", statement, parameters)} <= {"provider_id", "consumer_id"}


def test_counts_of_services_start_from_the_rows_of_the_caller(plane: Plane) -> None:
    type_id = plane.foreign["service_type_id"]
    for participant, number in ((WITHOUT_ROWS, 0), (plane.foreign["provider_id"], OTHERS)):
        caller = Caller(Role.PARTICIPANT, "t", participant_id=participant)
        relation = reading_relation(caller, "service")
        assert relation is not None
        own = owned_by(relation, caller)
        counts, by_type = plane.record(lambda tx, own=own: count_by_type(tx, [type_id], own))
        assert counts == {type_id: number}
        uses, by_use = plane.record(lambda tx, own=own: count_services(tx, type_id, own))
        assert sum(use.services for use in uses) == number
        for statement, parameters in (*by_type, *by_use) if number == 0 else ():
            assert {*plane.leading_columns("services", statement, parameters)} <= {"provider_id", "consumer_id"}
            assert plane.rows_read(statement, parameters) <= MAX_ROWS


def test_the_rows_of_own_services_and_agents_are_found_by_their_own_index(plane: Plane) -> None:
    owner = Caller(Role.PARTICIPANT, "t", participant_id=plane.foreign["consumer_id"])
    two = [("serviceId", bulk_id(1)), ("serviceId", bulk_id(2))]
    cases: list[tuple[Table[Any], list[tuple[str, str]], int]] = [
        (SERVICES, [("agentId", plane.foreign["agent_id"])], OTHERS),
        (SERVICES, [("groupId", plane.foreign["group_id"]), ("status", "Stopped")], OTHERS // 10),
        (JOBS, two, 2),
        (JOBS, [*two, ("sort", "-createdAt"), ("pageSize", "1")], 2),
        (EVENTS, [("entityId", bulk_id(7)), ("sort", "createdAt")], 1),
    ]
    for table, query, count in cases:
        relation = reading_relation(owner, table.noun)
        assert relation is not None
        listing, own = parse_listing(table, query), owned_by(relation, owner)
        found, statements = plane.record(
            lambda tx, table=table, listing=listing, own=own: list_page(tx, table, listing, own)
        )
        assert found.total_items == count, query
        column = listing.conditions[0].column
        # Where all rows are the caller's, PostgreSQL may prefer any index.
        for statement, parameters in statements[1:] if count <= len(two) else ():
            assert set(plane.leading_columns(table.name, statement, parameters)) == {column}, query


def test_totals_stop_at_ten_thousand(tmp_path_factory: pytest.TempPathFactory) -> None:
    with filled(f"sqlite:///{tmp_path_factory.mktemp('total')}/store.db", MAX_TOTAL + 5) as plane:
        provider = Caller(Role.PARTICIPANT, "t", participant_id=plane.foreign["provider_id"])
        relation = reading_relation(provider, "service")
        assert relation is not None
        for scope in ([], owned_by(relation, provider)):

            def page(number: int, scope: list[SqlCondition] = scope, status: str = "") -> Page[Any]:
                query = [("page", str(number)), ("pageSize", "100"), ("status", status)]
                found, _ = plane.record(lambda tx: list_page(tx, SERVICES, parse_listing(SERVICES, query), scope))
                assert isinstance(found, Page)
                return found

            first = page(1)
            assert (first.total_items, first.total_pages, first.total_is_bounded) == (MAX_TOTAL, 100, True)
            assert page(100).has_next
            last = page(101)
            assert (len(last.items), last.has_next, last.has_prev) == (5, False, True)
            assert page(102).items == []
            few = page(1, status="Stopped")
            assert few.total_items < MAX_TOTAL
            assert few.total_is_bounded is msgspec.UNSET
            assert b"totalIsBounded" not in msgspec.json.encode(few)


@pytest.mark.test_all
@pytest.mark.parametrize("dialect", ["sqlite", "postgresql"])
def test_lists_read_nothing_of_300_000_services_of_others(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, dialect: str
) -> None:
    url = f"sqlite:///{tmp_path_factory.mktemp('many')}/store.db"
    if dialect == "postgresql":
        url = request.getfixturevalue("postgresql").new_database()
    with filled(url, 300_000) as plane:
        test_a_list_reads_nothing_of_others(plane)
