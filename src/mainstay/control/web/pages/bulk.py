"""One action on several services: a preview of each, then each in its own transaction with its own result."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

from mainstay.control.operations.machinery.refusals import BadInput
from mainstay.control.web.contract import ApiRefusal, PageAnswer, PageCall, WebPage

MAX_SERVICES = 100


@dataclass(frozen=True, slots=True)
class BulkLine:
    id: str
    name: str
    # Before the action.
    status: str
    # "": possible, or done.
    refusal: str
    # The states from now to the end of the run, in a preview.
    path: tuple[str, ...] = ()
    job_id: str = ""


async def _preview(call: PageCall) -> PageAnswer:
    action = _action(call)
    lines = [await _forecast(call, service_id, action) for service_id in _chosen(call)]
    return PageAnswer("bulk.html", {"action": action, "lines": lines, "done": False, "too_many": _is_too_many(call)})


async def _execute(call: PageCall) -> PageAnswer:
    action = _action(call)
    lines = [await _place(call, service_id, action) for service_id in _chosen(call)]
    return PageAnswer("bulk.html", {"action": action, "lines": lines, "done": True, "too_many": False})


def _action(call: PageCall) -> str:
    action = call.posted("action")
    if not action:
        raise BadInput("choose an action for the ticked services")
    return action


def _chosen(call: PageCall) -> list[str]:
    return list(dict.fromkeys(value for name, value in call.form if name == "id" and value))[:MAX_SERVICES]


def _is_too_many(call: PageCall) -> bool:
    return len({value for name, value in call.form if name == "id"}) > MAX_SERVICES


def _address(service_id: str) -> str:
    return f"/api/v1/services/{quote(service_id, safe='')}"


async def _forecast(call: PageCall, service_id: str, action: str) -> BulkLine:
    service: dict[str, Any] = {"name": service_id, "status": ""}
    try:
        service = await call.api("GET", _address(service_id))
        forecast = await _request(call, service_id, action, [("dryRun", "true")])
    except ApiRefusal as refusal:
        return BulkLine(service_id, service["name"], service["status"], str(refusal))
    return BulkLine(service_id, service["name"], service["status"], "", path=tuple(forecast["path"]))


async def _place(call: PageCall, service_id: str, action: str) -> BulkLine:
    service: dict[str, Any] = {"name": service_id, "status": ""}
    try:
        service = await call.api("GET", _address(service_id))
        result = await _request(call, service_id, action, [])
    except ApiRefusal as refusal:
        return BulkLine(service_id, service["name"], service["status"], str(refusal))
    job = result.get("activeJob") if isinstance(result, dict) else None
    return BulkLine(service_id, service["name"], service["status"], "", job_id=str(job["id"]) if job else "")


async def _request(call: PageCall, service_id: str, action: str, query: list[tuple[str, str]]) -> Any:
    if action == "delete":
        return await call.api("DELETE", _address(service_id), query=query)
    return await call.api("POST", f"{_address(service_id)}/{quote(action, safe='')}", query=query)


PAGES = (
    WebPage(method="POST", path="/services/bulk", act=_preview, access=("service", "order")),
    WebPage(method="POST", path="/services/bulk/execute", act=_execute, access=("service", "order")),
)
