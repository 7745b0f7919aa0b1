"""Reports of hosts as documents: for the history of this machine, and for programs."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any

from mainstay.converge.history import History
from mainstay.converge.host.state import StateDirectory
from mainstay.converge.json_lines import finite
from mainstay.converge.report import OUTCOMES
from mainstay.push.outcome import HostOutcome


def keep_reports(outcomes: Sequence[HostOutcome], state: StateDirectory, manifest: str, *, noop: bool) -> None:
    """Stores the report of every host whose run began, also an incomplete one."""
    history = History(state)
    for outcome in outcomes:
        if outcome.events is not None:
            history.keep(_kept(outcome, manifest, noop=noop), outcome.events.lines())


def _kept(outcome: HostOutcome, manifest: str, *, noop: bool) -> dict[str, Any]:
    faults = [] if outcome.fault is None else [outcome.fault.message]
    return {
        "run_id": outcome.run_id,
        "host": outcome.host,
        "manifest": manifest,
        "noop": noop,
        "stopped_by": outcome.ending.get("stopped_by"),
        "summary": outcome.summary or _incomplete_summary(outcome),
        "errors": [*outcome.ending.get("errors", ()), *faults],
        "stable": outcome.stable,
    }


def _incomplete_summary(outcome: HostOutcome) -> dict[str, Any]:
    counts = dict.fromkeys(OUTCOMES, 0)
    for event in outcome.events.events() if outcome.events is not None else ():
        counts[event["outcome"]] += 1
    return {"total": sum(counts.values()), **counts, "duration_seconds": round(outcome.duration_seconds, 6)}


def document_of_hosts(outcomes: Sequence[HostOutcome], manifest: str, *, noop: bool) -> Iterator[bytes]:
    """Yields `{"hosts": {NAME: report or error}}`, one event per line. Only ASCII: hosts are not trusted."""
    yield b'{"hosts": {'
    for number, outcome in enumerate(outcomes):
        yield (",\n" if number else "\n").encode() + json.dumps(outcome.host).encode() + b": "
        if outcome.fault is not None:
            yield json.dumps(outcome.fault.as_json()).encode()
            continue
        before = {"run_id": outcome.run_id, "manifest": manifest, "noop": noop}
        yield json.dumps(before)[:-1].encode() + b', "events": ['
        for index, line in enumerate(outcome.whole_events.lines() if outcome.whole_events is not None else ()):
            yield (",\n" if index else "\n").encode() + line.encode()
        after = {"outputs": finite(outcome.ending.get("outputs")), "summary": outcome.summary}
        yield b"\n], " + json.dumps(after)[1:].encode()
    yield b"\n}}\n"
