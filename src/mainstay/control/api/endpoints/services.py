"""Services: ordered, read, changed, acted upon and removed."""

from __future__ import annotations

from datetime import datetime

import msgspec

from mainstay.control.api.bodies import decode_json
from mainstay.control.api.contract import Answer, Call, Endpoint, QueryParameter
from mainstay.control.operations import services
from mainstay.control.operations.refusals import BadInput
from mainstay.control.operations.services import ActionRequest, Condition, NewService, Request, ServiceChange, Uptime
from mainstay.control.operations.shown import Service, show_service, show_services
from mainstay.control.operations.work import Work
from mainstay.control.store.paging import Page, parse_listing, parse_time
from mainstay.control.store.services import SERVICES, ServiceRow

PATH = "/api/v1/services"
ALIASES = {"currentStatus": "status"}
MAX_CONDITIONS = 100


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
    service = await show_service(work, row)
    return Answer(service, headers=etag(service))


async def list_services(call: Call) -> Answer:
    listing = parse_listing(SERVICES, call.query, aliases=ALIASES)
    async with call.reading() as work:
        page = await work.page(SERVICES, listing)
        items = await show_services(work, page.items)
    return Answer({**msgspec.to_builtins(page), "items": items})


async def show(call: Call) -> Answer:
    async with call.reading() as work:
        row = await work.find(SERVICES, call.path["id"])
        service = await show_service(work, row)
    return Answer(service, headers=etag(service))


async def create(call: Call) -> Answer:
    wanted = call.read(NewService)
    async with call.working() as work:
        service = await services.create(work, wanted)
        return await shown(work, service.id)


async def change(call: Call) -> Answer:
    async with call.working() as work:
        row = await work.find(SERVICES, call.path["id"], "order", lock=True)
        await services.change(work, row, call.read(ServiceChange), if_version(call))
        return await shown(work, row.id)


async def delete(call: Call) -> Answer:
    async with call.working() as work:
        row = await work.find(SERVICES, call.path["id"], "order", lock=True)
        await services.act(work, row, Request("delete", None, if_version(call)))
    return Answer()


async def act(call: Call) -> Answer:
    async with call.working() as work:
        row = await work.find(SERVICES, call.path["id"], "order", lock=True)
        wanted = call.read(ActionRequest)
        await services.act(work, row, Request(call.path["action"], wanted.properties, if_version(call)))
        return await shown(work, row.id)


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
        refusals=(400, 404, 409, 412),
    ),
    Endpoint(
        method="DELETE",
        path=f"{PATH}/{{id}}",
        act=delete,
        access=ORDER,
        summary="Have a service removed by a job `delete`",
        status=204,
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
