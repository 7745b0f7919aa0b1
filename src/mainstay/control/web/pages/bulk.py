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


async def _answer(call: PageCall, *, dry_run: bool) -> PageAnswer:
    action = call.posted("action")
    if not action:
        raise BadInput("choose an action for the ticked services")
    ids = list(dict.fromkeys(value for name, value in call.form if name == "id" and value))
    lines = [await _line(call, each, action, dry_run=dry_run) for each in ids[:MAX_SERVICES]]
    too_many = dry_run and len(ids) > MAX_SERVICES
    return PageAnswer("bulk.html", {"action": action, "lines": lines, "done": not dry_run, "too_many": too_many})


async def _line(call: PageCall, service_id: str, action: str, *, dry_run: bool) -> BulkLine:
    service: dict[str, Any] = {"name": service_id, "status": ""}
    address = f"/api/v1/services/{quote(service_id, safe='')}"
    query = [("dryRun", "true")] if dry_run else []
    try:
        service = await call.api("GET", address)
        if action == "delete":
            result = await call.api("DELETE", address, query=query)
        else:
            result = await call.api("POST", f"{address}/{quote(action, safe='')}", query=query)
    except ApiRefusal as refusal:
        return BulkLine(service_id, service["name"], service["status"], str(refusal))
    if dry_run:
        return BulkLine(service_id, service["name"], service["status"], "", path=tuple(result["path"]))
    job = result.get("activeJob") if isinstance(result, dict) else None
    return BulkLine(service_id, service["name"], service["status"], "", job_id=str(job["id"]) if job else "")


ORDER = ("service", "order")
PAGES = (
    WebPage(method="POST", path="/services/bulk", act=lambda call: _answer(call, dry_run=True), access=ORDER),
    WebPage(
        method="POST", path="/services/bulk/execute", act=lambda call: _answer(call, dry_run=False), access=ORDER
    ),
)
