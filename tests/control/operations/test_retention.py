"""Retention in compressed time, on both databases: days pass, old rows go, what is kept regardless of its age stays."""

from __future__ import annotations

import asyncio
import tracemalloc
from collections.abc import Awaitable, Callable
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any
from uuid import uuid4

import msgspec
import pytest

from bulk_services import NOW, Owners, new_owners, service
from mainstay.control.domain.event_chain import FIRST
from mainstay.control.domain.retention import RetentionPeriods
from mainstay.control.operations.events import chain_next
from mainstay.control.operations.machinery.definitions import Definitions
from mainstay.control.operations.machinery.unit_of_work import OperationTools, UnitOfWork
from mainstay.control.operations.retention import PASS_EVERY, delete_expired
from mainstay.control.rulebook import installed_rulebook
from mainstay.control.store.agents import AGENTS, AgentRow
from mainstay.control.store.engine.contract import Store, Transaction
from mainstay.control.store.engine.open import open_store
from mainstay.control.store.engine.records import to_microseconds
from mainstay.control.store.enrolment_codes import ENROLMENT_CODES, EnrolmentCodeRow
from mainstay.control.store.events import EVENTS, EventRow, read_checkpoint
from mainstay.control.store.jobs import JOB_CHAINS, JOBS, JobChainRow, JobRow
from mainstay.control.store.orphans import ORPHANS, OrphanRow
from mainstay.control.store.retention import DELETED_AT_ONCE
from mainstay.control.store.services import SERVICES, ServiceRow
from mainstay.control.store.subscriptions import acknowledge, lease
from torture import count_of

DAY = timedelta(days=1)
TABLES = ("events", "jobs", "runs", "services", "service_states", "metric_entries", "vault_readings", "orphans")


@pytest.fixture(params=["sqlite", "postgresql"])
def in_store(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[..., None]:
    """Runs a test in a new database."""
    url = f"sqlite:///{tmp_path}/store.db"
    if request.param == "postgresql":
        url = request.getfixturevalue("postgresql").new_database()

    def run(test: Callable[[Store], Awaitable[None]]) -> None:
        async def main() -> None:
            store = await open_store(url)
            try:
                await store.migrate()
                await test(store)
            finally:
                await store.close()

        asyncio.run(main())

    return run


async def sweep(store: Store, now: datetime, periods: RetentionPeriods | None = None) -> int:
    """Runs passes as the background task does; returns the number of transactions."""
    tools = OperationTools(Definitions(installed_rulebook()), retention=periods or RetentionPeriods())
    for number in range(10_000):
        async with store.transaction() as tx:
            if not await delete_expired(UnitOfWork(tx, now, tools)):
                return number
    raise AssertionError("retention does not come to an end")


async def add_event(tx: Transaction, at: datetime, ordinal: int = 0) -> None:
    event = EventRow(
        id=str(uuid4()),
        created_at=at,
        updated_at=at,
        type="service.updated",
        initiator_type="system",
        initiator_id=str(uuid4()),
        entity_id=str(uuid4()),
        properties={"diff": []},
    )
    await EVENTS.insert(tx, event, ordinal=ordinal)


async def hash_all(store: Store) -> None:
    more = True
    while more:
        async with store.transaction() as tx:
            more = await chain_next(tx)


async def add_job(tx: Transaction, of: ServiceRow, at: datetime, *, report: str | None = None, **more: Any) -> str:
    stamps: dict[str, Any] = {"created_at": at, "updated_at": at}
    run = JobChainRow(
        id=str(uuid4()),
        service_id=of.id,
        action="update",
        visited=[],
        origins={},
        taken_values=[],
        new_secrets=[],
        released_values=[],
        retired_secrets=[],
        **stamps,
    )
    await JOB_CHAINS.insert(tx, run)
    job = JobRow(
        id=str(uuid4()),
        action="update",
        run_id=run.id,
        agent_id=of.agent_id,
        service_id=of.id,
        provider_id=of.provider_id,
        consumer_id=of.consumer_id,
        **{"status": "Completed", "completed_at": at, **more},
        **stamps,
    )
    await JOBS.insert(tx, job, group_id=of.group_id, report=report)
    return job.id


async def add_service(
    tx: Transaction, owners: Owners, at: datetime, *, is_terminal: bool = False, provenance: object = None
) -> ServiceRow:
    row = msgspec.structs.replace(service(owners, "s"), created_at=at, updated_at=at)
    text = msgspec.json.encode(provenance or {}).decode()
    await SERVICES.insert(tx, row, is_terminal=int(is_terminal), provenance=text)
    await tx.execute(
        "INSERT INTO service_states (service_id, entered_at, ordinal, state) VALUES (:id, :at, 0, 'Started')",
        id=row.id,
        at=to_microseconds(at),
    )
    return row


async def add_metric(tx: Transaction, of: ServiceRow, type_id: str, at: datetime) -> None:
    await tx.execute(
        "INSERT INTO metric_entries (id, created_at, updated_at, resource_id, value, type_id, agent_id, service_id,"
        " provider_id, consumer_id) VALUES (:id, :at, :at, 'cpu', 1, :type_id, :agent_id, :service_id, :provider_id,"
        " :consumer_id)",
        id=str(uuid4()),
        at=to_microseconds(at),
        type_id=type_id,
        agent_id=of.agent_id,
        service_id=of.id,
        provider_id=of.provider_id,
        consumer_id=of.consumer_id,
    )


async def add_metric_type(tx: Transaction) -> str:
    type_id = str(uuid4())
    await tx.execute(
        "INSERT INTO metric_types (id, created_at, updated_at, name, name_folded, entity_type)"
        " VALUES (:id, 0, 0, 'cpu', 'cpu', 'Service')",
        id=type_id,
    )
    return type_id


async def count(store: Store) -> dict[str, int]:
    async with store.reading() as tx:
        return {
            table: int(str((await tx.fetch(f"SELECT count(*) AS number FROM {table}"))[0]["number"]))
            for table in TABLES
        }


async def ids_of(store: Store, table: str) -> set[str]:
    async with store.reading() as tx:
        return {str(row["id"]) for row in await tx.fetch(f"SELECT id FROM {table}")}


def test_rows_and_memory_stay_flat_while_years_pass(in_store: Callable[..., None]) -> None:
    """Every ten days: a new service with jobs, reports, metrics and events; the one of ten days ago ends."""
    turns, step = max(60, count_of(400)), 10 * DAY

    async def main(store: Store) -> None:
        async with store.transaction() as tx:
            owners = await new_owners(tx)
            metric_type = await add_metric_type(tx)
            always = await add_service(tx, owners, NOW)
        sizes: list[dict[str, int]] = []
        memory: list[int] = []
        previous: ServiceRow | None = None
        tracemalloc.start()
        for turn in range(turns):
            now = NOW + turn * step
            async with store.transaction() as tx:
                current = await add_service(tx, owners, now)
                for number in range(5):
                    at = now + timedelta(hours=number)
                    await add_job(tx, current, at, report="{}")
                    await add_job(tx, always, at, report="{}")
                    await add_metric(tx, always, metric_type, at)
                    await add_metric(tx, current, metric_type, at)
                    await add_event(tx, at, number)
                if previous is not None:
                    ended = msgspec.structs.replace(previous, updated_at=now)
                    await SERVICES.update(tx, ended)
                    await tx.execute("UPDATE services SET is_terminal = 1 WHERE id = :id", id=previous.id)
            previous = current
            await hash_all(store)
            await sweep(store, now + timedelta(hours=12))
            async with store.reading() as tx:
                records = await tx.fetch("SELECT id FROM events WHERE type = 'events.deleted'")
            counted = await count(store)
            # Records of deletions stay as long as other events, at most one for each turn.
            assert len(records) <= 40
            sizes.append({**counted, "events": counted["events"] - len(records)})
            memory.append(tracemalloc.get_traced_memory()[0])
        tracemalloc.stop()
        # 400 days are 40 turns.
        assert sizes[45] == sizes[-1], (sizes[45], sizes[-1])
        assert sizes[-1]["events"] == 5 * 40
        assert memory[-1] - memory[45] < 400_000, memory[45::5]

    in_store(main)


def test_a_living_service_keeps_its_last_job_its_last_report_and_the_jobs_that_set_its_properties(
    in_store: Callable[..., None],
) -> None:
    async def main(store: Store) -> None:
        async with store.transaction() as tx:
            owners = await new_owners(tx)
            row = await add_service(tx, owners, NOW)
            origin = await add_job(tx, row, NOW)
            dropped = {await add_job(tx, row, NOW + timedelta(hours=1), report="{}")}
            reported = await add_job(tx, row, NOW + timedelta(hours=2), report="{}")
            dropped |= {await add_job(tx, row, NOW + timedelta(hours=3), status="Cancelled")}
            last = await add_job(tx, row, NOW + timedelta(hours=4), status="Failed")
            origins = msgspec.json.encode({"port": {"jobId": origin}}).decode()
            await tx.execute("UPDATE services SET provenance = :text WHERE id = :id", text=origins, id=row.id)
            waits = await add_service(tx, owners, NOW)
            active = await add_job(tx, waits, NOW, status="Pending", completed_at=None)
        await sweep(store, NOW + 1000 * DAY)
        assert await ids_of(store, "jobs") == {origin, reported, last, active}
        assert (await count(store))["runs"] == 4
        assert (await count(store))["service_states"] == 2
        async with store.reading() as tx:
            rows = await tx.fetch("SELECT id FROM jobs WHERE report IS NOT NULL")
        assert [row["id"] for row in rows] == [reported]

    in_store(main)


def test_an_ended_service_goes_with_all_its_rows_unless_its_host_is_not_clean(in_store: Callable[..., None]) -> None:
    async def main(store: Store) -> None:
        async with store.transaction() as tx:
            owners = await new_owners(tx)
            metric_type = await add_metric_type(tx)
            gone = await add_service(tx, owners, NOW, is_terminal=True)
            for number in range(2 * DELETED_AT_ONCE):
                await add_metric(tx, gone, metric_type, NOW + 999 * DAY + timedelta(seconds=number))
            await add_job(tx, gone, NOW)
            # Ended only yesterday.
            recent = await add_service(tx, owners, NOW, is_terminal=True)
            await SERVICES.update(tx, msgspec.structs.replace(recent, updated_at=NOW + 999 * DAY))
            unclean = await add_service(tx, owners, NOW, is_terminal=True)
            await tx.execute("UPDATE services SET orphan = 1 WHERE id = :id", id=unclean.id)
            last_job = await add_job(tx, unclean, NOW)
            orphan = OrphanRow(
                id=str(uuid4()),
                created_at=NOW,
                updated_at=NOW,
                service_id=unclean.id,
                service_name="s",
                agent_id=owners.agent_id,
                provider_id=owners.provider_id,
                reason="forced_delete",
                attempts=0,
            )
            await ORPHANS.insert(tx, orphan)
            living = await add_service(tx, owners, NOW)
        await sweep(store, NOW + 1000 * DAY)
        assert await ids_of(store, "services") == {recent.id, unclean.id, living.id}
        assert await ids_of(store, "jobs") == {last_job}
        assert await ids_of(store, "orphans") == {orphan.id}
        assert (await count(store))["metric_entries"] == 0

    in_store(main)


def test_zero_days_keep_rows_for_ever(in_store: Callable[..., None]) -> None:
    async def main(store: Store) -> None:
        async with store.transaction() as tx:
            owners = await new_owners(tx)
            metric_type = await add_metric_type(tx)
            row = await add_service(tx, owners, NOW, is_terminal=True)
            await add_job(tx, row, NOW, report="{}")
            await add_metric(tx, row, metric_type, NOW)
            for number in range(3):
                await add_event(tx, NOW, number)
        await hash_all(store)
        before = await count(store)
        await sweep(store, NOW + 10_000 * DAY, RetentionPeriods(0, 0, 0, 0, 0))
        assert await count(store) == before

    in_store(main)


def test_events_go_from_the_front_and_the_chain_continues_after_the_checkpoint(in_store: Callable[..., None]) -> None:
    async def main(store: Store) -> None:
        async with store.transaction() as tx:
            for number in range(450):
                await add_event(tx, NOW + timedelta(minutes=number), number)
        await hash_all(store)
        async with store.reading() as tx:
            hashes = {row["sequence_number"]: row["hash"] for row in await tx.fetch("SELECT * FROM events")}
        # Each transaction deletes a bounded number.
        assert await sweep(store, NOW + 400 * DAY + timedelta(minutes=420)) >= 3
        async with store.reading() as tx:
            checkpoint = await read_checkpoint(tx)
        assert checkpoint is not None
        assert (checkpoint.sequence_number, checkpoint.hash) == (420, hashes[420])
        # The newest event stays, so that numbers continue.
        await sweep(store, NOW + 1000 * DAY)
        async with store.reading() as tx:
            numbered = await tx.fetch("SELECT sequence_number FROM events WHERE sequence_number IS NOT NULL")
            records = await tx.fetch(
                "SELECT properties FROM events WHERE type = 'events.deleted' ORDER BY created_at"
            )
        assert [row["sequence_number"] for row in numbered] == [450]
        # Each transaction records in the chain what it deleted.
        recorded = sorted(msgspec.json.decode(row["properties"])["upTo"] for row in records)
        assert recorded == [200, 400, 420, 449]
        async with store.transaction() as tx:
            await add_event(tx, NOW + 1000 * DAY)
        await hash_all(store)
        await sweep(store, NOW + 1000 * DAY + 2 * PASS_EVERY)
        async with store.transaction() as tx:
            await add_event(tx, NOW + 1001 * DAY)
            # As if the task had been stopped between deleting and hashing.
            await tx.execute("UPDATE events SET hash = NULL WHERE sequence_number = 454")
        await hash_all(store)
        async with store.reading() as tx:
            rows = await tx.fetch("SELECT sequence_number, hash FROM events ORDER BY sequence_number")
        assert [row["sequence_number"] for row in rows] == [454, 455, 456, 457]
        assert FIRST not in [row["hash"] for row in rows]

    in_store(main)


def test_events_stay_until_a_subscriber_of_the_last_week_has_acknowledged_them(in_store: Callable[..., None]) -> None:
    async def main(store: Store) -> None:
        now = NOW + 1000 * DAY
        async with store.transaction() as tx:
            for number in range(20):
                await add_event(tx, NOW, number)
        await hash_all(store)
        async with store.transaction() as tx:
            await lease(tx, "billing", "i", now - 6 * DAY, now - 6 * DAY + timedelta(seconds=60))
            await acknowledge(tx, "billing", "i", 8)
            await lease(tx, "gone", "i", now - 9 * DAY, now - 9 * DAY + timedelta(seconds=60))
        await sweep(store, now)
        async with store.reading() as tx:
            assert (await tx.fetch("SELECT min(sequence_number) AS first FROM events"))[0]["first"] == 9

    in_store(main)


def test_replicas_share_a_pass_and_do_not_repeat_it(in_store: Callable[..., None]) -> None:
    async def main(store: Store) -> None:
        assert await sweep(store, NOW) > 0
        assert await sweep(store, NOW + PASS_EVERY / 2) == 0
        assert await sweep(store, NOW + PASS_EVERY) > 0
        if store.dialect == "sqlite":
            return
        tools = OperationTools(Definitions(installed_rulebook()))
        async with store.transaction() as held:
            assert await held.try_lock("retention")
            async with store.transaction() as tx:
                assert not await delete_expired(UnitOfWork(tx, NOW + 1000 * DAY, tools))

    in_store(main)


def test_an_event_between_hashed_ones_does_not_break_the_chain_of_new_events(in_store: Callable[..., None]) -> None:
    """The next new event follows the newest one, not the one that is hashed in the same pass."""

    async def main(store: Store) -> None:
        async with store.transaction() as tx:
            for number in range(5):
                await add_event(tx, NOW, number)
        await hash_all(store)
        async with store.reading() as tx:
            before = {row["sequence_number"]: row["hash"] for row in await tx.fetch("SELECT * FROM events")}
        async with store.transaction() as tx:
            await tx.execute("UPDATE events SET hash = NULL WHERE sequence_number = 3")
            await add_event(tx, NOW + DAY)
        await hash_all(store)
        async with store.reading() as tx:
            mended = {row["sequence_number"]: row["hash"] for row in await tx.fetch("SELECT * FROM events")}
        async with store.transaction() as tx:
            await tx.execute("UPDATE events SET hash = NULL WHERE sequence_number = 6")
        await hash_all(store)
        async with store.reading() as tx:
            alone = (await tx.fetch("SELECT hash FROM events WHERE sequence_number = 6"))[0]["hash"]
        assert {number: mended[number] for number in before} == before
        assert mended[6] == alone

    in_store(main)


def test_enrolment_codes_go_long_after_they_expired(in_store: Callable[..., None]) -> None:
    def code(agent: AgentRow, expires_at: datetime) -> EnrolmentCodeRow:
        return EnrolmentCodeRow(
            id=str(uuid4()),
            created_at=NOW,
            updated_at=NOW,
            provider_id=agent.provider_id,
            agent_type_id=agent.agent_type_id,
            count=1,
            uses_left=1,
            expires_at=expires_at,
            tags=[],
            name_prefix="",
            initiator_id=str(uuid4()),
            outlives_token=False,
            initiator_role="admin",
        )

    async def main(store: Store) -> None:
        async with store.transaction() as tx:
            agent = await AGENTS.find(tx, (await new_owners(tx)).agent_id)
            assert agent is not None
            kept = code(agent, NOW + DAY)
            for row in (code(agent, NOW - DAY), kept):
                await ENROLMENT_CODES.insert(tx, row, hash=row.id, initiator_name="a")
        await sweep(store, NOW + 90 * DAY)
        assert await ids_of(store, "host_enrolment_codes") == {kept.id}

    in_store(main)
