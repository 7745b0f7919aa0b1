"""Services: ordered, read, changed, acted upon and removed."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import datetime

import msgspec

from mainstay.control.api.bodies import decode_json
from mainstay.control.api.contract import Answer, Call, Endpoint, QueryParameter
from mainstay.control.operations import services, vault
from mainstay.control.operations.forecast import Forecast, forecast_action, forecast_order
from mainstay.control.operations.jobs import force_delete
from mainstay.control.operations.refusals import BadInput, Conflict
from mainstay.control.operations.services import ActionRequest, Condition, NewService, Request, ServiceChange, Uptime
from mainstay.control.operations.shown import Service, show_service, show_services
from mainstay.control.operations.work import Work
from mainstay.control.store.idempotency import keep_answer, reserve
from mainstay.control.store.paging import Page, parse_listing, parse_time
from mainstay.control.store.services import SERVICES, ServiceRow

PATH = "/api/v1/services"
ALIASES = {"currentStatus": "status"}
MAX_CONDITIONS = 100
MAX_KEY = 255


def etag(service: ServiceRow) -> dict[str, str]:
    return {"ETag": f'"{service.version}"'}


def if_version(call: Call) -> int | None:
    """The version in If-Match; one that is no version of ours never matches."""
    text = call.headers.get("if-match", "").strip()
    if text in ("", "*"):
        return None
    number = text.removeprefix("W/").strip('"')
    return int(number) if number.isascii() and number.isdigit() and len(number) < 19 else -1


async def shown(work: Work, service_id: str) -> Answer:
    row = await SERVICES.find(work.tx, service_id)
    if row is None:
        raise RuntimeError("a service does not go within the request that changes it")
    return await shown_row(work, row)


async def shown_row(work: Work, row: ServiceRow) -> Answer:
    return Answer(await show_service(work, row), headers=etag(row))


async def list_services(call: Call) -> Answer:
    listing = parse_listing(SERVICES, call.query, aliases=ALIASES)
    async with call.reading() as work:
        page = await work.page(SERVICES, listing)
        items = await show_services(work, page.items)
    return Answer({**msgspec.to_builtins(page), "items": items})


async def show(call: Call) -> Answer:
    async with call.reading() as work:
        return await shown_row(work, await work.find(SERVICES, call.path["id"]))


class Rehearsed(Exception):
    """Ends a dry run: the request was carried out in full, and with this everything it did is undone."""

    def __init__(self, forecast: Forecast) -> None:
        super().__init__()
        self.forecast = forecast


@asynccontextmanager
async def ordering(call: Call, answers: list[Answer]) -> AsyncIterator[Work]:
    """The work of one order; a dry run leaves its forecast in `answers` and nothing anywhere else."""
    try:
        async with call.working() as work:
            yield work
    except Rehearsed as rehearsed:
        answers.append(Answer(rehearsed.forecast, status=200))


def idempotency_key(call: Call) -> str | None:
    key = call.headers.get("idempotency-key")
    if key is not None and not 1 <= len(key) <= MAX_KEY:
        raise BadInput(f"Idempotency-Key must have 1 to {MAX_KEY} characters")
    return key


async def create(call: Call) -> Answer:
    wanted = call.read(NewService)
    # What leaves nothing cannot be done twice.
    key = None if call.flag("dryRun") else idempotency_key(call)
    answers: list[Answer] = []
    async with ordering(call, answers) as work:
        if key is not None:
            digest = vault.digest_of(work, wanted)
            known = await reserve(work.tx, work.who.token_id, key, digest, work.now)
            if known is not None:
                return _again(known, digest)
        service = await services.create(work, wanted)
        if call.flag("dryRun"):
            raise Rehearsed(await forecast_order(work, service))
        answer = await shown_row(work, service)
        if key is not None:
            await keep_answer(work.tx, work.who.token_id, key, msgspec.json.encode(answer.body).decode())
        answers.append(answer)
    return answers[0]


def _again(known: tuple[str, str], digest: str) -> Answer:
    if known[0] != digest:
        raise Conflict("this Idempotency-Key was used for another order", code="idempotency_mismatch")
    return Answer(known[1].encode())


async def change(call: Call) -> Answer:
    answers: list[Answer] = []
    async with ordering(call, answers) as work:
        row = await work.find(SERVICES, call.path["id"], "order", lock=True)
        plan = await services.change(work, row, call.read(ServiceChange), if_version(call))
        if call.flag("dryRun"):
            raise Rehearsed(await forecast_action(work, row, "update", plan))
        answers.append(await shown(work, row.id))
    return answers[0]


async def delete(call: Call) -> Answer:
    answers: list[Answer] = []
    async with ordering(call, answers) as work:
        row = await work.find(SERVICES, call.path["id"], "order", lock=True)
        if call.flag("force"):
            services.refuse_stale(row, if_version(call))
            await force_delete(work, row)
            plan = None
        else:
            plan = await services.act(work, row, Request("delete", None, if_version(call)))
        if call.flag("dryRun"):
            raise Rehearsed(await forecast_action(work, row, "delete", plan))
        answers.append(Answer())
    return answers[0]


async def act(call: Call) -> Answer:
    answers: list[Answer] = []
    async with ordering(call, answers) as work:
        row = await work.find(SERVICES, call.path["id"], "order", lock=True)
        wanted = call.read(ActionRequest)
        action = call.path["action"]
        plan = await services.act(work, row, Request(action, wanted.properties, if_version(call)))
        if call.flag("dryRun"):
            raise Rehearsed(await forecast_action(work, row, action, plan))
        answers.append(await shown(work, row.id))
    return answers[0]


def _conditions(raw: bytes) -> list[Condition]:
    try:
        found = msgspec.convert(decode_json(raw or b"[]"), list[Condition])
    except msgspec.ValidationError as error:
        raise BadInput(f"the conditions are not as they should be: {error}", code="invalid_body") from None
    if len(found) > MAX_CONDITIONS:
        raise BadInput(f"at most {MAX_CONDITIONS} conditions")
    return found


async def set_conditions(call: Call) -> Answer:
    async with call.working() as work:
        row = await work.find(SERVICES, call.path["id"], "condition", lock=True)
        await services.set_conditions(work, row, _conditions(call.raw_body))
        return await shown(work, row.id)


def _time(call: Call, name: str) -> datetime | None:
    given = [value for key, value in call.query if key == name]
    try:
        return parse_time(given[-1]) if given else None
    except ValueError:
        raise BadInput(f"{name} must be a time such as 2026-01-31T12:00:00Z", code="bad_query") from None


async def show_uptime(call: Call) -> Answer:
    async with call.reading() as work:
        row = await work.find(SERVICES, call.path["id"])
        return Answer(await services.measure_uptime(work, row, _time(call, "start"), _time(call, "end")))


async def show_provenance(call: Call) -> Answer:
    async with call.reading() as work:
        row = await work.find(SERVICES, call.path["id"])
        return Answer({"properties": await services.read_provenance(work, row)})


DRY_RUN = QueryParameter("dryRun", "Only tell what would happen", {"type": "boolean"})
FORCE = QueryParameter("force", "Without the agent: the service ends at once", {"type": "boolean"})
TIME = {"type": "string", "format": "date-time"}
ORDER = ("service", "order")
READ = ("service", "read")

ENDPOINTS = (
    Endpoint(
        method="GET",
        path=PATH,
        act=list_services,
        access=READ,
        summary="List services",
        answer=Page[Service],
        lists=SERVICES,
        query=(QueryParameter("currentStatus", "The same as status"),),
        refusals=(400,),
    ),
    Endpoint(
        method="GET",
        path=f"{PATH}/{{id}}",
        act=show,
        access=READ,
        summary="Show one service",
        answer=Service,
        refusals=(404,),
    ),
    Endpoint(
        method="POST",
        path=PATH,
        act=create,
        access=ORDER,
        summary="Order a service; its first job is `create`",
        status=201,
        body=NewService,
        answer=Service,
        dry=Forecast,
        query=(DRY_RUN,),
        refusals=(400, 409),
    ),
    Endpoint(
        method="PATCH",
        path=f"{PATH}/{{id}}",
        act=change,
        access=ORDER,
        summary="Rename a service, or change its properties through a job `update`",
        body=ServiceChange,
        answer=Service,
        also=(Forecast,),
        query=(DRY_RUN,),
        refusals=(400, 404, 409, 412),
    ),
    Endpoint(
        method="DELETE",
        path=f"{PATH}/{{id}}",
        act=delete,
        access=ORDER,
        summary="Have a service removed by a job `delete`",
        status=204,
        dry=Forecast,
        query=(DRY_RUN, FORCE),
        refusals=(400, 404, 409, 412),
    ),
    Endpoint(
        method="POST",
        path=f"{PATH}/{{id}}/{{action}}",
        act=act,
        access=ORDER,
        summary="Start any action of the service's lifecycle",
        body=ActionRequest,
        answer=Service,
        also=(Forecast,),
        query=(DRY_RUN,),
        refusals=(400, 404, 409, 412),
    ),
    Endpoint(
        method="PUT",
        path=f"{PATH}/{{id}}/conditions",
        act=set_conditions,
        access=("service", "condition"),
        summary="Tell what the agent found out about a service",
        answer=Service,
        refusals=(400, 404),
    ),
    Endpoint(
        method="GET",
        path=f"{PATH}/{{id}}/uptime",
        act=show_uptime,
        access=READ,
        summary="The share of time that a service was running",
        answer=Uptime,
        query=(QueryParameter("start", "From when", TIME), QueryParameter("end", "Until when", TIME)),
        refusals=(400, 404),
    ),
    Endpoint(
        method="GET",
        path=f"{PATH}/{{id}}/provenance",
        act=show_provenance,
        access=READ,
        summary="Who set each property, when and by which job",
        answer=dict[str, object],
        refusals=(404,),
    ),
)
