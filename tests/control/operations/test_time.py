"""Effects of time: leases expire, agents become silent, codes expire. A test clock on real databases."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from mainstay.control.access import Caller, Role
from mainstay.control.domain.refusals import LeaseLost
from mainstay.control.operations import (
    agent_types,
    agents,
    enrolment_codes,
    jobs,
    participants,
    plans,
    service_groups,
    service_types,
    services,
)
from mainstay.control.operations.machinery import job_chains
from mainstay.control.operations.machinery.definitions import Definitions
from mainstay.control.operations.machinery.forecast import OrderOutcome
from mainstay.control.operations.machinery.job_chains import agent_topic
from mainstay.control.operations.machinery.refusals import NotPermitted
from mainstay.control.operations.machinery.unit_of_work import OperationTools, UnitOfWork
from mainstay.control.rulebook import installed_rulebook
from mainstay.control.store import plans as plan_store
from mainstay.control.store.agents import AGENTS, AgentRow
from mainstay.control.store.engine.contract import Store
from mainstay.control.store.engine.open import open_store
from mainstay.control.store.jobs import JOBS, JobRow, active_job
from mainstay.control.store.services import SERVICES, ServiceRow

START = datetime(2026, 1, 1, tzinfo=UTC)
ADMIN = Caller(Role.ADMIN, "00000000-0000-4000-8000-00000000000a")
LIFECYCLE: dict[str, object] = {
    "states": [{"name": name} for name in ("New", "Stopped", "Expired", "Late")],
    "actions": [
        {
            "name": "create",
            "requestSchemaType": "properties",
            "maxAttempts": 3,
            "timeoutSeconds": 1000,
            "transitions": [
                {"from": "New", "to": "Stopped"},
                {"from": "New", "to": "Expired", "onError": True, "onErrorRegexp": "^lease expired$"},
                {"from": "New", "to": "Late", "onError": True, "onErrorRegexp": "^job timed out$"},
            ],
        }
    ],
    "initialState": "New",
}


class Scene:
    """A service with a pending first job, and a clock that the test moves."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self.now = START
        self.tools = OperationTools(Definitions(installed_rulebook()))

    @asynccontextmanager
    async def work(self, caller: Caller | None = ADMIN) -> Any:
        async with self.store.transaction() as tx:
            yield UnitOfWork(tx, self.now, self.tools, caller)

    async def prepare(self) -> None:
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
            group = await service_groups.create(work, service_groups.NewServiceGroup(name="g", consumer_id=person.id))
            self.service, self.context = await services.create(
                work,
                services.NewService(service_type_id=kind.id, name="s", group_id=group.id, agent_id=self.agent.id),
            )
        self.holder = Caller(Role.AGENT, ADMIN.token_id, person.id, self.agent.id)

    async def job(self) -> JobRow:
        async with self.work() as work:
            found = await JOBS.all_by(work.tx, "service_id", self.service.id)
        return found[-1]

    async def state(self) -> ServiceRow:
        async with self.work() as work:
            found = await SERVICES.find(work.tx, self.service.id)
        assert found is not None
        return found

    async def claim(self, seconds: int | None = 30) -> str:
        job = await self.job()
        async with self.work(self.holder) as work:
            leased = await jobs.claim(work, job, jobs.Claim(lease_seconds=seconds))
        return "" if leased is None else leased.lease_token

    async def sweep(self) -> None:
        async with self.work(None) as work:
            await jobs.time_out_overdue(work)

    def later(self, seconds: float) -> None:
        self.now += timedelta(seconds=seconds)


Play = Callable[[Callable[[Scene], Awaitable[None]]], None]


@pytest.fixture(params=["sqlite", "postgresql"])
def play(request: pytest.FixtureRequest, tmp_path: Path) -> Play:
    url = f"sqlite:///{tmp_path}/store.db"
    if request.param == "postgresql":
        url = request.getfixturevalue("postgresql").new_database()

    def run(test: Callable[[Scene], Awaitable[None]]) -> None:
        async def main() -> None:
            store = await open_store(url)
            try:
                await store.migrate()
                scene = Scene(store)
                await scene.prepare()
                await test(scene)
            finally:
                await store.close()

        asyncio.run(main())

    return run


def test_an_expired_lease_requeues_the_job_until_its_attempts_are_used_up(play: Play) -> None:
    async def test(scene: Scene) -> None:
        for attempt in (1, 2, 3):
            token = await scene.claim()
            assert (await scene.job()).attempt == attempt
            scene.later(29)
            await scene.sweep()
            assert (await scene.job()).status == "Processing"
            scene.later(2)
            await scene.sweep()
            if attempt < 3:
                job = await scene.job()
                assert (job.status, job.attempt, job.lease_expires_at) == ("Pending", attempt + 1, None)
                async with scene.work() as work:
                    with pytest.raises(LeaseLost):
                        await jobs.complete(
                            UnitOfWork(work.tx, scene.now, scene.tools, scene.holder),
                            job,
                            jobs.Completion(lease_token=token),
                        )
        job = await scene.job()
        assert (job.status, job.error_message) == ("Failed", "lease expired")
        assert (await scene.state()).status == "Expired"

    play(test)


def test_a_renewed_lease_ends_at_the_timeout_of_the_action(play: Play) -> None:
    async def test(scene: Scene) -> None:
        token = await scene.claim()
        for _ in range(49):
            scene.later(20)
            await scene.sweep()
            async with scene.work(scene.holder) as work:
                renewed = await jobs.renew(work, await read_active_job(work, scene), jobs.Renewal(lease_token=token))
            assert renewed.lease_expires_at == scene.now + timedelta(seconds=30)
        scene.later(21)
        await scene.sweep()
        job = await scene.job()
        assert (job.status, job.error_message, job.attempt) == ("Failed", "job timed out", 1)
        assert (await scene.state()).status == "Late"

    play(test)


async def read_active_job(work: UnitOfWork, scene: Scene) -> JobRow:
    found = await active_job(work.tx, scene.service.id)
    assert found is not None
    return found


def test_a_job_without_a_lease_and_with_a_cancel_request_is_cancelled_at_its_timeout(play: Play) -> None:
    async def test(scene: Scene) -> None:
        await scene.claim(None)
        async with scene.work() as work:
            await jobs.cancel(work, await read_active_job(work, scene))
        scene.later(999)
        await scene.sweep()
        assert (await scene.job()).status == "Processing"
        scene.later(2)
        await scene.sweep()
        assert (await scene.job()).status == "Cancelled"
        assert (await scene.state()).status == "New"

    play(test)


async def read_agent(scene: Scene) -> AgentRow:
    async with scene.work() as work:
        found = await AGENTS.find(work.tx, scene.agent.id)
    assert found is not None
    return found


def test_a_silent_agent_is_disconnected_and_connected_by_its_next_request(play: Play) -> None:
    async def test(scene: Scene) -> None:
        async with scene.work(scene.holder) as work:
            await agents.record_heartbeat(work, scene.agent.id)
        assert (await read_agent(scene)).status == "Connected"
        scene.later(149)
        async with scene.work(None) as work:
            assert await agents.disconnect_silent(work) == 0
        scene.later(2)
        async with scene.work(None) as work:
            assert await agents.disconnect_silent(work) == 1
        assert (await read_agent(scene)).status == "Disconnected"
        async with scene.work(scene.holder) as work:
            await agents.record_heartbeat(work, scene.agent.id)
        assert (await read_agent(scene)).status == "Connected"

    play(test)


def test_an_enrolment_code_expires_after_15_minutes(play: Play) -> None:
    async def test(scene: Scene) -> None:
        async with scene.work() as work:
            code = await enrolment_codes.create_for_agent(work, scene.agent)
        scene.later(15 * 60 + 1)
        with pytest.raises(NotPermitted):
            async with scene.work(None) as work:
                await enrolment_codes.enrol(work, enrolment_codes.EnrolmentRequest(code=code.code))

    play(test)


def test_a_code_for_many_hosts_expires_after_its_lifetime(play: Play) -> None:
    async def test(scene: Scene) -> None:
        async with scene.work() as work:
            wanted = enrolment_codes.NewEnrolmentCode(
                agent_type_id=scene.agent.agent_type_id,
                provider_id=scene.agent.provider_id,
                count=9,
                lifetime_seconds=3600,
                # The caller of these tests has no token that could live or end.
                outlives_token=True,
            )
            code = await enrolment_codes.create(work, wanted)
        scene.later(3599)
        async with scene.work(None) as work:
            await enrolment_codes.enrol(work, enrolment_codes.EnrolmentRequest(code=code.code, name="one"))
        scene.later(1)
        with pytest.raises(NotPermitted):
            async with scene.work(None) as work:
                await enrolment_codes.enrol(work, enrolment_codes.EnrolmentRequest(code=code.code, name="two"))

    play(test)


def test_a_job_that_stays_pending_is_announced_again(play: Play) -> None:
    async def test(scene: Scene) -> None:
        with scene.store.bus.listening(agent_topic(scene.agent.id)) as announced:
            async with scene.work(None) as work:
                await jobs.wake_agents(work)
            assert not announced.is_set()
            scene.later(5)
            async with scene.work(None) as work:
                await jobs.wake_agents(work)
            assert announced.is_set()

    play(test)


def test_a_plan_question_of_a_crashed_server_is_announced_again_and_then_deleted(play: Play) -> None:
    async def test(scene: Scene) -> None:
        async with scene.work() as work:
            outcome = OrderOutcome(scene.service, "create", job_chains.OrderedChanges(None), scene.context)
            preview = await plans.preview_order(work, outcome, None, plans.new_plan_seed(work.now))
            await plans.ask_agent(work, preview, 60, None)
        with scene.store.bus.listening(plans.question_topic(scene.agent.id)) as announced:
            scene.later(5)
            async with scene.work(None) as work:
                await plans.wake(work)
            assert announced.is_set()
        for seconds, left in ((60, 1), (10, 0)):
            scene.later(seconds)
            async with scene.work(None) as work:
                await plans.forget_abandoned(work)
                assert len(await plan_store.find_older(work.tx, scene.now, 10)) == left

    play(test)


def test_an_event_of_an_unknown_type_is_refused(play: Play) -> None:
    async def test(scene: Scene) -> None:
        async with scene.work() as work:
            with pytest.raises(ValueError, match=r"unknown event type 'service\.vanished'; add it to"):
                await work.record_event("service.vanished", None, scene.service)

    play(test)
