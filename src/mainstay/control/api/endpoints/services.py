"""Services: list, show, order, change, act, delete. Requests become orders here; operations/orders.py executes them."""

from __future__ import annotations

import msgspec

from mainstay.control.api.bodies import parse_change, parse_list
from mainstay.control.api.contract import BOOLEAN, TIME, Answer, Call, Endpoint, QueryParameter
from mainstay.control.api.nouns import detail_endpoint, page_endpoint
from mainstay.control.domain.conditions import CONDITION_STATUSES
from mainstay.control.operations import orders, services
from mainstay.control.operations.machinery.forecast import Forecast
from mainstay.control.operations.machinery.refusals import BadInput, OperationRefused
from mainstay.control.operations.machinery.unit_of_work import UnitOfWork
from mainstay.control.operations.machinery.views import (
    ServiceView,
    find_service_view,
    read_service_view,
    show_services,
)
from mainstay.control.operations.moves import MoveRequest
from mainstay.control.operations.orders import (
    ActionOrder,
    ChangeOrder,
    CreateOrder,
    DeleteOrder,
    MoveOrder,
    Order,
)
from mainstay.control.operations.plans import parse_plan_digest, question_topic
from mainstay.control.operations.services import (
    ActionRequest,
    NewService,
    ServiceChange,
    ServiceCondition,
    UptimeView,
)
from mainstay.control.store.engine.paging import parse_listing
from mainstay.control.store.services import IN_SYNC_ONLY, LIVING_ONLY, SERVICES, ServiceRow, finish_repair
from mainstay.foundation.numbers import LARGEST_NUMBER, parse_count

PATH = "/api/v1/services"
ALIASES = {"currentStatus": "status"}
STATUS_ALIAS = QueryParameter("currentStatus", "Alias of status")
LIVING = QueryParameter("living", "Only services that are not in a terminal state", BOOLEAN)
IN_SYNC = QueryParameter(
    "inSync", "Only services whose condition InSync is shown as this", {"enum": list(CONDITION_STATUSES)}
)
MAX_CONDITIONS = 100
MAX_KEY = 255
MAX_PLAN_WAIT_SECONDS = 60


def _if_version(call: Call) -> int | None:
    """The version in If-Match. Any other text becomes -1, which never matches."""
    text = call.headers.get("if-match", "").strip()
    if text in ("", "*"):
        return None
    version = parse_count(text.removeprefix("W/").strip('"'), 0, LARGEST_NUMBER)
    return -1 if version is None else version


def _service_answer(view: ServiceView) -> Answer:
    return Answer(view, headers={"ETag": f'"{view.version}"'})


async def _list_services(call: Call) -> Answer:
    query = [(name, value) for name, value in call.query if name not in (LIVING.name, IN_SYNC.name)]
    listing = parse_listing(SERVICES, query, aliases=ALIASES)
    narrowed = [LIVING_ONLY] if call.flag(LIVING.name) else []
    if wanted := call.last(IN_SYNC.name):
        if wanted not in IN_SYNC_ONLY:
            raise BadInput(f"{IN_SYNC.name} must be one of: {', '.join(CONDITION_STATUSES)}", code="bad_query")
        narrowed.append(IN_SYNC_ONLY[wanted])
    async with call.reading() as work:
        page = await work.page(SERVICES, listing, *narrowed)
        items = await show_services(work, page.items)
    return Answer(msgspec.structs.replace(page, items=items))


async def _show(call: Call) -> Answer:
    # One statement needs no transaction.
    async with call.autocommit() as work:
        return _service_answer(await find_service_view(work, call.path["id"]))


async def _create(call: Call) -> Answer:
    wanted = call.read(NewService)
    order = CreateOrder(wanted=wanted, idempotency_key=_idempotency_key(call))
    return await _place(call, order, wanted.plan_digest)


async def _change(call: Call) -> Answer:
    echoed: dict[str, object] = {}
    fault = None
    try:
        wanted, echoed = parse_change(call.raw_body, ServiceChange, ServiceView)
    except OperationRefused as found:
        wanted, fault = ServiceChange(), found
    order = ChangeOrder(
        service_id=call.path["id"], wanted=wanted, echoed=echoed, if_version=_if_version(call), body_fault=fault
    )
    return await _place(call, order, wanted.plan_digest)


async def _act(call: Call) -> Answer:
    fault = None
    try:
        wanted = call.read(ActionRequest)
    except OperationRefused as found:
        wanted, fault = ActionRequest(), found
    order = ActionOrder(
        service_id=call.path["id"],
        action=call.path["action"],
        wanted=wanted,
        if_version=_if_version(call),
        body_fault=fault,
    )
    return await _place(call, order, wanted.plan_digest)


async def _move(call: Call) -> Answer:
    fault = None
    wanted: MoveRequest | None = None
    try:
        wanted = call.read(MoveRequest)
    except OperationRefused as found:
        fault = found
    order = MoveOrder(service_id=call.path["id"], wanted=wanted, if_version=_if_version(call), body_fault=fault)
    return await _place(call, order, None if wanted is None else wanted.plan_digest)


async def _delete(call: Call) -> Answer:
    order = DeleteOrder(service_id=call.path["id"], if_version=_if_version(call), force=call.flag("force"))
    return await _place(call, order, next((value for key, value in call.query if key == "planDigest"), None))


def _idempotency_key(call: Call) -> str | None:
    if call.flag("plan") or call.flag("dryRun"):
        # A forecast stores nothing.
        return None
    key = call.headers.get("idempotency-key")
    if key is not None and not 1 <= len(key) <= MAX_KEY:
        raise BadInput(f"Idempotency-Key must have 1 to {MAX_KEY} characters")
    return key


async def _place(call: Call, order: Order, plan_digest: str | None) -> Answer:
    """Places the order in the form that the request asks for."""
    if call.flag("plan"):
        return Answer(await orders.plan(call.session, order, call.wait_for, _plan_wait(call)), status=200)
    if call.flag("dryRun"):
        return Answer(await orders.dry_run(call.session, order), status=200)
    if plan_digest is None:
        result = await orders.execute(call.session, order)
    else:
        digest = parse_plan_digest(plan_digest)
        result = await orders.execute_plan(call.session, order, digest, call.wait_for, _plan_wait(call))
    return _service_answer(result) if isinstance(result, ServiceView) else Answer(result)


def _plan_wait(call: Call) -> int:
    return call.number("planWait", MAX_PLAN_WAIT_SECONDS, 1, MAX_PLAN_WAIT_SECONDS)


def _conditions(raw: bytes) -> list[ServiceCondition]:
    found = parse_list(raw, ServiceCondition)
    if len(found) > MAX_CONDITIONS:
        raise BadInput(f"at most {MAX_CONDITIONS} conditions")
    return found


async def _set_conditions(call: Call) -> Answer:
    async with call.transaction() as work:
        row = await work.find(SERVICES, call.path["id"], "condition", lock=True)
        await services.set_conditions(work, row, _conditions(call.raw_body))
        return _service_answer(await read_service_view(work, row.id))


async def _request_repair(call: Call) -> Answer:
    async with call.transaction() as work:
        row = await work.find(SERVICES, call.path["id"], "repair", lock=True)
        call.refuse_body()
        await services.request_repair(work, row)
        work.tx.announce(question_topic(row.agent_id))
        return _service_answer(await read_service_view(work, row.id))


async def _finish_repair(call: Call) -> Answer:
    requested_at = call.time("requestedAt")
    async with call.transaction() as work:
        row = await work.find(SERVICES, call.path["id"], "condition", lock=True)
        await finish_repair(work.tx, row.id, requested_at or work.now)
    return Answer()


async def _show_uptime(call: Call) -> Answer:
    async with call.reading() as work:
        row = await work.find(SERVICES, call.path["id"])
        return Answer(await services.measure_uptime(work, row, call.time("start"), call.time("end")))


async def _read_provenance(work: UnitOfWork, row: ServiceRow) -> dict[str, object]:
    return {"properties": await services.read_provenance(work, row)}


DRY_RUN = QueryParameter("dryRun", "Return a forecast and change nothing", BOOLEAN)
PLAN = (
    QueryParameter(
        "plan", "Return a forecast that includes the changes on the host, as computed by the agent", BOOLEAN
    ),
    QueryParameter(
        "planWait",
        "Seconds to wait for the agent's forecast, with plan or planDigest",
        {"type": "integer", "minimum": 1, "maximum": MAX_PLAN_WAIT_SECONDS},
    ),
)
PLAN_DIGEST = QueryParameter("planDigest", "Execute only if the outcome is still that of this plan")
FORCE = QueryParameter("force", "End the service at once, without the agent", BOOLEAN)
ORDER = ("service", "order")
READ = ("service", "read")

ENDPOINTS = (
    page_endpoint(PATH, SERVICES, _list_services, ServiceView, "List services", (STATUS_ALIAS, LIVING, IN_SYNC)),
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
        summary="Remove a service through a job `delete`",
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
        path=f"{PATH}/{{id}}/agent",
        act=_move,
        access=("service", "move"),
        summary="Move a service to another agent through a job `create` there",
        body=MoveRequest,
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
        summary="Set the conditions of a service, as its agent found them",
        answer=ServiceView,
        refusals=(400, 404),
    ),
    Endpoint(
        method="PUT",
        path=f"{PATH}/{{id}}/repair",
        act=_request_repair,
        access=("service", "repair"),
        summary="Repair a service on its host at once, whatever its blueprint says about drift; there is no job",
        answer=ServiceView,
        refusals=(400, 404, 409),
    ),
    Endpoint(
        method="DELETE",
        path=f"{PATH}/{{id}}/repair",
        act=_finish_repair,
        access=("service", "condition"),
        summary="Report that a requested repair has ended; the condition InSync has its result",
        status=204,
        query=(QueryParameter("requestedAt", "`repairRequestedAt` of the service, as the agent read it", TIME),),
        refusals=(400, 404),
    ),
    Endpoint(
        method="GET",
        path=f"{PATH}/{{id}}/uptime",
        act=_show_uptime,
        access=READ,
        summary="Show the share of time that a service was running",
        answer=UptimeView,
        query=(
            QueryParameter("start", "Start of the period", TIME),
            QueryParameter("end", "End of the period", TIME),
        ),
        refusals=(400, 404),
    ),
    detail_endpoint(
        f"{PATH}/{{id}}/provenance",
        SERVICES,
        _read_provenance,
        summary="Show the origin of each property: actor, time and job",
        answer=dict[str, object],
    ),
)
