"""The result of a run: outcomes, one event per resource, the report of all, and their JSON.

No code here touches a host. `apply.py` fills in events; `history.py` and the command line write reports.
"""

from __future__ import annotations

from mainstay.converge.value_kinds import conceal
from mainstay.foundation import Struct

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import Any

    from mainstay.converge.contract import Change, Resource, State
    from mainstay.converge.host.files import Files

STABLE, CHANGED, REFRESHED = "stable", "changed", "refreshed"
SKIPPED, UNMET, FAILED = "skipped", "unmet", "failed"
NOT_REACHED = "not reached"
OUTCOMES = (STABLE, CHANGED, REFRESHED, SKIPPED, UNMET, FAILED)


class Event:
    """The result of one resource."""

    refreshed: bool = False
    unmet: tuple[str, ...] = ()
    # The diff as if the file were new. None: all that the diff shows was written by this service.
    consumer_diff: str | None = None

    def __init__(self, resource: Resource) -> None:
        # Set on the instance, because look-ups on the class take ten times as long and every event needs these.
        self.resource = resource
        self.outcome = STABLE
        self.provider: str | None = None
        self.noop = False
        self.changed = False
        self.noop_message: str | None = None
        self.reason: str | None = None
        self.output: str | None = None
        self.diff: str | None = None
        self.state: State | None = None
        self.duration_seconds = 0.0
        self.errors: tuple[str, ...] = ()
        # What kind of failure the first error is; None: no failure.
        self.error_kind: str | None = None
        self.warnings: tuple[str, ...] = ()

    def follow(self, entry: Event) -> None:
        """Takes the outcome of the `apply` resource around it, whose manifest is not applied."""
        name, reason = entry.resource.id, entry.reason or ""
        if entry.outcome == FAILED:
            self.skip(f"{NOT_REACHED}: {name} failed")
        elif entry.outcome == SKIPPED:
            self.skip(reason if reason.startswith(NOT_REACHED) else f"{name} is skipped: {reason}")
        else:
            self.outcome, self.changed = entry.outcome, entry.changed
            self.unmet, self.reason, self.noop_message = entry.unmet, entry.reason, entry.noop_message

    def skip(self, reason: str) -> None:
        self.outcome = SKIPPED
        self.reason = reason

    def fail(self, message: str, kind: str) -> None:
        self.outcome = FAILED
        self.error_kind = self.error_kind or kind
        self.errors = (*self.errors, message)

    def mark_changed(self, changes: Iterable[Change]) -> None:
        self.changed = True
        self.outcome = CHANGED
        for change in changes:
            if change.refresh:
                self.refreshed = True
                self.outcome = REFRESHED

    def as_json(self) -> dict[str, Any]:
        resource = self.resource
        return {
            "type": resource.type,
            "name": resource.name,
            "alias": resource.alias,
            "provider": self.provider,
            "ensure": resource.ensure,
            "outcome": self.outcome,
            "changed": self.changed,
            "refreshed": self.refreshed,
            "failed": self.outcome == FAILED,
            "skipped": self.outcome == SKIPPED,
            "noop": self.noop,
            "noop_message": self.noop_message,
            "reason": self.reason,
            "errors": list(self.errors),
            "warnings": list(self.warnings),
            "unmet": list(self.unmet),
            "output": self.output,
            "duration_seconds": round(self.duration_seconds, 6),
            "diff": self.diff,
            "within": list(resource.within),
            "error_kind": self.error_kind,
            "state": None if self.state is None else self.state.as_json(),
        }


class Report(Struct):
    """The result of a run."""

    run_id: str
    manifest: str
    noop: bool
    events: list[Event] = []
    outputs: dict[str, Any] | None = None
    output_errors: list[str] = []
    warnings: list[str] = []
    duration_seconds: float = 0.0
    stopped_by: str | None = None
    owed: dict[str, list[str]] = {}

    def summary(self) -> dict[str, Any]:
        counts = dict.fromkeys(OUTCOMES, 0)
        for event in self.events:
            counts[event.outcome] += 1
        return {"total": len(self.events), **counts, "duration_seconds": round(self.duration_seconds, 6)}

    @property
    def failed(self) -> bool:
        return bool(self.output_errors) or any(event.outcome in (FAILED, UNMET) for event in self.events)

    @property
    def changed(self) -> bool:
        return any(event.changed for event in self.events)

    def complete(self, files: Files) -> None:
        """Adds to the states what only a report needs. Call it before `as_json`."""
        for event in self.events:
            if event.state is not None:
                event.state.complete(files)
        files.forget_directories()

    def as_json(self) -> dict[str, Any]:
        before, after = self.around_events()
        return {**before, "events": [event.as_json() for event in self.events], **after}

    def around_events(self) -> tuple[dict[str, Any], dict[str, Any]]:
        """The parts of the JSON document before and after the events."""
        before = {"run_id": self.run_id, "manifest": self.manifest, "noop": self.noop}
        return before, {"outputs": conceal(self.outputs), "summary": self.summary()}


class Observer:
    """Receives notifications during a run. The default ignores them."""

    def run_started(self, total: int) -> None:
        """The manifest is loaded and the run starts."""

    def resource_started(self, index: int, resource: Resource) -> None:
        """The run has reached a resource."""

    def event(self, index: int, event: Event) -> None:
        """A resource has its event."""

    def revised(self, index: int, event: Event) -> None:
        """An event that was already passed to `event` has failed in the re-check at the end of the run."""
        self.event(index, event)

    def about_to_wait(self) -> None:
        """A command is about to run and may take long: pending output should be shown now."""

    def output(self, resource: Resource, line: str) -> None:
        """A command with `logoutput` has printed a line."""

    def message(self, text: str) -> None:
        """The `pre_message` or `post_message` of the manifest."""
