"""How the push to each host ended, and the exit code of all. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from mainstay.push.event_spool import EventSpool

EXIT_FAILED, EXIT_NOTHING_PUSHED, EXIT_LOCKED = 1, 2, 3
LOCKED, STOPPED, DOES_NOT_LOAD = "locked", "stopped", "does_not_load"


class HostFault(Exception):
    """Why a host has no complete report. `kind` is for programs, the text for people."""

    def __init__(self, kind: str, message: str) -> None:
        super().__init__(message)
        self.kind = kind
        self.message = message

    def as_json(self) -> dict[str, Any]:
        return {"error": {"kind": self.kind, "message": self.message}}


class HostOutcome:
    """How the push to one host ended: with the end of a report, a fault, or both if the host died in the middle."""

    def __init__(self, host: str, run_id: str) -> None:
        self.host = host
        self.run_id = run_id
        self.fault: HostFault | None = None
        # The counts of the report; None: the run did not end.
        self.summary: dict[str, Any] | None = None
        self.ending: Mapping[str, Any] = {}
        # Events of resources that are not stable, as they happened.
        self.events: EventSpool | None = None
        # All events with complete states, for a whole report.
        self.whole_events: EventSpool | None = None
        self.stable: list[str] = []
        self.messages: list[str] = []
        self.duration_seconds = 0.0
        # Bytes of program and manifest that the host lacked.
        self.sent_bytes = 0

    @property
    def has_failed(self) -> bool:
        if self.fault is not None:
            return self.fault.kind != LOCKED
        counts = self.summary or {}
        stopped = self.ending.get("stopped_by") is not None
        return bool(counts.get("failed") or counts.get("unmet") or self.ending.get("errors") or stopped)

    @property
    def result(self) -> str:
        """One word for the table."""
        if self.fault is not None:
            return {"does_not_load": "faulty"}.get(self.fault.kind, self.fault.kind.replace("_", " "))
        counts = self.summary or {}
        if self.has_failed:
            return "stopped" if self.ending.get("stopped_by") else "failed"
        return "changed" if counts.get("changed") or counts.get("refreshed") else "stable"


def exit_code(outcomes: Iterable[HostOutcome]) -> int:
    found = list(outcomes)
    faults = [outcome.fault for outcome in found]
    if found and all(fault is not None and fault.kind == DOES_NOT_LOAD for fault in faults):
        return EXIT_NOTHING_PUSHED
    if any(outcome.has_failed for outcome in found):
        return EXIT_FAILED
    return EXIT_LOCKED if any(fault is not None for fault in faults) else 0
