"""Steps of the clock: running jobs go on, dead leases end, and replicas move the deadlines once."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from mainstay.control.access import Caller, Role
from mainstay.control.background import TASKS, run_task
from mainstay.control.domain.clock import ClockReading, step_of
from mainstay.control.operations import (
    agent_types,
    agents,
    jobs,
    participants,
    service_groups,
    service_types,
    services,
)
from mainstay.control.operations.machinery.definitions import Definitions
from mainstay.control.operations.machinery.server_clock import ServerClock, start_clock
from mainstay.control.operations.machinery.unit_of_work import OperationTools, UnitOfWork
from mainstay.control.rulebook import installed_rulebook
from mainstay.control.store.agents import AGENTS, AgentRow
from mainstay.control.store.clock import last_step
from mainstay.control.store.engine.contract import Store, Transaction
from mainstay.control.store.engine.open import open_store
from mainstay.control.store.jobs import JOBS, JobRow

START = datetime(2026, 1, 1, tzinfo=UTC)
HOUR = timedelta(hours=1)
ADMIN = Caller(Role.ADMIN, "00000000-0000-4000-8000-00000000000a")
LIFECYCLE: dict[str, object] = {
    "states": [{"name": name} for name in ("New", "Stopped", "Late")],
    "actions": [
        {
            "name": "create",
            "timeoutSeconds": 1000,
            "transitions": [{"from": "New", "to": "Stopped"}, {"from": "New", "to": "Late", "onError": True}],
        }
    ],
    "initialState": "New",
}


class Host:
    """A machine whose clock the test steps. Time since boot goes on as it passes."""

    def __init__(self) -> None:
        self.wall = START
        self.boot = 1000.0

    def pass_time(self, seconds: float) -> None:
        self.wall += timedelta(seconds=seconds)
        self.boot += seconds

    async def read_time(self, _tx: Transaction) -> datetime:
        return self.wall


class Replica:
    def __init__(self, store: Store, host: Host) -> None:
        self.store = store
        self.clock = ServerClock(store.clock_watch, host.read_time, lambda: host.boot)
        self.tools = OperationTools(Definitions(installed_rulebook()), clock=self.clock)

    async def start(self) -> None:
        async with self.store.transaction() as tx:
            await self.clock.adopt(tx)
        self.store.clock_watch.follow = self.clock.adopt

    @asynccontextmanager
    async def work(self, caller: Caller | None = ADMIN) -> AsyncIterator[UnitOfWork]:
        async with self.store.transaction() as tx:
            yield UnitOfWork(tx, self.clock(), self.tools, caller)

    async def follow(self) -> None:
        async with self.work(None) as work:
            await self.clock.follow(work.tx)

    async def sweep(self) -> None:
        """What the background tasks do within a few seconds."""
        await self.follow()
        for _ in range(4):
            async with self.work(None) as work:
                await jobs.time_out_overdue(work)
        async with self.work(None) as work:
            await agents.disconnect_silent(work)


class Plane(Replica):
    """A job under a lease of 30 s, a job claimed without a lease (timeout 1000 s), and their connected agent."""

    async def prepare(self) -> None:
        await self.start()
        async with self.work() as work:
            person = await participants.create(work, participants.NewParticipant(name="p"))
            kind = await service_types.create(
                work, service_types.NewServiceType(name="t", lifecycle_schema=LIFECYCLE)
            )
            agent_type = await agent_types.create(
                work, agent_types.NewAgentType(name="a", service_type_ids=[kind.id])
            )
            self.agent = await agents.create(
                work, agents.NewAgent(name="a", provider_id=person.id, agent_type_id=agent_type.id)
            )
            self.order_in = (kind.id, self.agent.id, person.id)
        self.holder = Caller(Role.AGENT, ADMIN.token_id, person.id, self.agent.id)
        async with self.work(self.holder) as work:
            await agents.record_heartbeat(work, self.agent.id)
        self.leased = await self.claimed(jobs.Claim(lease_seconds=30))
        self.plain = await self.claimed(jobs.Claim())

    async def claimed(self, claim: jobs.Claim) -> str:
        kind_id, agent_id, person_id = self.order_in
        async with self.work() as work:
            group = await service_groups.create(work, service_groups.NewServiceGroup(name="g", consumer_id=person_id))
            wanted = services.NewService(service_type_id=kind_id, name="s", group_id=group.id, agent_id=agent_id)
            service, _ = await services.create(work, wanted)
        async with self.work(self.holder) as work:
            (job,) = await JOBS.all_by(work.tx, "service_id", service.id)
            await jobs.claim(work, job, claim)
        return job.id

    async def job(self, job_id: str) -> JobRow:
        async with self.work() as work:
            found = await JOBS.find(work.tx, job_id)
        assert found is not None
        return found

    async def statuses(self) -> tuple[str, str, str]:
        async with self.work() as work:
            agent: AgentRow | None = await AGENTS.find(work.tx, self.agent.id)
        assert agent is not None
        return (await self.job(self.leased)).status, (await self.job(self.plain)).status, agent.status


RUNNING = ("Processing", "Processing", "Connected")
Play = Callable[[Callable[[Plane, Host], Awaitable[None]]], None]


def database_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "postgresql":
        return str(request.getfixturevalue("postgresql").new_database())
    return f"sqlite:///{tmp_path}/store.db"


@pytest.fixture(params=["sqlite", "postgresql"])
def play(request: pytest.FixtureRequest, tmp_path: Path) -> Play:
    url = database_url(request, tmp_path)

    def run(test: Callable[[Plane, Host], Awaitable[None]]) -> None:
        async def main() -> None:
            store = await open_store(url)
            try:
                await store.migrate()
                host = Host()
                plane = Plane(store, host)
                await plane.prepare()
                await test(plane, host)
            finally:
                await store.close()

        asyncio.run(main())

    return run


@pytest.mark.parametrize("step", [HOUR, -HOUR, timedelta(days=4000), timedelta(seconds=6)])
def test_after_a_step_as_much_time_is_left_as_before(play: Play, step: timedelta) -> None:
    async def test(plane: Plane, host: Host) -> None:
        host.pass_time(20)
        before = await plane.job(plane.leased)
        host.wall += step
        await plane.sweep()
        assert await plane.statuses() == RUNNING
        assert before.lease_expires_at is not None
        assert (await plane.job(plane.leased)).lease_expires_at == before.lease_expires_at + step
        host.pass_time(9)
        await plane.sweep()
        assert await plane.statuses() == RUNNING
        # A dead lease ends on time, whatever the clock shows.
        host.pass_time(2)
        await plane.sweep()
        assert await plane.statuses() == ("Pending", "Processing", "Connected")
        host.pass_time(120)
        await plane.sweep()
        assert await plane.statuses() == ("Pending", "Processing", "Disconnected")
        host.pass_time(850)
        await plane.sweep()
        assert (await plane.job(plane.plain)).error_message == "job timed out"

    play(test)


@pytest.mark.parametrize("step", [HOUR, -HOUR])
def test_a_claim_and_a_renewal_between_the_step_and_the_sweep_keep_their_length(play: Play, step: timedelta) -> None:
    async def test(plane: Plane, host: Host) -> None:
        host.wall += step
        late = await plane.claimed(jobs.Claim(lease_seconds=30))
        await plane.sweep()
        host.pass_time(29)
        await plane.sweep()
        assert (await plane.job(late)).status == "Processing"
        host.pass_time(2)
        await plane.sweep()
        assert (await plane.job(late)).status == "Pending"

    play(test)


def test_new_times_follow_the_clock_after_the_sweep(play: Play) -> None:
    """Otherwise tokens would never expire after a wrong clock was corrected."""

    async def test(plane: Plane, host: Host) -> None:
        host.wall += HOUR
        await plane.follow()
        async with plane.work() as work:
            assert work.now == host.wall
        host.wall += timedelta(seconds=4)
        await plane.follow()
        async with plane.work() as work:
            assert work.now == host.wall
            assert await last_step(work.tx) == 1

    play(test)


def test_a_sleep_of_the_host_is_no_step(play: Play) -> None:
    """The time since boot counts it: the agents could not renew, and their leases have expired."""

    async def test(plane: Plane, host: Host) -> None:
        host.pass_time(600)
        await plane.sweep()
        assert await plane.statuses() == ("Pending", "Processing", "Disconnected")
        async with plane.work() as work:
            assert await last_step(work.tx) == 0

    play(test)


def test_the_running_tasks_of_a_server_keep_jobs_alive_through_steps(play: Play) -> None:
    async def test(plane: Plane, host: Host) -> None:
        passes = {each.name: list[object]() for each in TASKS}
        tasks = [
            asyncio.create_task(
                run_task(each, plane.store, plane.tools, plane.clock, lambda name, at: passes[name].append(at))
            )
            for each in TASKS
        ]
        try:
            for number, step in enumerate((HOUR, -2 * HOUR), 1):
                host.wall += step
                async with asyncio.timeout(20):
                    while True:
                        async with plane.work() as work:
                            if await last_step(work.tx) == number:
                                break
                        await asyncio.sleep(0.05)
                await asyncio.sleep(0.7)
                assert await plane.statuses() == RUNNING
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    play(test)


def test_replicas_move_the_deadlines_once_and_write_no_time_from_before_the_step(
    postgresql: Any,
) -> None:
    async def main() -> None:
        url = postgresql.new_database()
        first_store, second_store = await open_store(url), await open_store(url)
        try:
            await first_store.migrate()
            host = Host()
            first, second = Plane(first_store, host), Replica(second_store, host)
            await first.prepare()
            await second.start()
            before = await first.job(first.leased)
            host.wall += HOUR
            await asyncio.gather(*(replica.follow() for replica in (first, second, first, second)))
            assert before.lease_expires_at is not None
            assert (await first.job(first.leased)).lease_expires_at == before.lease_expires_at + HOUR
            for replica in (first, second):
                # The first transaction after the move has the new time, before the replica looks at the clock itself.
                async with replica.work() as work:
                    assert work.now == host.wall
                    assert await last_step(work.tx) == 1
            await asyncio.gather(first.sweep(), second.sweep())
            assert await first.statuses() == RUNNING
        finally:
            await first_store.close()
            await second_store.close()

    asyncio.run(main())


class LateLock:
    """A transaction that waits for its lock while another replica moves the deadlines and a request adopts the step."""

    def __init__(self, tx: Transaction, other: Replica, own: Plane) -> None:
        self._tx, self._other, self._own = tx, other, own

    def __getattr__(self, name: str) -> Any:
        return getattr(self._tx, name)

    async def lock(self, name: str) -> None:
        await self._other.follow()
        await self._own.job(self._own.plain)
        await self._tx.lock(name)


def test_a_step_that_a_request_adopts_meanwhile_moves_the_deadlines_once(postgresql: Any) -> None:
    async def main() -> None:
        url = postgresql.new_database()
        first_store, second_store = await open_store(url), await open_store(url)
        try:
            await first_store.migrate()
            host = Host()
            first, second = Plane(first_store, host), Replica(second_store, host)
            await first.prepare()
            await second.start()
            before = await first.job(first.leased)
            host.wall += HOUR
            async with first.work(None) as work:
                await first.clock.follow(LateLock(work.tx, second, first))
            assert before.lease_expires_at is not None
            assert (await first.job(first.leased)).lease_expires_at == before.lease_expires_at + HOUR
        finally:
            await first_store.close()
            await second_store.close()

    asyncio.run(main())


def test_the_clock_of_a_server_shows_the_time(play: Play) -> None:
    async def test(plane: Plane, _host: Host) -> None:
        clock = await start_clock(plane.store)
        assert abs(clock() - datetime.now(UTC)) < timedelta(seconds=2)
        tools = replace(plane.tools, clock=clock)
        async with plane.store.transaction() as tx:
            await clock.follow(tx)
            assert tools.clock is clock
            assert await last_step(tx) == 0

    play(test)


def test_a_slow_reading_of_the_clock_is_no_step() -> None:
    def reading(actual: float) -> ClockReading:
        return ClockReading(START + timedelta(seconds=actual), START, START + timedelta(seconds=20))

    assert [step_of(reading(seconds)) for seconds in (-5, 0, 20, 25)] == [None] * 4
    assert step_of(reading(26)) == timedelta(seconds=6)
    assert step_of(reading(-6)) == timedelta(seconds=-6)
