"""Orphans: what forced deletes and moves left on hosts, with the clean-ups that agents owe. Admins may forget an orphan."""

from __future__ import annotations

from typing import Any

import msgspec

from mainstay.control.web.contract import ApiRefusal, PageAnswer, PageCall, WebPage
from mainstay.control.web.noun_pages import Confirmation, ConfirmedRequest, confirmed_pages, may, names_of

API = "/api/v1/orphans"
PAGE_SIZE = "50"
CRUMBS = (("/orphans", "Clean-ups"),)


async def _agent_names(call: PageCall, orphans: list[Any]) -> dict[str, str]:
    return await names_of(call, "/api/v1/agents", [each["agentId"] for each in orphans])


async def _list(call: PageCall) -> PageAnswer:
    agent_id, after = call.asked("agentId"), call.asked("after")
    query = [("agentId", agent_id), ("after", after), ("sort", "-createdAt"), ("pageSize", PAGE_SIZE)]
    page = await call.api("GET", API, query=query)
    values = {
        "orphans": page["items"],
        "agents": await _agent_names(call, page["items"]),
        "older": page.get("next"),
        "agent_id": agent_id,
        "after": after,
        "may_forget": may(call, "orphan", "forget"),
    }
    return PageAnswer("orphans.html", values)


async def _find(call: PageCall) -> Any:
    found = await call.api("GET", API, query=[("id", call.path["id"])])
    if not found["items"]:
        raise ApiRefusal(404, {"error": "there is no open clean-up with this id", "code": "not_found"})
    return found["items"][0]


async def _show(call: PageCall) -> PageAnswer:
    orphan = await _find(call)
    report = ""
    try:
        found = await call.api("GET", f"{API}/{orphan['id']}/report")
        report = msgspec.json.format(msgspec.json.encode(found), indent=2).decode()
    except ApiRefusal as missing:
        if missing.status != 404:
            raise
    values = {
        "orphan": orphan,
        "agents": await _agent_names(call, [orphan]),
        "report": report,
        "may_forget": may(call, "orphan", "forget"),
    }
    return PageAnswer("orphan.html", values)


async def _confirm_forgetting(call: PageCall) -> tuple[Confirmation, ConfirmedRequest]:
    orphan = await _find(call)
    effects = [
        f"The agent no longer owes the clean-up of {orphan['serviceName']}.",
        "What the service left on the host stays there: files, units, data.",
        "Its pool values, instance id and secrets are released; another service may get the same address or port.",
    ]
    crumbs = [*CRUMBS, (f"/orphans/{orphan['id']}", orphan["serviceName"])]
    notice = f"The clean-up of {orphan['serviceName']} is forgotten"
    request = ConfirmedRequest("POST", f"{API}/{orphan['id']}/forget", "/orphans", notice)
    return Confirmation(f"Forget {orphan['serviceName']}", "Forget the clean-up", effects, crumbs), request


PAGES = (
    WebPage(method="GET", path="/orphans", act=_list, access=("orphan", "read")),
    WebPage(method="GET", path="/orphans/{id}", act=_show, access=("orphan", "read")),
    *confirmed_pages("/orphans/{id}/forget", ("orphan", "forget"), _confirm_forgetting),
)
