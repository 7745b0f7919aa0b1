"""A forecast as the plan page shows it: figures, path with both outcomes, pool values, properties and host. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from mainstay.control.domain.lifecycle.schema import Lifecycle
from mainstay.control.domain.lifecycle.state_kind import StateKind, kind_of_state
from mainstay.control.domain.properties.schema import PropertySchema
from mainstay.control.domain.properties.traversal import pool_values_in
from mainstay.control.domain.values import Properties, equal
from mainstay.control.web.forms.hints import show_value
from mainstay.control.web.views.diffs import DiffBudget
from mainstay.control.web.views.formatting import plural, running_time
from mainstay.control.web.views.property_rows import PropertyRow, property_rows
from mainstay.control.web.views.reports import ShownReport, read_report

FAILING = ("failed", "unmet")
# Not an action of a lifecycle: the state stays.
MOVE = "move"


@dataclass(frozen=True, slots=True)
class PathState:
    name: str
    kind: StateKind
    note: str


@dataclass(frozen=True, slots=True)
class PlannedPoolValue:
    path: str
    value: str
    pool: str
    is_taken: bool


@dataclass(frozen=True, slots=True)
class PlannedRun:
    agent: str
    action: str
    summary: str


@dataclass(frozen=True, slots=True)
class PlannedOrder:
    """What is forecast. `before` None: the order creates the service."""

    action: str
    lifecycle: Lifecycle
    schema: PropertySchema
    before: Properties | None = None


@dataclass(frozen=True, slots=True)
class ShownPlan:
    action: str
    is_new: bool
    states: tuple[PathState, ...]
    failures: tuple[PathState, ...]
    steps: str
    # The runs on several hosts, in order. Empty: one agent does all.
    runs: tuple[PlannedRun, ...]
    pool_values: tuple[PlannedPoolValue, ...]
    rows: Sequence[PropertyRow]
    changed: int
    kept: int
    # None: the agent was not asked.
    host: ShownReport | None
    resources: int
    restarts: tuple[str, ...]
    would_fail: bool
    # Empty without an agent's answer.
    digest: str
    expires_at: datetime | None
    time_left: str

    @property
    def taken(self) -> int:
        return sum(each.is_taken for each in self.pool_values)

    @property
    def given_back(self) -> int:
        return len(self.pool_values) - self.taken


def show_plan(order: PlannedOrder, forecast: Mapping[str, Any], now: datetime) -> ShownPlan:
    path = [str(state) for state in forecast["path"]]
    host = forecast.get("host")
    events = [each for each in host["events"] if isinstance(each, Mapping)] if host else []
    expires = forecast.get("expiresAt")
    expires_at = None if expires is None else datetime.fromisoformat(expires)
    all_rows = property_rows(order.before or {}, forecast["properties"])
    rows = [row for row in all_rows if row.coming is not None]
    changes = bool(rows) and order.before is not None
    return ShownPlan(
        action=order.action,
        is_new=order.before is None,
        states=_states(order, path, changes=changes),
        failures=_failures(order, path, changes=changes),
        steps=_steps(order, path),
        runs=tuple(
            PlannedRun(str(each["agent"]["name"]), str(each["action"]), str(each["summary"]))
            for each in forecast.get("steps") or ()
        ),
        pool_values=(*_taken(order, forecast), *_given_back(order, forecast, path)),
        rows=rows,
        changed=len(rows),
        kept=len(all_rows) - len(rows),
        host=None if host is None else read_report(host, DiffBudget()),
        resources=len(events),
        restarts=tuple(_restarts(events)),
        would_fail=any(each.get("outcome") in FAILING for each in events),
        digest=str(forecast.get("planDigest") or ""),
        expires_at=expires_at,
        time_left="" if expires_at is None else running_time((expires_at - now).total_seconds()),
    )


def _states(order: PlannedOrder, path: Sequence[str], *, changes: bool) -> tuple[PathState, ...]:
    last = len(path) - 1
    applied = "if it succeeds; properties apply then" if changes else "if it succeeds"
    idle = "now, and after the move" if order.action == MOVE else "now, nothing to do"
    notes = {0: "now", last: applied if last else idle}
    return tuple(
        PathState(state, kind_of_state(order.lifecycle, state), notes.get(index, "on the way"))
        for index, state in enumerate(path)
    )


def _failures(order: PlannedOrder, path: Sequence[str], *, changes: bool) -> tuple[PathState, ...]:
    """Where a failed job leads, from each state of the path."""
    kept = "; properties stay as they are" if changes else ""
    action = order.lifecycle.actions.get(order.action)
    if action is None or len(path) < 2:
        return ()
    found: dict[str, str] = {}
    for state in path[:-1]:
        errors = action.errors_from(state)
        for each in errors:
            pattern = "" if each.pattern is None else f" with a message that matches {show_value(each.pattern)}"
            found.setdefault(each.to, f"if it fails in {state}{pattern}{kept}")
        if not any(each.pattern is None for each in errors):
            found.setdefault(f"{state}, unchanged", f"if it fails{kept}")
    return tuple(PathState(state, "bad", note) for state, note in found.items())


def _steps(order: PlannedOrder, path: Sequence[str]) -> str:
    action = order.lifecycle.actions.get(order.action)
    if action is None or len(path) < 2:
        return "no job"
    minutes, seconds = divmod(action.timeout_seconds, 60)
    limit = f"{minutes} min" if not seconds else f"{action.timeout_seconds} s"
    return f"{plural(len(path) - 1, 'job')}, at most {limit} each, {plural(action.max_attempts, 'attempt')}"


def _taken(order: PlannedOrder, forecast: Mapping[str, Any]) -> Iterable[PlannedPoolValue]:
    pools = {each.path: each.pool_type for each in pool_values_in(order.schema, forecast["properties"])}
    for each in forecast["poolValues"]:
        yield PlannedPoolValue(each["path"], show_value(each["value"]), pools.get(each["path"], ""), is_taken=True)


def _given_back(order: PlannedOrder, forecast: Mapping[str, Any], path: Sequence[str]) -> Iterable[PlannedPoolValue]:
    """Values that another value replaces, and all of them at the end of the service."""
    after = {each.path: each.value for each in pool_values_in(order.schema, forecast["properties"])}
    ends = path[-1] in order.lifecycle.terminal_states
    for each in pool_values_in(order.schema, order.before or {}):
        if ends or not equal(after.get(each.path), each.value):
            yield PlannedPoolValue(each.path, show_value(each.value), each.pool_type, is_taken=False)


def _restarts(events: Iterable[Mapping[str, Any]]) -> Iterable[str]:
    for each in events:
        if each.get("type") == "service" and each.get("outcome") == "refreshed":
            yield str(each.get("name"))
