"""One service: state, running job, lifecycle, drift, properties with their origin, jobs, references and events."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

import msgspec

from mainstay.control.access import ACCESS, Caller, Role, relation_of
from mainstay.control.domain.lifecycle.schema import Lifecycle
from mainstay.control.domain.lifecycle.state_kind import StateKind, kind_of_state
from mainstay.control.domain.lifecycle.svg import ServiceMoves
from mainstay.control.domain.lifecycle.transitions import success_path
from mainstay.control.domain.lifecycle.uptime import StateEntry, uptime_by_day
from mainstay.control.operations import events, job_reports, services
from mainstay.control.operations.machinery.unit_of_work import UnitOfWork
from mainstay.control.operations.machinery.views import ServiceView, show_service, visible_part
from mainstay.control.store.events import newest_of
from mainstay.control.store.jobs import newest_of_service, read_log
from mainstay.control.store.metrics import read_recent_series
from mainstay.control.store.services import (
    SERVICES,
    RelatedService,
    ServiceDetails,
    ServiceRow,
    read_details,
    read_references,
    recent_states,
)
from mainstay.control.web.action_addresses import action_address
from mainstay.control.web.contract import PageAnswer, PageCall, WebPage
from mainstay.control.web.drawings.lifecycle import draw_lifecycle
from mainstay.control.web.drawings.numbers import MetricPoint, UptimeDay, draw_metric_chart, draw_uptime_bar, percent
from mainstay.control.web.views.diffs import DiffBudget
from mainstay.control.web.views.event_summary import event_words, initiator_of
from mainstay.control.web.views.jobs import ShownJob, progress_word, shown_job
from mainstay.control.web.views.property_rows import MAX_ROWS, property_rows
from mainstay.control.web.views.reports import read_drift, read_report

SHOWN_JOBS = 10
SHOWN_EVENTS = 10
MAX_REFERENCES = 50
SHOWN_STATES = 2000
UPTIME_DAYS = 90
SHOWN_SERIES = 8
METRIC_SECONDS = 86_400
METRIC_INTERVAL_SECONDS = 900
# Characters of a report that is shown whole beside the service; larger ones have a page of their own.
MAX_INLINE_REPORT = 200_000
DRIFT = "InSync"


@dataclass(frozen=True, slots=True)
class PossibleAction:
    name: str
    href: str
    # Where a successful run ends.
    to: str
    is_dangerous: bool


async def _show(call: PageCall) -> PageAnswer:
    async with call.reading() as work:
        row = await work.find(SERVICES, call.path["id"])
        values = await _ServiceReader(work, row, call.fragment).read()
    return PageAnswer("service.html", values)


class _ServiceReader:
    """Reads what the page shows, or what some regions of it show."""

    def __init__(self, work: UnitOfWork, row: ServiceRow, fragment: str | None) -> None:
        self._work = work
        self._row = row
        # None: the whole page.
        self._regions = None if fragment is None else frozenset(fragment.split(","))

    def _shows(self, *regions: str) -> bool:
        return self._regions is None or not self._regions.isdisjoint(regions)

    async def read(self) -> dict[str, Any]:
        work, row, caller = self._work, self._row, self._work.required_caller
        view = await show_service(work, row)
        details = await read_details(work.tx, row.id)
        definition = await work.tools.definitions.read(work.tx, row.service_type_id, details.type_version)
        lifecycle = definition.lifecycle
        if row.status in lifecycle.terminal_states:
            # What the agent reported last is no longer true.
            view = msgspec.structs.replace(view, conditions=[])
        parties = {row.provider_id: details.provider_name, row.consumer_id: details.consumer_name}
        shown = await _read_jobs(work, row, view, parties)
        active = next((job for job in shown if job.is_active), None)
        values: dict[str, Any] = {
            "service": view,
            "details": details,
            "kind": kind_of_state(lifecycle, row.status),
            "actions": _actions(caller, view, lifecycle),
            "may_order": _may(caller, "service", "order", row),
            "may_move": view.active_job is None
            and details.movable
            and row.status != lifecycle.initial_state
            and _may(caller, "service", "move", row),
            # Also out of a state without actions, and of a type without `delete`.
            "may_force": row.status not in lifecycle.terminal_states and _may(caller, "service", "order", row),
            "may_repair": view.active_job is None
            and row.status not in lifecycle.terminal_states
            and caller.role in ACCESS["service", "repair"]
            and _may(caller, "service", "repair", row),
            "may_cancel": _may(caller, "job", "cancel", row),
            "sees_agent": caller.role is Role.ADMIN or caller.participant_id == row.provider_id,
            "active": active,
            "active_word": progress_word(active) if active is not None else "",
            "jobs": shown,
            "now": work.now,
        }
        values |= await self._history(view, lifecycle)
        values |= await self._host(view, lifecycle, shown, values["actions"])
        values |= await self._properties(view, details, active, parties)
        if self._shows("aside"):
            values |= {"events": await _read_events(work, row, shown), "metrics": await _read_metrics(work, row)}
        return values

    async def _history(self, view: ServiceView, lifecycle: Lifecycle) -> dict[str, Any]:
        """When the service came into its state, and how long it was up."""
        if not self._shows("top", "aside"):
            return {}
        work, row = self._work, self._row
        states = await recent_states(work.tx, row.id, work.now - timedelta(days=UPTIME_DAYS), SHOWN_STATES)
        since = states[-1][0] if states else row.created_at
        return {
            "since": since,
            "uptime": _uptime(lifecycle, states, work.now),
            "drift": _drift(view, DiffBudget(lines=0)),
        }

    async def _host(
        self, view: ServiceView, lifecycle: Lifecycle, shown: Sequence[ShownJob], actions: Sequence[PossibleAction]
    ) -> dict[str, Any]:
        """What happens on the host, and what the agent found there."""
        if not self._shows("now"):
            return {}
        budget = DiffBudget()
        active = next((job for job in shown if job.is_active), None)
        return {
            "drawing": _draw(lifecycle, view, actions),
            "drift": _drift(view, budget),
            "log": [] if active is None else await read_log(self._work.tx, active.row.id),
            "last": await _read_last_report(self._work, shown, budget) if active is None else None,
        }

    async def _properties(
        self, view: ServiceView, details: ServiceDetails, active: ShownJob | None, parties: Mapping[str, str]
    ) -> dict[str, Any]:
        if not self._shows("properties", "aside"):
            return {}
        references = await _read_references(self._work, self._row)
        names = {each.id: each.name for each, _ in references if each.outgoing}
        values: dict[str, Any] = {"references": references, "reference_names": names}
        if self._shows("properties"):
            values |= {
                "properties": property_rows(view.properties, None if active is None else active.row.params),
                "max_rows": MAX_ROWS,
                "origins": await services.read_origins(self._work, self._row, details.provenance, parties),
            }
        return values


async def _read_jobs(
    work: UnitOfWork, row: ServiceRow, view: ServiceView, parties: Mapping[str, str]
) -> list[ShownJob]:
    relation = work.relation("job", "read")
    found = await newest_of_service(work.tx, row.id, SHOWN_JOBS)
    readable = [job for job in found if relation.holds(work.required_caller, job)]
    contexts = await job_reports.read_contexts(work, readable, parties)
    return [shown_job(visible_part(work, job), contexts.get(job.id), view.agent.status, work.now) for job in readable]


async def _read_last_report(work: UnitOfWork, shown: Sequence[ShownJob], budget: DiffBudget) -> dict[str, Any] | None:
    """The newest job with what it changed on the host. None: no job has ended, or it has no report."""
    last = next((job for job in shown if not job.is_active), None)
    if last is None:
        return None
    report = await job_reports.find_report(work, last.row, MAX_INLINE_REPORT)
    return None if report is None else {"job": last, "report": read_report(report, budget)}


async def _read_references(work: UnitOfWork, row: ServiceRow) -> list[tuple[RelatedService, StateKind]]:
    """With the kind of their state. Services that the caller may not read are left out."""
    relation = work.relation("service", "read")
    found = await read_references(work.tx, row.id, MAX_REFERENCES)
    found = [each for each in found if relation.holds(work.required_caller, each)]
    read = work.tools.definitions.read
    types = {(each.service_type_id, each.type_version) for each in found}
    lifecycles = {key: (await read(work.tx, *key)).lifecycle for key in types}
    return [(each, kind_of_state(lifecycles[each.service_type_id, each.type_version], each.status)) for each in found]


async def _read_events(work: UnitOfWork, row: ServiceRow, shown: Sequence[ShownJob]) -> list[dict[str, Any]]:
    """The newest events of the service and of its newest jobs."""
    relation = work.relation("event", "read")
    found = await newest_of(work.tx, [row.id, *(job.row.id for job in shown)], SHOWN_EVENTS)
    readable = [event for event in found if relation.holds(work.required_caller, event)]
    return [
        {"event": event, "by": initiator_of(event), "words": event_words(event)}
        for event in await events.show_events(work, readable)
    ]


def _may(caller: Caller, noun: str, action: str, row: ServiceRow) -> bool:
    return not caller.read_only and relation_of(caller, noun, action).holds(caller, row)


def _actions(caller: Caller, view: ServiceView, lifecycle: Lifecycle) -> list[PossibleAction]:
    if not _may(caller, "service", "order", view):
        return []
    # The change of properties first: it is what most visitors come for.
    names = sorted(view.available_actions, key=lambda name: name != "update")
    ends = {name: success_path(lifecycle, name, view.status)[-1] for name in names}
    return [
        PossibleAction(name, action_address(view.id, name), to, is_dangerous=to in lifecycle.terminal_states)
        for name, to in ends.items()
    ]


def _draw(lifecycle: Lifecycle, view: ServiceView, actions: Sequence[PossibleAction]) -> str:
    running = None if view.active_job is None else view.active_job.action
    links = {} if running else {action.name: action.href for action in actions}
    return draw_lifecycle(
        lifecycle, f"Lifecycle of {view.service_type.name}", ServiceMoves(view.status, links, running)
    )


def _uptime(lifecycle: Lifecycle, states: Sequence[tuple[datetime, str]], now: datetime) -> dict[str, Any] | None:
    """None: the lifecycle has no running state, so nothing is up or down."""
    if not lifecycle.running_states:
        return None
    days = uptime_by_day(lifecycle, [StateEntry(at, state) for at, state in states], now, UPTIME_DAYS)
    running = sum((each.uptime.running for each in days), timedelta())
    total = sum((each.uptime.total for each in days), timedelta())
    bars = [
        UptimeDay(
            each.day.date(),
            each.uptime.share if each.uptime.total else None,
            failed=any(kind_of_state(lifecycle, state) == "bad" for state in each.states),
        )
        for each in days
    ]
    share = running / total if total else 0.0
    return {
        "bar": draw_uptime_bar(bars, share),
        "share": percent(share),
        "days": [each.day for each in days],
        "is_whole": bool(days[0].uptime.total),
    }


async def _read_metrics(work: UnitOfWork, row: ServiceRow) -> list[dict[str, Any]]:
    since = work.now - timedelta(seconds=METRIC_SECONDS)
    found = await read_recent_series(work.tx, row.id, since, METRIC_INTERVAL_SECONDS, SHOWN_SERIES)
    charts = []
    for series in found:
        points = [MetricPoint(at.timestamp(), value) for at, value in series.points]
        name = f"{series.type_name} of {series.resource_id}"
        charts.append(
            {
                "series": series,
                "last": points[-1].value,
                "chart": draw_metric_chart(points, name, 3 * METRIC_INTERVAL_SECONDS),
            }
        )
    return charts


def _drift(view: ServiceView, budget: DiffBudget) -> dict[str, Any] | None:
    """None: the service is in sync, or its agent has not compared it."""
    found = next((each for each in view.conditions if each.get("type") == DRIFT), None)
    if found is None or found.get("status") == "True":
        return None
    resources = read_drift(str(found.get("message") or ""), budget)
    return {"condition": found, "resources": resources, "is_known": found.get("status") == "False"}


async def _repair(call: PageCall) -> PageAnswer:
    page = f"/services/{call.path['id']}"
    await call.api("PUT", f"/api/v1{page}/repair")
    return PageAnswer(redirect=page, notice="The agent repairs the service at its next check, which is now")


PAGES = (
    WebPage(method="GET", path="/services/{id}", act=_show, access=("service", "read")),
    WebPage(method="POST", path="/services/{id}/repair", act=_repair, access=("service", "repair")),
)
