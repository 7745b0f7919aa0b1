"""Orders: a service, a change, an action or a removal that a caller requests, in one of four forms.

`execute` carries an order out, `dry_run` forecasts it, `plan` forecasts it together with the agent, `execute_plan`
carries it out if the plan still holds. An order is data: endpoints parse requests into orders and results into answers."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Protocol, TypeVar

import msgspec

from mainstay.control.operations import moves, plans, services
from mainstay.control.operations.jobs import force_delete
from mainstay.control.operations.machinery.bodies import refuse_other_values
from mainstay.control.operations.machinery.caller_session import CallerSession
from mainstay.control.operations.machinery.consumer_view import consumer_forecast, first_line, sees_host
from mainstay.control.operations.machinery.forecast import Forecast, OrderOutcome, forecast_outcome
from mainstay.control.operations.machinery.job_chains import OrderedChanges
from mainstay.control.operations.machinery.refusals import AgentSilent, Conflict, OperationRefused, PlanFailed
from mainstay.control.operations.machinery.secret_sealing import digest_of
from mainstay.control.operations.machinery.unit_of_work import UnitOfWork
from mainstay.control.operations.machinery.views import (
    ServiceView,
    read_service_view,
    show_in_context,
    show_service,
)
from mainstay.control.operations.moves import MoveRequest
from mainstay.control.operations.plans import HostAnswer, PlanDigest, PlanPreview, PlanSeed
from mainstay.control.operations.services import ActionRequest, NewService, RequestedAction, ServiceChange
from mainstay.control.store import idempotency
from mainstay.control.store.agents import AGENTS, AgentRow
from mainstay.control.store.plans import PLAN_REQUESTS
from mainstay.control.store.services import SERVICES, ServiceRow

T = TypeVar("T")
# Statuses of agents that have sent no request for a while, or ever.
SILENT_STATUSES = ("New", "Disconnected")
OFFLINE_AGENT_SECONDS = 1
# For the plan of an agent that has never asked for plans.
UNKNOWN_AGENT_SECONDS = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class CreateOrder:
    wanted: NewService
    # Repeating an order with the same key returns the first answer; a dry run or a plan ignores the key.
    idempotency_key: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangeOrder:
    service_id: str
    wanted: ServiceChange
    # Members that a change cannot write, as the caller has read them; they must be unchanged.
    echoed: Mapping[str, object] = field(default_factory=dict)
    # The version that the caller has read; None: any version.
    if_version: int | None = None
    # Why the body is invalid; raised once the service is found, so that a stranger receives "not found".
    body_fault: OperationRefused | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ActionOrder:
    service_id: str
    action: str
    wanted: ActionRequest
    # The version that the caller has read; None: any version.
    if_version: int | None = None
    # Why the body is invalid; raised once the service is found, so that a stranger receives "not found".
    body_fault: OperationRefused | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class DeleteOrder:
    service_id: str
    if_version: int | None = None
    # Without the agent: the service ends at once.
    force: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class MoveOrder:
    service_id: str
    # None: the body is invalid, and `body_fault` says why.
    wanted: MoveRequest | None
    # The version that the caller has read; None: any version.
    if_version: int | None = None
    # Why the body is invalid; raised once the service is found, so that a stranger receives "not found".
    body_fault: OperationRefused | None = None


Order = CreateOrder | ChangeOrder | ActionOrder | DeleteOrder | MoveOrder
# The service after the order; None after a removal. Bytes: the first answer to a repeated idempotency key, as JSON.
OrderResult = ServiceView | bytes | None


class WaitFor(Protocol):
    """Calls `check` now and whenever `topic` is announced, until it returns a value. None: the time is up."""

    async def __call__(self, topic: str, check: Callable[[], Awaitable[T | None]], seconds: float, /) -> T | None: ...


# ---- the four forms ----
async def execute(session: CallerSession, order: Order) -> OrderResult:
    async with session.transaction() as work:
        return await _execute(work, order, None)


async def dry_run(session: CallerSession, order: Order) -> Forecast:
    async with session.rolled_back() as work:
        return await forecast_outcome(work, await _carry_out(work, order))


async def plan(session: CallerSession, order: Order, wait_for: WaitFor, seconds: float) -> Forecast:
    seed = plans.new_plan_seed(session.clock())
    async with session.rolled_back() as work:
        preview = await _preview(work, order, seed)
    host = await _ask_agent(session, preview, wait_for, seconds, plan=seed.nonce)
    sees_all = sees_host(session.caller, preview.provider_id)
    return msgspec.structs.replace(
        preview.forecast,
        plan_digest=str(PlanDigest(seed, preview.inputs, host.digest)),
        expires_at=seed.expires_at,
        host=host.forecast if sees_all else consumer_forecast(host.forecast),
    )


async def execute_plan(
    session: CallerSession, order: Order, digest: PlanDigest, wait_for: WaitFor, seconds: float
) -> OrderResult:
    """Raises `PlanOutdated` if the outcome would differ from the plan. The agent compares once more before it acts."""
    async with session.rolled_back() as work:
        first_answer = await _first_answer(work, order)
        if first_answer is not None:
            return first_answer
        preview = await _preview(work, order, digest.seed)
    plans.refuse_expired(digest, session.clock())
    plans.refuse_other_inputs(digest, preview.inputs)
    # The inputs are those of the plan, so the events of the plan name every secret that the agent reads again.
    plans.refuse_other_host(digest, await _ask_agent(session, preview, wait_for, seconds, plan=None))
    async with session.transaction() as work:
        return await _execute(work, order, digest)


# ---- within one transaction ----
async def _execute(work: UnitOfWork, order: Order, digest: PlanDigest | None) -> OrderResult:
    first_answer = await _first_answer(work, order)
    if first_answer is not None:
        return first_answer
    if digest is None:
        return await _show(work, order, await _carry_out(work, order))
    plans.pin_to_plan(work, digest.seed, digest.host)
    outcome = await _carry_out(work, order)
    # The preview was compared in another transaction; pools and services may have changed since.
    await plans.check_inputs(work, outcome, _requested(order), digest)
    return await _show(work, order, outcome)


async def _preview(work: UnitOfWork, order: Order, seed: PlanSeed) -> PlanPreview:
    plans.pin_to_plan(work, seed)
    return await plans.preview_order(work, await _carry_out(work, order), _requested(order), seed)


async def _carry_out(work: UnitOfWork, order: Order) -> OrderOutcome:
    if isinstance(order, CreateOrder):
        service, context = await services.create(work, order.wanted)
        return OrderOutcome(service, "create", OrderedChanges(None), context)
    right = "move" if isinstance(order, MoveOrder) else "order"
    service = await work.find(SERVICES, order.service_id, right, lock=True)
    if isinstance(order, DeleteOrder):
        return OrderOutcome(service, "delete", await _delete(work, service, order))
    if order.body_fault is not None:
        raise order.body_fault
    if isinstance(order, MoveOrder):
        changes = await moves.move(work, service, _required(order.wanted), order.if_version)
        return OrderOutcome(service, "create", changes, is_move=True)
    if isinstance(order, ChangeOrder):
        if order.echoed:
            refuse_other_values(order.echoed, await show_service(work, service))
        return OrderOutcome(service, "update", await services.change(work, service, order.wanted, order.if_version))
    action = RequestedAction(order.action, order.wanted.properties, order.if_version, order.wanted.blueprint_version)
    return OrderOutcome(service, order.action, await services.act(work, service, action))


async def _delete(work: UnitOfWork, service: ServiceRow, order: DeleteOrder) -> OrderedChanges | None:
    if not order.force:
        return await services.act(work, service, RequestedAction("delete", None, order.if_version))
    services.refuse_stale(service, order.if_version)
    await force_delete(work, service)
    return None


async def _show(work: UnitOfWork, order: Order, outcome: OrderOutcome) -> ServiceView | None:
    if isinstance(order, DeleteOrder):
        return None
    if not isinstance(order, CreateOrder) or outcome.new_context is None:
        return await read_service_view(work, outcome.service.id)
    view = await show_in_context(work, outcome.service, outcome.new_context)
    if order.idempotency_key is not None:
        answer = msgspec.json.encode(view).decode()
        await idempotency.keep_answer(work.tx, work.required_caller.token_id, order.idempotency_key, answer)
    return view


async def _first_answer(work: UnitOfWork, order: Order) -> bytes | None:
    """None: the order has no idempotency key, or a new one, which this transaction reserves."""
    if not isinstance(order, CreateOrder) or order.idempotency_key is None:
        return None
    digest = digest_of(work, order.wanted)
    token_id = work.required_caller.token_id
    known = await idempotency.reserve(work.tx, token_id, order.idempotency_key, digest, work.now)
    if known is None:
        return None
    first_digest, answer = known
    if first_digest != digest:
        raise Conflict("this Idempotency-Key was used for another order", code="idempotency_mismatch")
    return answer.encode()


def _requested(order: Order) -> list[object]:
    """The part of an order that the digest of its plan covers."""
    if isinstance(order, DeleteOrder):
        return ["delete", order.service_id, order.force]
    if isinstance(order, MoveOrder):
        return ["move", order.service_id, msgspec.structs.replace(_required(order.wanted), plan_digest=None)]
    wanted = msgspec.structs.replace(order.wanted, plan_digest=None)
    if isinstance(order, CreateOrder):
        return ["create", wanted]
    if isinstance(order, ChangeOrder):
        return ["change", order.service_id, wanted]
    return ["action", order.service_id, order.action, wanted]


def _required(wanted: MoveRequest | None) -> MoveRequest:
    if wanted is None:
        raise RuntimeError("an order without a body has a fault")
    return wanted


# ---- between transactions ----
async def _ask_agent(
    session: CallerSession, preview: PlanPreview, wait_for: WaitFor, seconds: float, *, plan: str | None
) -> HostAnswer:
    if preview.question is None:
        return plans.NOTHING_TO_DO
    agent = await _find_agent(session, preview)
    brief = _brief_wait(agent)
    async with session.transaction() as work:
        request_id = await plans.ask_agent(work, preview, seconds, plan)

    async def check() -> HostAnswer | None:
        async with session.reading() as work:
            return await plans.read_answer(work, request_id)

    try:
        answer = await wait_for(plans.answer_topic(request_id), check, min(seconds, brief or seconds))
        if answer is None and brief is not None and brief < seconds:
            agent = await _find_agent(session, preview)
            if _brief_wait(agent) is None:
                # The agent has connected meanwhile.
                answer = await wait_for(plans.answer_topic(request_id), check, seconds - brief)
    except PlanFailed as refusal:
        if sees_host(session.caller, preview.provider_id):
            raise
        raise PlanFailed(first_line(str(refusal))) from None
    finally:
        async with session.transaction() as work:
            await PLAN_REQUESTS.delete(work.tx, request_id)
    if answer is None:
        raise AgentSilent(_silence(agent, seconds))
    plans.refuse_answer_about_secrets(preview.question, answer)
    return answer


async def _find_agent(session: CallerSession, preview: PlanPreview) -> AgentRow | None:
    async with session.reading() as work:
        return await AGENTS.find(work.tx, preview.agent_id)


def _brief_wait(agent: AgentRow | None) -> int | None:
    """Seconds to wait for an agent that probably does not answer, but may be starting right now. None: it answers."""
    if agent is None or agent.status in SILENT_STATUSES:
        return OFFLINE_AGENT_SECONDS
    return None if agent.supports_blueprints else UNKNOWN_AGENT_SECONDS


def _silence(agent: AgentRow | None, seconds: float) -> str:
    instead = "make a dry run, which needs no agent"
    if agent is None or agent.status in SILENT_STATUSES:
        name = "of this service" if agent is None else agent.name
        return f"agent {name} is not connected, and only the agent can plan; start it, or {instead}"
    if not agent.supports_blueprints:
        return f"agent {agent.name} did not answer and has never asked for plans: it may not support them; {instead}"
    return f"agent {agent.name} did not answer within {seconds} s; `mainstay agents` shows whether it is connected"
