"""Services: ordered, read, changed, acted upon and removed."""

from __future__ import annotations

from datetime import datetime
from typing import TypeVar

import msgspec

from mainstay.control.api.bodies import decode_json
from mainstay.control.api.contract import Answer, Call, Endpoint, QueryParameter
from mainstay.control.api.ordering import (
    LONGEST_PLAN_SECONDS,
    AnsweredBefore,
    Carry,
    Order,
    Tell,
    fulfil,
    is_rehearsal,
)
from mainstay.control.operations import services
from mainstay.control.operations.jobs import force_delete
from mainstay.control.operations.machinery import secret_sealing
from mainstay.control.operations.machinery.forecast import Forecast
from mainstay.control.operations.machinery.refusals import BadInput, Conflict, OperationRefused
from mainstay.control.operations.machinery.runs import RunPlan
from mainstay.control.operations.machinery.unit_of_work import UnitOfWork
from mainstay.control.operations.machinery.views import ServiceView, show_service, show_services
from mainstay.control.operations.plans import Carried
from mainstay.control.operations.services import (
    ActionOrder,
    ActionRequest,
    NewService,
    ServiceChange,
    ServiceCondition,
    UptimeView,
)
from mainstay.control.store.engine.paging import Page, parse_listing, parse_time
from mainstay.control.store.idempotency import keep_answer, reserve
from mainstay.control.store.services import LIVING_ONLY, SERVICES, ServiceRow
from mainstay.foundation.numbers import LARGEST_NUMBER, parse_count

PATH = "/api/v1/services"
ALIASES = {"currentStatus": "status"}
LIVING = QueryParameter("living", "Only services that have not come to their end", {"type": "boolean"})
MAX_CONDITIONS = 100
MAX_KEY = 255
B = TypeVar("B", ServiceChange, ActionRequest)


def _etag(service: ServiceRow) -> dict[str, str]:
    return {"ETag": f'"{service.version}"'}


def _if_version(call: Call) -> int | None:
    """The version in If-Match; one that is no version of ours never matches."""
    text = call.headers.get("if-match", "").strip()
    if text in ("", "*"):
        return None
    version = parse_count(text.removeprefix("W/").strip('"'), 0, LARGEST_NUMBER)
    return -1 if version is None else version


async def shown(work: UnitOfWork, service_id: str) -> Answer:
    row = await SERVICES.find(work.tx, service_id)
    if row is None:
        raise RuntimeError("a service does not go within the request that changes it")
    return await _shown_row(work, row)


async def _shown_row(work: UnitOfWork, row: ServiceRow) -> Answer:
    return Answer(await show_service(work, row), headers=_etag(row))


async def _list_services(call: Call) -> Answer:
    query = [(name, value) for name, value in call.query if name != LIVING.name]
    listing = parse_listing(SERVICES, query, aliases=ALIASES)
    living = [LIVING_ONLY] if call.flag(LIVING.name) else []
    async with call.reading() as work:
        page = await work.page(SERVICES, listing, *living)
        items = await show_services(work, page.items)
    return Answer({**msgspec.to_builtins(page), "items": items})


async def _show(call: Call) -> Answer:
    async with call.reading() as work:
        return await _shown_row(work, await work.find(SERVICES, call.path["id"]))


def _idempotency_key(call: Call) -> str | None:
    key = call.headers.get("idempotency-key")
    if key is not None and not 1 <= len(key) <= MAX_KEY:
        raise BadInput(f"Idempotency-Key must have 1 to {MAX_KEY} characters")
    return key


async def _create(call: Call) -> Answer:
    wanted = call.read(NewService)
    # What leaves nothing cannot be done twice.
    key = None if is_rehearsal(call) else _idempotency_key(call)

    async def carry(work: UnitOfWork) -> Carried:
        if key is not None:
            digest = secret_sealing.digest_of(work, wanted)
            known = await reserve(work.tx, work.required_caller.token_id, key, digest, work.now)
            if known is not None:
                raise AnsweredBefore(_again(known, digest))
        return Carried(await services.create(work, wanted), "create", RunPlan(None), is_order=True)

    async def answer(work: UnitOfWork, carried: Carried) -> Answer:
        answer = await _shown_row(work, carried.service)
        if key is not None:
            await keep_answer(work.tx, work.required_caller.token_id, key, msgspec.json.encode(answer.body).decode())
        return answer

    return await fulfil(call, _order_of(call, carry, answer, wanted))


def _order_of(call: Call, carry: Carry, answer: Tell, wanted: NewService | ServiceChange | ActionRequest) -> Order:
    asked = [call.path, msgspec.to_builtins(msgspec.structs.replace(wanted, plan_digest=None))]
    return Order(carry=carry, answer=answer, wanted=asked, plan_digest=wanted.plan_digest)


def _again(known: tuple[str, str], digest: str) -> Answer:
    if known[0] != digest:
        raise Conflict("this Idempotency-Key was used for another order", code="idempotency_mismatch")
    return Answer(known[1].encode())


def _peek(call: Call, body: type[B]) -> B:
    """A body with faults is an empty one here: whose service it is is judged first, and then it is read again."""
    try:
        return call.read(body)
    except OperationRefused:
        return body()


async def _shown(work: UnitOfWork, carried: Carried) -> Answer:
    return await shown(work, carried.service.id)


async def _change(call: Call) -> Answer:
    async def carry(work: UnitOfWork) -> Carried:
        row = await work.find(SERVICES, call.path["id"], "order", lock=True)
        plan = await services.change(work, row, call.read(ServiceChange), _if_version(call))
        return Carried(row, "update", plan)

    return await fulfil(call, _order_of(call, carry, _shown, _peek(call, ServiceChange)))


async def _delete(call: Call) -> Answer:
    async def carry(work: UnitOfWork) -> Carried:
        row = await work.find(SERVICES, call.path["id"], "order", lock=True)
        if call.flag("force"):
            services.refuse_stale(row, _if_version(call))
            await force_delete(work, row)
            return Carried(row, "delete", None)
        return Carried(row, "delete", await services.act(work, row, ActionOrder("delete", None, _if_version(call))))

    async def answer(_work: UnitOfWork, _carried: Carried) -> Answer:
        return Answer()

    digest = next((value for key, value in call.query if key == "planDigest"), None)
    wanted = [call.path, "delete", call.flag("force")]
    return await fulfil(call, Order(carry=carry, answer=answer, wanted=wanted, plan_digest=digest))


async def _act(call: Call) -> Answer:
    async def carry(work: UnitOfWork) -> Carried:
        row = await work.find(SERVICES, call.path["id"], "order", lock=True)
        action = call.path["action"]
        request = ActionOrder(action, call.read(ActionRequest).properties, _if_version(call))
        return Carried(row, action, await services.act(work, row, request))

    return await fulfil(call, _order_of(call, carry, _shown, _peek(call, ActionRequest)))


def _conditions(raw: bytes) -> list[ServiceCondition]:
    try:
        found = msgspec.convert(decode_json(raw or b"[]"), list[ServiceCondition])
    except msgspec.ValidationError as error:
        raise BadInput(f"the conditions are not as they should be: {error}", code="invalid_body") from None
    if len(found) > MAX_CONDITIONS:
        raise BadInput(f"at most {MAX_CONDITIONS} conditions")
    return found


async def _set_conditions(call: Call) -> Answer:
    async with call.transaction() as work:
        row = await work.find(SERVICES, call.path["id"], "condition", lock=True)
        await services.set_conditions(work, row, _conditions(call.raw_body))
        return await shown(work, row.id)


def _time(call: Call, name: str) -> datetime | None:
    given = [value for key, value in call.query if key == name]
    try:
        return parse_time(given[-1]) if given else None
    except ValueError:
        raise BadInput(f"{name} must be a time such as 2026-01-31T12:00:00Z", code="bad_query") from None


async def _show_uptime(call: Call) -> Answer:
    async with call.reading() as work:
        row = await work.find(SERVICES, call.path["id"])
        return Answer(await services.measure_uptime(work, row, _time(call, "start"), _time(call, "end")))


async def _show_provenance(call: Call) -> Answer:
    async with call.reading() as work:
        row = await work.find(SERVICES, call.path["id"])
        return Answer({"properties": await services.read_provenance(work, row)})


DRY_RUN = QueryParameter("dryRun", "Only tell what would happen", {"type": "boolean"})
PLAN = (
    QueryParameter("plan", "Tell what would happen, also on the host: the agent is asked", {"type": "boolean"}),
    QueryParameter(
        "planWait",
        "Seconds to wait for the agent, with plan or planDigest",
        {"type": "integer", "minimum": 1, "maximum": LONGEST_PLAN_SECONDS},
    ),
)
PLAN_DIGEST = QueryParameter("planDigest", "Only if it would still come out as this plan said")
FORCE = QueryParameter("force", "Without the agent: the service ends at once", {"type": "boolean"})
TIME = {"type": "string", "format": "date-time"}
ORDER = ("service", "order")
READ = ("service", "read")

ENDPOINTS = (
    Endpoint(
        method="GET",
        path=PATH,
        act=_list_services,
        access=READ,
        summary="List services",
        answer=Page[ServiceView],
        lists=SERVICES,
        query=(QueryParameter("currentStatus", "The same as status"), LIVING),
        refusals=(400,),
    ),
    Endpoint(
        method="GET",
        path=f"{PATH}/{{id}}",
        act=_show,
        access=READ,
        summary="Show one service",
        answer=ServiceView,
        refusals=(404,),
    ),
    Endpoint(
        method="POST",
        path=PATH,
        act=_create,
        access=ORDER,
        summary="Order a service; its first job is `create`",
        status=201,
        body=NewService,
        answer=ServiceView,
        dry=Forecast,
        query=(DRY_RUN, *PLAN),
        refusals=(400, 409, 504),
    ),
    Endpoint(
        method="PATCH",
        path=f"{PATH}/{{id}}",
        act=_change,
        access=ORDER,
        summary="Rename a service, or change its properties through a job `update`",
        body=ServiceChange,
        answer=ServiceView,
        also=(Forecast,),
        query=(DRY_RUN, *PLAN),
        refusals=(400, 404, 409, 412, 504),
    ),
    Endpoint(
        method="DELETE",
        path=f"{PATH}/{{id}}",
        act=_delete,
        access=ORDER,
        summary="Have a service removed by a job `delete`",
        status=204,
        dry=Forecast,
        query=(DRY_RUN, FORCE, *PLAN, PLAN_DIGEST),
        refusals=(400, 404, 409, 412, 504),
    ),
    Endpoint(
        method="POST",
        path=f"{PATH}/{{id}}/{{action}}",
        act=_act,
        access=ORDER,
        summary="Start any action of the service's lifecycle",
        body=ActionRequest,
        answer=ServiceView,
        also=(Forecast,),
        query=(DRY_RUN, *PLAN),
        refusals=(400, 404, 409, 412, 504),
    ),
    Endpoint(
        method="PUT",
        path=f"{PATH}/{{id}}/conditions",
        act=_set_conditions,
        access=("service", "condition"),
        summary="Tell what the agent found out about a service",
        answer=ServiceView,
        refusals=(400, 404),
    ),
    Endpoint(
        method="GET",
        path=f"{PATH}/{{id}}/uptime",
        act=_show_uptime,
        access=READ,
        summary="The share of time that a service was running",
        answer=UptimeView,
        query=(QueryParameter("start", "From when", TIME), QueryParameter("end", "Until when", TIME)),
        refusals=(400, 404),
    ),
    Endpoint(
        method="GET",
        path=f"{PATH}/{{id}}/provenance",
        act=_show_provenance,
        access=READ,
        summary="Who set each property, when and by which job",
        answer=dict[str, object],
        refusals=(404,),
    ),
)
