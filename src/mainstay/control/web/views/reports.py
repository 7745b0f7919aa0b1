"""Reports of jobs and messages about drift as resources with their diffs, within bounds. Pure.

A report is a document of an agent: any member may be missing or have any type."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import msgspec

from mainstay.control.operations.machinery.consumer_view import OUTPUT_MARK
from mainstay.control.web.views.diffs import DiffBudget, ShownDiff, read_diff
from mainstay.control.web.views.formatting import plural
from mainstay.foundation.text import keep_end, keep_ends

# The most interesting outcome first.
OUTCOMES = ("failed", "unmet", "changed", "refreshed", "skipped", "stable")
MAX_RESOURCES = 200
MAX_STABLE = 500
MAX_TEXT = 4000
MAX_MESSAGES = 20
MAX_DOCUMENT = 20_000
# More is not a duration but a wrong number.
MAX_SECONDS = 366 * 86_400
# A resource begins a new part of a message about drift; the lines of its diff begin with other characters.
_RESOURCE = re.compile(r"([a-z_]{1,100})#(.*?): (.*)")


@dataclass(frozen=True, slots=True)
class ShownResource:
    type: str
    name: str
    outcome: str
    message: str = ""
    errors: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    output: str = ""
    diff: ShownDiff | None = None
    seconds: float | None = None
    # The `apply` resources whose manifest contains it, the outermost first; empty: the manifest itself does.
    within: str = ""

    @property
    def has_more(self) -> bool:
        return bool(self.errors or self.warnings or self.output or self.diff)


@dataclass(frozen=True, slots=True)
class ShownReport:
    resources: tuple[ShownResource, ...] = ()
    # Ids of resources that needed no change.
    stable: tuple[str, ...] = ()
    counts: Mapping[str, int] = field(default_factory=dict)
    # Resources that are not shown.
    left_out: int = 0
    # Whether the agent left out resources because the report was too large.
    shortened: bool = False
    # The whole report as text, if it has another form than that of Mainstay's agent.
    document: str = ""


def read_report(report: object, budget: DiffBudget) -> ShownReport:
    events = report.get("events") if isinstance(report, Mapping) else None
    if not isinstance(report, Mapping) or not isinstance(events, list):
        return ShownReport(document=cut(msgspec.json.format(msgspec.json.encode(report)).decode(), MAX_DOCUMENT))
    known = [event for event in events if isinstance(event, Mapping)]
    stable = [event for event in known if event.get("outcome") == "stable"]
    rest = sorted((event for event in known if event.get("outcome") != "stable"), key=_rank)
    counts = Counter(_text(event.get("outcome")) for event in known)
    return ShownReport(
        resources=tuple(_resource(event, budget) for event in rest[:MAX_RESOURCES]),
        stable=tuple(_identity(each) for each in stable[:MAX_STABLE]),
        counts=summary_counts(report.get("summary")) or {name: counts[name] for name in OUTCOMES if counts[name]},
        left_out=max(0, len(rest) - MAX_RESOURCES) + max(0, len(stable) - MAX_STABLE),
        shortened=report.get("shortened") is True,
    )


def repeats_report(message: str, report: object) -> bool:
    """Whether the report has all that a message says: the resource of its first line, and every line of output."""
    first, *rest = message.split("\n")
    known = whole_output("", report)
    output = [line.removeprefix(OUTPUT_MARK) for line in rest if line.startswith(OUTPUT_MARK)]
    name, _, error = first.partition(": ")
    return bool(name) and f"{name}\n{error}" in known and all(line in known for line in output)


def whole_output(message: str, report: object) -> str:
    """All that the agent sent about a failure: the message, then the errors and the output of each failed resource."""
    events = report.get("events") if isinstance(report, Mapping) else None
    parts = [message]
    for event in events if isinstance(events, list) else ():
        if isinstance(event, Mapping) and event.get("outcome") == "failed":
            texts = [*_strings(event.get("errors")), event.get("output")]
            parts.append("\n".join([_identity(event), *(each for each in texts if isinstance(each, str))]))
    return "\n\n".join(part for part in parts if part)


def summary_counts(summary: object) -> dict[str, int]:
    """The numbers of a report's summary that are not zero."""
    if not isinstance(summary, Mapping):
        return {}
    found = {name: summary.get(name) for name in OUTCOMES}
    return {name: count for name, count in found.items() if isinstance(count, int) and count > 0}


def count_words(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{count:,} {name}" for name, count in counts.items())


def read_drift(message: str, budget: DiffBudget) -> tuple[ShownResource, ...]:
    """The resources of a condition `InSync`. Text before the first resource becomes one without a name."""
    parts: list[tuple[tuple[str, str, str], list[str]]] = []
    for line in message.split("\n"):
        found = _RESOURCE.fullmatch(line)
        if found is not None:
            parts.append(((found[1], found[2], found[3]), []))
        elif parts:
            parts[-1][1].append(line)
        elif line:
            parts.append((("", line, ""), []))
    return tuple(
        ShownResource(
            kind,
            cut(name),
            "changed",
            cut(text),
            diff=read_diff("\n".join(lines), budget) if any(lines) else None,
        )
        for (kind, name, text), lines in parts[:MAX_RESOURCES]
    )


def cut(text: str, most: int = MAX_TEXT) -> str:
    return text if len(text) <= most else f"{text[:most]} … {plural(len(text) - most, 'more character')}"


def _rank(event: Mapping[str, object]) -> int:
    outcome = event.get("outcome")
    return OUTCOMES.index(outcome) if isinstance(outcome, str) and outcome in OUTCOMES else len(OUTCOMES)


def _resource(event: Mapping[str, object], budget: DiffBudget) -> ShownResource:
    diff = event.get("diff")
    return ShownResource(
        type=_text(event.get("type")),
        name=_text(event.get("name")),
        outcome=_text(event.get("outcome")) or "unknown",
        message=_text(event.get("noop_message") if event.get("noop") is True else event.get("reason")),
        errors=tuple(keep_ends(each, MAX_TEXT) for each in _strings(event.get("errors"))),
        warnings=_texts(event.get("warnings")),
        output=keep_end(output, MAX_TEXT) if isinstance(output := event.get("output"), str) else "",
        diff=read_diff(diff, budget) if isinstance(diff, str) and diff else None,
        seconds=_seconds(event.get("duration_seconds")),
        within=_within(event),
    )


def _identity(event: Mapping[str, object]) -> str:
    within = _within(event)
    return f"{_text(event.get('type'))}#{_text(event.get('name'))}" + (f" in {within}" if within else "")


def _within(event: Mapping[str, object]) -> str:
    return " › ".join(_texts(event.get("within")))


def _seconds(value: object) -> float | None:
    if not isinstance(value, int | float) or isinstance(value, bool):
        return None
    return float(value) if 0 <= value <= MAX_SECONDS else None


def _texts(value: object) -> tuple[str, ...]:
    return tuple(_text(each) for each in _strings(value))


def _strings(value: object) -> list[str]:
    if not isinstance(value, Sequence) or isinstance(value, str):
        return []
    return [each if isinstance(each, str) else "" for each in value[:MAX_MESSAGES]]


def _text(value: object) -> str:
    return cut(value) if isinstance(value, str) else ""
