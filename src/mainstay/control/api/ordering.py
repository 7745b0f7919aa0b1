"""One order in its four forms: carried out, rehearsed, planned together with the agent, or carried out as planned."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TypeVar

import msgspec

from mainstay.control.api.contract import Answer, Call
from mainstay.control.api.long_poll import wait_until_found
from mainstay.control.operations import plans
from mainstay.control.operations.machinery.refusals import AgentSilent
from mainstay.control.operations.machinery.unit_of_work import UnitOfWork
from mainstay.control.operations.plans import Carried, HostAnswer, PlanDigest, PlanPreview
from mainstay.control.store.engine.contract import Unavailable
from mainstay.control.store.plans import PLAN_REQUESTS

T = TypeVar("T")
Carry = Callable[[UnitOfWork], Awaitable[Carried]]
Tell = Callable[[UnitOfWork, Carried], Awaitable[Answer]]
LONGEST_PLAN_SECONDS = 60


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """How a request is carried out, and how it is answered then."""

    carry: Carry
    answer: Tell
    # All that was asked for, but for the plan's digest.
    wanted: object
    plan_digest: str | None = None


class AnsweredBefore(Exception):
    """The same order was sent before, and is answered as then."""

    def __init__(self, answer: Answer) -> None:
        super().__init__()
        self.answer = answer


class _Undone(Exception):
    """Ends a rehearsal: the request was carried out in full, and with this everything it did is undone."""


def is_rehearsal(call: Call) -> bool:
    return call.flag("plan") or call.flag("dryRun")


async def fulfil(call: Call, order: Order) -> Answer:
    try:
        if call.flag("plan"):
            return await _plan(call, order)
        if call.flag("dryRun"):
            return Answer(await _undone(call, lambda work: _forecast(work, order)), status=200)
        if order.plan_digest is not None:
            return await _carry_out_as_planned(call, order, plans.parse_plan_digest(order.plan_digest))
        async with call.transaction() as work:
            return await order.answer(work, await order.carry(work))
    except AnsweredBefore as again:
        return again.answer


async def _undone(call: Call, look: Callable[[UnitOfWork], Awaitable[T]]) -> T:
    found: list[T] = []
    try:
        async with call.transaction() as work:
            found.append(await look(work))
            raise _Undone
    except _Undone:
        return found[0]


async def _forecast(work: UnitOfWork, order: Order) -> object:
    return await (await order.carry(work)).forecast(work)


async def _rehearse(call: Call, order: Order, draft: plans.PlanSeed) -> PlanPreview:
    async def look(work: UnitOfWork) -> PlanPreview:
        plans.pin_to_plan(work, draft)
        return await plans.preview(work, await order.carry(work), order.wanted, draft)

    return await _undone(call, look)


async def _plan(call: Call, order: Order) -> Answer:
    seconds = call.number("planWait", LONGEST_PLAN_SECONDS, 1, LONGEST_PLAN_SECONDS)
    draft = plans.new_plan_seed(call.dependencies.clock())
    rehearsal = await _rehearse(call, order, draft)
    host = await _ask_agent(call, rehearsal, seconds)
    told = msgspec.structs.replace(
        rehearsal.forecast,
        plan_digest=str(PlanDigest(draft, rehearsal.inputs, host.digest)),
        expires_at=draft.expires_at,
        host=host.forecast,
    )
    return Answer(told, status=200)


async def _carry_out_as_planned(call: Call, order: Order, promise: PlanDigest) -> Answer:
    """Refused as soon as anything is not as planned. The agent looks again before it acts, which is the last word."""
    seconds = call.number("planWait", LONGEST_PLAN_SECONDS, 1, LONGEST_PLAN_SECONDS)
    rehearsal = await _rehearse(call, order, promise.draft)
    plans.refuse_expired(promise, call.dependencies.clock())
    plans.refuse_other_inputs(promise, rehearsal.inputs)
    plans.refuse_other_host(promise, await _ask_agent(call, rehearsal, seconds))
    async with call.transaction() as work:
        plans.pin_to_plan(work, promise.draft, promise.host)
        carried = await order.carry(work)
        await plans.check_inputs(work, carried, order.wanted, promise)
        return await order.answer(work, carried)


async def _ask_agent(call: Call, rehearsal: PlanPreview, seconds: float) -> HostAnswer:
    if rehearsal.question is None:
        return plans.NOTHING_TO_DO
    async with call.transaction() as work:
        request_id = await plans.ask(work, rehearsal, seconds)
    try:
        return await _wait(call, request_id, seconds)
    finally:
        async with call.transaction() as work:
            await PLAN_REQUESTS.delete(work.tx, request_id)


async def _wait(call: Call, request_id: str, seconds: float) -> HostAnswer:
    async def look() -> HostAnswer | None:
        async with call.reading() as work:
            return await plans.read_answer(work, request_id)

    found = await wait_until_found(call, plans.answer_topic(request_id), look, seconds)
    if found is not None:
        return found
    if call.dependencies.readiness.stopping.is_set():
        raise Unavailable("the server stops")
    raise AgentSilent(f"the agent did not answer within {seconds} s; is it running, and does it make plans?")
