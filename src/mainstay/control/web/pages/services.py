"""The list of services: views, search, filters and pages by cursor, all in the URL."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from mainstay.control.access import Role
from mainstay.control.domain.conditions import find_in_sync
from mainstay.control.domain.lifecycle.state_kind import StateKind, kind_of_state
from mainstay.control.operations.machinery.consumer_view import first_line
from mainstay.control.operations.machinery.unit_of_work import UnitOfWork
from mainstay.control.operations.machinery.views import ServiceView, show_services
from mainstay.control.store.agents import AGENTS
from mainstay.control.store.blueprints import versions_of
from mainstay.control.store.engine.paging import CursorPage, owned_by, parse_listing
from mainstay.control.store.participants import PARTICIPANTS
from mainstay.control.store.service_types import SERVICE_TYPES, bundle_versions, count_services
from mainstay.control.store.services import (
    DRIFTED_ONLY,
    ENDED_ONLY,
    FAILED_ONLY,
    LIVING_ONLY,
    SERVICES,
    UNKNOWN_ONLY,
    WITH_JOB_ONLY,
    last_failures,
)
from mainstay.control.web.contract import NavigationEntry, PageAnswer, PageCall, WebPage

VIEWS = {
    "": ("All", LIVING_ONLY),
    "failed": ("Failed", FAILED_ONLY),
    "drifted": ("Drifted", DRIFTED_ONLY),
    "unknown": ("Unknown", UNKNOWN_ONLY),
    "busy": ("With a job", WITH_JOB_ONLY),
    "ended": ("Ended", ENDED_ONLY),
}
# With the names of the API. Those without a menu come from links of other pages.
FILTERS = {
    "status": "State",
    "serviceTypeId": "Type",
    "agentId": "Agent",
    "consumerId": "Owner",
    "blueprintDigest": "Version",
    "providerId": "",
    "groupId": "",
}
# Twenty rows keep the first load below 100 kB.
PAGE_SIZES = ("20", "100")
MAX_CHOICES = 50
MAX_BULK_ACTIONS = 6


@dataclass(frozen=True, slots=True)
class ServiceLine:
    service: ServiceView
    kind: StateKind
    owner: str
    # Version of the blueprint; "" without one.
    version: str
    # The condition `InSync`; empty: the agent has not reported it.
    in_sync: Mapping[str, Any]
    # The action and the first line of the message, if the last job failed.
    failure: tuple[str, str, str] | None


async def _show(call: PageCall) -> PageAnswer:
    view = call.asked("view") if call.asked("view") in VIEWS else ""
    page_size = call.asked("rows") if call.asked("rows") in PAGE_SIZES else PAGE_SIZES[0]
    chosen = {name: [value for key, value in call.query if key == name and value] for name in FILTERS}
    wanted = [(name, value) for name, values in chosen.items() for value in values]
    listing = parse_listing(
        SERVICES,
        [
            *wanted,
            ("name", call.asked("name")),
            ("after", call.asked("after")),
            ("sort", "-createdAt"),
            ("pageSize", page_size),
        ],
    )
    async with call.reading() as work:
        page = await work.page(SERVICES, listing, VIEWS[view][1])
        views = await show_services(work, page.items)
        lines = await _lines(work, views)
        choices = {} if call.fragment else await _choices(work, chosen)
    actions = sorted({action for each in views for action in each.available_actions} - {"create"})
    return PageAnswer(
        "services.html",
        {
            "views": VIEWS,
            "view": view,
            "lines": lines,
            "next": page.next if isinstance(page, CursorPage) else None,
            "filters": FILTERS,
            "chosen": chosen,
            "choices": choices,
            "name": call.asked("name"),
            "after": call.asked("after"),
            "kept": [(key, value) for key, value in call.query if key != "after"],
            "filtered": bool(wanted or call.asked("name")),
            "may_act": not call.caller.read_only,
            "actions": actions[:MAX_BULK_ACTIONS],
            "rollout_type": _rollout_type(call, view, chosen),
        },
    )


def _rollout_type(call: PageCall, view: str, chosen: Mapping[str, Sequence[str]]) -> str:
    """The type whose living services are exactly those that match: a roll-out is offered for all of them. "": none."""
    narrowed = view or call.asked("name") or any(values for name, values in chosen.items() if name != "serviceTypeId")
    may_roll_out = call.caller.role is Role.ADMIN and not call.caller.read_only
    types = chosen["serviceTypeId"]
    return types[0] if may_roll_out and len(types) == 1 and not narrowed else ""


async def _lines(work: UnitOfWork, views: Sequence[ServiceView]) -> list[ServiceLine]:
    if not views:
        return []
    owners = await PARTICIPANTS.many(work.tx, {each.consumer_id for each in views})
    versions = await versions_of(work.tx, sorted({each.blueprint_digest for each in views if each.blueprint_digest}))
    failures = await last_failures(work.tx, [each.id for each in views])
    types = await SERVICE_TYPES.many(work.tx, {each.service_type_id for each in views})
    lines = []
    for each in views:
        lifecycle = work.tools.definitions.of_service_type(types[each.service_type_id]).lifecycle
        failed = failures.get(each.id)
        is_ended = each.status in lifecycle.terminal_states
        lines.append(
            ServiceLine(
                each,
                kind_of_state(lifecycle, each.status),
                owners[each.consumer_id].name,
                versions.get(each.blueprint_digest or "", ""),
                {} if is_ended else find_in_sync(each.conditions),
                None
                if failed is None
                else (str(failed["job_id"]), str(failed["action"]), first_line(str(failed["error_message"] or ""))),
            )
        )
    return lines


async def _choices(work: UnitOfWork, chosen: Mapping[str, Sequence[str]]) -> dict[str, list[tuple[str, str, str]]]:
    """(value, label, kind of state) of each filter."""
    listing = parse_listing(SERVICE_TYPES, [("sort", "name"), ("pageSize", str(MAX_CHOICES))])
    types = (await work.page(SERVICE_TYPES, listing)).items
    states: dict[str, str] = {}
    for each in types:
        if not chosen["serviceTypeId"] or each.id in chosen["serviceTypeId"]:
            lifecycle = work.tools.definitions.of_service_type(each).lifecycle
            states |= {state: kind_of_state(lifecycle, state) for state in lifecycle.states}
    found = {
        "status": [(state, state, kind) for state, kind in states.items()][:MAX_CHOICES],
        "serviceTypeId": [(each.id, each.name, "") for each in types],
        "agentId": await _named(work, AGENTS),
        "consumerId": await _named(work, PARTICIPANTS) if work.required_caller.role is Role.ADMIN else [],
        "blueprintDigest": [],
    }
    if len(chosen["serviceTypeId"]) == 1:
        found["blueprintDigest"] = await _versions(work, chosen["serviceTypeId"][0])
    return {name: values for name, values in found.items() if values}


async def _versions(work: UnitOfWork, type_id: str) -> list[tuple[str, str, str]]:
    """For participants: those of their services. The list of blueprints is for admins."""
    versions = [each for each in await bundle_versions(work.tx, type_id, MAX_CHOICES) if each.version is not None]
    if work.required_caller.role is not Role.ADMIN:
        own = owned_by(work.relation("service", "read"), work.required_caller)
        used = {each.blueprint_digest for each in await count_services(work.tx, type_id, own)}
        versions = [each for each in versions if each.digest in used]
    return [(each.digest, str(each.version), "") for each in versions]


async def _named(work: UnitOfWork, table: Any) -> list[tuple[str, str, str]]:
    listing = parse_listing(table, [("sort", "name"), ("pageSize", str(MAX_CHOICES)), ("after", "")])
    return [(each.id, each.name, "") for each in (await work.page(table, listing)).items]


PAGES = (
    WebPage(
        method="GET",
        path="/services",
        act=_show,
        access=("service", "read"),
        navigation=NavigationEntry("Services", "i-box", 2),
    ),
)
