"""Orders without HTTP: the four forms on both databases, with an agent that answers or stays silent."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TypeVar

import msgspec
import pytest

from mainstay.control.access import Caller, Role
from mainstay.control.operations import (
    agent_types,
    agents,
    orders,
    participants,
    plans,
    service_groups,
    service_types,
    tokens,
)
from mainstay.control.operations.machinery.caller_session import CallerSession
from mainstay.control.operations.machinery.definitions import Definitions
from mainstay.control.operations.machinery.forecast import HostForecast
from mainstay.control.operations.machinery.refusals import (
    AgentSilent,
    BadInput,
    Conflict,
    NotFound,
    PlanFailed,
    PlanOutdated,
    Stale,
)
from mainstay.control.operations.machinery.unit_of_work import OperationTools
from mainstay.control.operations.machinery.views import ServiceView
from mainstay.control.operations.orders import ActionOrder, ChangeOrder, CreateOrder, DeleteOrder, Order
from mainstay.control.operations.services import ActionRequest, NewService, ServiceChange
from mainstay.control.rulebook import installed_rulebook
from mainstay.control.store.engine.contract import Store
from mainstay.control.store.engine.open import open_store
from mainstay.control.store.plans import PLAN_REQUESTS
from mainstay.control.store.tokens import Token

T = TypeVar("T")
TABLES = ("services", "jobs", "events", "plan_requests", "idempotency_keys")
ADMIN = Caller(Role.ADMIN, "00000000-0000-4000-8000-00000000000a")
STRANGER = Caller(Role.PARTICIPANT, "00000000-0000-4000-8000-00000000000b", "00000000-0000-4000-8000-00000000000c")
SCHEMA = {
    "size": {"type": "integer", "default": 1},
    "serial": {"type": "string", "generator": {"type": "uuid"}},
}
ANSWER = plans.PlanAnswer(digest="ab" * 32, manifest="manifests/create.yaml", summary={"changed": 1})


class OrderDesk:
    """A service type with an agent that serves it, and a clock that the test moves."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self.now = datetime(2026, 1, 1, tzinfo=UTC)
        self.tools = OperationTools(Definitions(installed_rulebook()))
        # None: the agent stays silent.
        self.answer: plans.PlanAnswer | None = ANSWER

    def session(self, caller: Caller = ADMIN) -> CallerSession:
        return CallerSession(self.store, lambda: self.now, self.tools, caller)

    async def prepare(self) -> None:
        async with self.session().transaction() as work:
            token = Token(
                id=ADMIN.token_id,
                created_at=self.now,
                updated_at=self.now,
                name="a",
                role="admin",
                read_only=False,
                participant_id=None,
                agent_id=None,
            )
            await tokens.save(work, token)
            person = await participants.create(work, participants.NewParticipant(name="p"))
            kind = await service_types.create(work, service_types.NewServiceType(name="t", property_schema=SCHEMA))
            agent_type = await agent_types.create(
                work, agent_types.NewAgentType(name="a", service_type_ids=[kind.id])
            )
            agent = await agents.create(
                work, agents.NewAgent(name="a", provider_id=person.id, agent_type_id=agent_type.id)
            )
            group = await service_groups.create(work, service_groups.NewServiceGroup(name="g", consumer_id=person.id))
        self.agent = self.session(Caller(Role.AGENT, ADMIN.token_id, person.id, agent.id))
        self.wanted = NewService(service_type_id=kind.id, name="s", group_id=group.id, agent_id=agent.id)

    async def wait_for(self, _topic: str, check: Callable[[], Awaitable[T | None]], _seconds: float) -> T | None:
        if self.answer is not None:
            async with self.agent.transaction() as work:
                (question,) = await plans.take_questions(work, 1)
                request = await work.find(PLAN_REQUESTS, question.id, "work")
                await plans.answer(work, request, self.answer)
        return await check()

    async def count_rows(self) -> dict[str, object]:
        async with self.store.reading() as tx:
            return {name: (await tx.fetch(f"SELECT count(*) AS n FROM {name}"))[0]["n"] for name in TABLES}

    async def execute(self, order: Order) -> ServiceView:
        result = await orders.execute(self.session(), order)
        assert isinstance(result, ServiceView)
        return result

    async def plan(self, order: Order) -> plans.PlanDigest:
        forecast = await orders.plan(self.session(), order, self.wait_for, 5)
        return plans.parse_plan_digest(str(forecast.plan_digest))

    async def execute_plan(self, order: Order, digest: plans.PlanDigest) -> orders.OrderResult:
        return await orders.execute_plan(self.session(), order, digest, self.wait_for, 5)


Play = Callable[[Callable[[OrderDesk], Awaitable[None]]], None]


@pytest.fixture(params=["sqlite", "postgresql"])
def play(request: pytest.FixtureRequest, tmp_path: Path) -> Play:
    url = f"sqlite:///{tmp_path}/store.db"
    if request.param == "postgresql":
        url = request.getfixturevalue("postgresql").new_database()

    def run(test: Callable[[OrderDesk], Awaitable[None]]) -> None:
        async def main() -> None:
            store = await open_store(url)
            try:
                await store.migrate()
                desk = OrderDesk(store)
                await desk.prepare()
                await test(desk)
            finally:
                await store.close()

        asyncio.run(main())

    return run


def test_an_executed_order_returns_the_service_with_its_queued_job(play: Play) -> None:
    async def test(desk: OrderDesk) -> None:
        service = await desk.execute(CreateOrder(wanted=desk.wanted))
        assert (service.name, service.status, service.version) == ("s", "New", 1)
        assert service.active_job is not None
        assert service.active_job.action == "create"
        renamed = await desk.execute(ChangeOrder(service_id=service.id, wanted=ServiceChange(name="new")))
        assert (renamed.name, renamed.version) == ("new", 2)

    play(test)


def test_a_dry_run_forecasts_the_order_and_stores_nothing(play: Play) -> None:
    async def test(desk: OrderDesk) -> None:
        before = await desk.count_rows()
        forecast = await orders.dry_run(desk.session(), CreateOrder(wanted=desk.wanted, idempotency_key="k"))
        assert forecast.properties["size"] == 1
        assert forecast.path[0] == "New"
        assert forecast.host is msgspec.UNSET
        assert await desk.count_rows() == before

    play(test)


def test_a_plan_asks_the_agent_and_stores_nothing(play: Play) -> None:
    async def test(desk: OrderDesk) -> None:
        before = await desk.count_rows()
        forecast = await orders.plan(desk.session(), CreateOrder(wanted=desk.wanted), desk.wait_for, 5)
        assert isinstance(forecast.host, HostForecast)
        assert forecast.host.manifest == ANSWER.manifest
        assert await desk.count_rows() == before

    play(test)


def test_an_executed_plan_has_the_planned_outcome_once(play: Play) -> None:
    async def test(desk: OrderDesk) -> None:
        order = CreateOrder(wanted=desk.wanted)
        forecast = await orders.plan(desk.session(), order, desk.wait_for, 5)
        digest = plans.parse_plan_digest(str(forecast.plan_digest))
        desk.now += timedelta(minutes=5)
        service = await desk.execute_plan(order, digest)
        assert isinstance(service, ServiceView)
        assert service.properties == forecast.properties
        with pytest.raises(PlanOutdated, match="already been executed"):
            await desk.execute_plan(order, digest)

    play(test)


def test_a_plan_is_outdated_by_time_by_another_order_and_by_another_answer_of_the_host(play: Play) -> None:
    async def test(desk: OrderDesk) -> None:
        order = CreateOrder(wanted=desk.wanted)
        digest = await desk.plan(order)
        before = await desk.count_rows()
        other = CreateOrder(wanted=msgspec.structs.replace(desk.wanted, name="other"))
        with pytest.raises(PlanOutdated, match="are not those of the plan"):
            await desk.execute_plan(other, digest)
        desk.answer = plans.PlanAnswer(digest="cd" * 32)
        with pytest.raises(PlanOutdated, match="on the host"):
            await desk.execute_plan(order, digest)
        desk.answer = ANSWER
        desk.now += timedelta(minutes=11)
        with pytest.raises(PlanOutdated, match="expired at"):
            await desk.execute_plan(order, digest)
        assert await desk.count_rows() == before

    play(test)


def test_an_agent_without_an_answer_or_with_an_error_leaves_no_question(play: Play) -> None:
    async def test(desk: OrderDesk) -> None:
        before = await desk.count_rows()
        desk.answer = None
        with pytest.raises(AgentSilent):
            await desk.plan(CreateOrder(wanted=desk.wanted))
        desk.answer = plans.PlanAnswer(error="no manifest")
        with pytest.raises(PlanFailed, match="no manifest"):
            await desk.plan(CreateOrder(wanted=desk.wanted))
        assert await desk.count_rows() == before

    play(test)


def test_a_repeated_idempotency_key_returns_the_first_answer(play: Play) -> None:
    async def test(desk: OrderDesk) -> None:
        order = CreateOrder(wanted=desk.wanted, idempotency_key="k")
        first = await desk.execute(order)
        assert await orders.execute(desk.session(), order) == msgspec.json.encode(first)
        other = CreateOrder(wanted=msgspec.structs.replace(desk.wanted, name="other"), idempotency_key="k")
        with pytest.raises(Conflict, match="another order"):
            await orders.execute(desk.session(), other)

    play(test)


def test_a_repeated_key_of_an_executed_plan_returns_the_first_answer_without_the_agent(play: Play) -> None:
    async def test(desk: OrderDesk) -> None:
        order = CreateOrder(wanted=desk.wanted, idempotency_key="k")
        digest = await desk.plan(order)
        first = await desk.execute_plan(order, digest)
        desk.answer = None
        assert await desk.execute_plan(order, digest) == msgspec.json.encode(first)

    play(test)


def test_a_body_fault_is_raised_only_for_a_caller_that_may_order(play: Play) -> None:
    async def test(desk: OrderDesk) -> None:
        service = await desk.execute(CreateOrder(wanted=desk.wanted))
        faulty: list[Order] = [
            ChangeOrder(service_id=service.id, wanted=ServiceChange(), body_fault=BadInput("bad")),
            ActionOrder(service_id=service.id, action="x", wanted=ActionRequest(), body_fault=BadInput("bad")),
        ]
        for order in faulty:
            with pytest.raises(NotFound):
                await orders.execute(desk.session(STRANGER), order)
            with pytest.raises(BadInput, match="bad"):
                await orders.execute(desk.session(), order)

    play(test)


def test_an_order_for_another_version_is_stale_in_every_form(play: Play) -> None:
    async def test(desk: OrderDesk) -> None:
        service = await desk.execute(CreateOrder(wanted=desk.wanted))
        order = DeleteOrder(service_id=service.id, if_version=9, force=True)
        for form in (orders.execute, orders.dry_run):
            with pytest.raises(Stale):
                await form(desk.session(), order)
        with pytest.raises(Stale):
            await desk.plan(order)

    play(test)


def test_a_forced_removal_ends_the_service_without_the_agent(play: Play) -> None:
    async def test(desk: OrderDesk) -> None:
        service = await desk.execute(CreateOrder(wanted=desk.wanted))
        order = DeleteOrder(service_id=service.id, force=True)
        desk.answer = None
        digest = await desk.plan(order)
        assert digest.host == plans.NO_HOST
        assert await desk.execute_plan(order, digest) is None

    play(test)
