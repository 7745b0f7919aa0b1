"""Frequent queries use an index, whatever the size of the tables. EXPLAIN of both databases is the evidence."""

from __future__ import annotations

import asyncio
import base64
import re
from collections.abc import Awaitable, Callable, Iterator, Sequence
from datetime import timedelta

import msgspec
import pytest

from bulk_services import NOW, RUN_OF_EACH, fill, job_of_each, new_owners
from control_plane import Cluster
from mainstay.control.access import Caller, Role, relation_of
from mainstay.control.store import jobs, subscriptions
from mainstay.control.store.agents import silent_agents
from mainstay.control.store.engine.contract import Row, Transaction, Value
from mainstay.control.store.engine.open import open_store
from mainstay.control.store.engine.paging import list_page, owned_by, parse_listing
from mainstay.control.store.engine.postgresql import PostgresqlStore
from mainstay.control.store.events import EVENTS, has_unnumbered, read_summaries
from mainstay.control.store.jobs import JOBS
from mainstay.control.store.placement import serving_agents
from mainstay.control.store.services import SERVICES
from mainstay.control.store.tokens import find_caller

Query = Callable[[Transaction], Awaitable[object]]
CALLER = Caller(Role.PARTICIPANT, "t", participant_id="p")
SERVICE_COUNT = 3000
# A job, an event and a token for each service, so that the planners have real alternatives.
HISTORY = (
    RUN_OF_EACH,
    job_of_each("CASE WHEN status = 'Started' THEN 'Completed' ELSE 'Pending' END"),
    (
        "INSERT INTO events (id, created_at, updated_at, ordinal, sequence_number, type, initiator_type, initiator_id,"
        " entity_id, properties, provider_id, consumer_id)"
        " SELECT id, created_at, updated_at, 0, row_number() OVER (ORDER BY id), 'service.created', 'system', id,"
        " id, '{}', provider_id, consumer_id FROM services"
    ),
    (
        "INSERT INTO tokens (id, created_at, updated_at, name, name_folded, role, hash)"
        " SELECT id, created_at, updated_at, name, name_folded, 'admin', id FROM services"
    ),
    "ANALYZE",
)


class RecordingTransaction:
    """A transaction that records the plan of every query."""

    for_update = skip_locked = for_key_share = ""

    def __init__(self, tx: Transaction, dialect: str) -> None:
        self.asks_name_index = tx.asks_name_index
        self.json_items = tx.json_items
        self.as_json = tx.as_json
        self.tx = tx
        self.explain = "EXPLAIN QUERY PLAN" if dialect == "sqlite" else "EXPLAIN"
        self.column = "detail" if dialect == "sqlite" else "QUERY PLAN"
        self.lines: list[str] = []

    async def fetch(self, statement: str, *, slow: bool = False, **parameters: Value) -> Sequence[Row]:
        plan = await self.tx.fetch(f"{self.explain} {statement}", slow=slow, **parameters)
        self.lines += [str(row[self.column]) for row in plan]
        return await self.tx.fetch(statement, slow=slow, **parameters)


@pytest.fixture(scope="module", params=["sqlite", "postgresql"])
def plan_of(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Callable[[Query], list[str]]]:
    url = f"sqlite:///{tmp_path_factory.mktemp('plans')}/store.db"
    if request.param == "postgresql":
        # Otherwise PostgreSQL scans small tables; without a fitting index it still does.
        url = request.getfixturevalue("postgresql").new_database() + "&enable_seqscan=off"
    with asyncio.Runner() as runner:
        store = runner.run(open_store(url))

        async def prepare() -> None:
            await store.migrate()
            async with store.transaction() as tx:
                owners = await new_owners(tx)
            await fill(store, owners, 1, SERVICE_COUNT)
            async with store.transaction() as tx:
                for statement in HISTORY:
                    await tx.execute(statement)

        async def plan(query: Query) -> list[str]:
            async with store.transaction() as tx:
                recording = RecordingTransaction(tx, store.dialect)
                await query(recording)  # type: ignore[arg-type]
            return recording.lines

        runner.run(prepare())
        yield lambda query: runner.run(plan(query))
        runner.run(store.close())


def cursor_at(sort: str, value: int, record_id: str) -> str:
    return base64.urlsafe_b64encode(msgspec.json.encode((sort, value, record_id))).decode()


def reads_everything(lines: list[str]) -> bool:
    """SQLite prints SCAN with a table and no index; PostgreSQL prints Seq Scan."""
    return any(
        "Seq Scan" in line or re.fullmatch(r"SCAN (services|jobs|events|tokens|agents)", line) for line in lines
    )


def services_after(*query: tuple[str, str]) -> Query:
    own = owned_by(relation_of(CALLER, "service", "read"), CALLER)
    return lambda tx: list_page(tx, SERVICES, parse_listing(SERVICES, query), own)


def events_after(tx: Transaction) -> Awaitable[object]:
    own = owned_by(relation_of(CALLER, "event", "read"), CALLER)
    return subscriptions.events_after(tx, 5, 100, own)


def summaries_after(tx: Transaction) -> Awaitable[object]:
    own = owned_by(relation_of(CALLER, "event", "read"), CALLER)
    return read_summaries(tx, 5, 500, 100, own)


def everything_after(tx: Transaction) -> Awaitable[object]:
    return list_page(tx, SERVICES, parse_listing(SERVICES, [("after", DEEP)]), [])


def events_listed(tx: Transaction) -> Awaitable[object]:
    listing = parse_listing(EVENTS, [("after", ""), ("sort", "sequenceNumber")])
    return list_page(tx, EVENTS, listing, owned_by(relation_of(CALLER, "event", "read"), CALLER))


def jobs_after(tx: Transaction) -> Awaitable[object]:
    listing = parse_listing(JOBS, [("after", DEEP)])
    return list_page(tx, JOBS, listing, owned_by(relation_of(CALLER, "job", "read"), CALLER))


DEEP = cursor_at("created_at", 1_600_000_500_000_000, "x")
FREQUENT: dict[str, tuple[Query, tuple[str, ...]]] = {
    "the first page of services": (services_after(("after", "")), ("services_by_provider", "services_by_consumer")),
    "a later page of services": (services_after(("after", DEEP)), ("services_by_provider", "services_by_consumer")),
    "a later page of services in one status": (
        services_after(("after", DEEP), ("status", "Stopped")),
        ("services_by_provider_status", "services_by_consumer_status"),
    ),
    "a later page of all services": (everything_after, ("services_by_age",)),
    "a later page of jobs": (jobs_after, ("jobs_by_provider", "jobs_by_consumer")),
    "events for a subscriber": (
        lambda tx: subscriptions.events_after(tx, 5, 100, []),
        ("sequence_number",),
    ),
    "events for a participant": (
        events_after,
        ("events_by_provider", "events_by_consumer", "events_by_participant"),
    ),
    "events for all live pages": (lambda tx: read_summaries(tx, 5, None, 100, []), ("sequence_number",)),
    "missed events of a live page": (
        summaries_after,
        ("events_by_provider", "events_by_consumer", "events_by_participant"),
    ),
    "a page of events": (events_listed, ("events_by_provider", "events_by_consumer", "events_by_participant")),
    "unnumbered events": (has_unnumbered, ("sequence_number",)),
    "the owner of a token": (lambda tx: find_caller(tx, "token"), ("tokens",)),
    "jobs that an agent may claim": (
        lambda tx: jobs.pending_jobs(tx, "a", 10, None),
        ("jobs_pending", "jobs_processing"),
    ),
    "a claim": (
        lambda tx: jobs.claim(tx, "j", NOW, NOW + timedelta(minutes=5), None),
        ("jobs",),
    ),
    "the active job of a service": (lambda tx: jobs.active_job(tx, "s"), ("jobs_one_active",)),
    "overdue jobs": (lambda tx: jobs.overdue_ids(tx, NOW, 50), ("jobs_by_deadline",)),
    "silent agents": (lambda tx: silent_agents(tx, NOW, 100), ("agents_by_silence",)),
}
# Each database has its own names for the indexes of unique columns.
OTHER_NAMES = {
    "sequence_number": ("sqlite_autoindex_events_2", "events_sequence_number_key"),
    "tokens": ("sqlite_autoindex_tokens_2", "tokens_hash_key"),
    "jobs": ("sqlite_autoindex_jobs_1", "jobs_pkey"),
}


@pytest.mark.parametrize("name", FREQUENT)
def test_frequent_queries_use_an_index(plan_of: Callable[[Query], list[str]], name: str) -> None:
    query, indexes = FREQUENT[name]
    lines = plan_of(query)
    plan = "\n".join(lines)
    assert not reads_everything(lines), plan
    for index in indexes:
        assert any(known in plan for known in OTHER_NAMES.get(index, (index,))), plan


def test_choosing_an_agent_reads_no_services(plan_of: Callable[[Query], list[str]]) -> None:
    plan = "\n".join(plan_of(lambda tx: serving_agents(tx, "t", "c", None, 10)))
    assert "agent_loads" in plan
    assert not re.search(r"\bservices(_by_|_living|\b)", plan), plan


def test_a_search_by_name_among_all_rows_uses_the_name_index(plan_of: Callable[[Query], list[str]]) -> None:
    for query in ([("name", "ulk 2999")], [("name", "ulk 2999"), ("after", "")]):
        lines = plan_of(lambda tx, query=query: list_page(tx, SERVICES, parse_listing(SERVICES, query), []))  # type: ignore[misc]
        plan = "\n".join(lines)
        assert "service_names VIRTUAL TABLE INDEX" in plan or "services_by_name" in plan, plan
        rows_read = [line for line in lines if line.startswith(("SCAN services", "SEARCH services"))]
        assert set(rows_read) <= {"SEARCH services USING INDEX sqlite_autoindex_services_1 (id=?)"}, plan


def test_a_list_is_planned_for_the_actual_caller(postgresql: Cluster) -> None:
    """A generic plan would scan a million services of other callers to find none of this one."""

    async def plans() -> dict[str, int]:
        store = PostgresqlStore(postgresql.new_database(), pool_size=1)
        await store.open()
        await store.migrate()
        async with store.transaction() as tx:
            owners = await new_owners(tx)
        await fill(store, owners, 1, SERVICE_COUNT)
        query = services_after(("after", ""))
        for open_transaction in (store.reading, store.transaction):
            for _ in range(10):
                async with open_transaction() as tx:
                    await query(tx)
        async with store.autocommit() as tx:
            found = await tx.fetch("SELECT statement, generic_plans FROM pg_prepared_statements")
        await store.close()
        return {str(row["statement"]): int(str(row["generic_plans"])) for row in found}

    made = asyncio.run(plans())
    assert {count for statement, count in made.items() if "part_0" in statement} == {0}
