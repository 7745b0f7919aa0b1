"""Prints the report of a run from its JSON document, for history, jobs and plans. Same format as `run_display`."""

from __future__ import annotations

import sys
from collections.abc import Mapping

from mainstay.cli.views.run_display import Palette, event_lines, indented, printable, summary_line
from mainstay.foundation import Any

COUNTED = ("changed", "refreshed", "failed", "unmet", "skipped", "stable")
EXPECTED = ("skipped", "stable")
# The report may come from an agent.
DEEPEST_INDENT = 10


class ReportedEvent:
    """The event of one resource from a report document. Tolerates missing keys: the report may come from an agent."""

    def __init__(self, document: Mapping[str, Any]) -> None:
        within = document.get("within")
        depth = min(len(within), DEEPEST_INDENT) if isinstance(within, list) else 0
        self.name = "  " * depth + f"{document.get('type', '?')}#{document.get('name', '?')}"
        self.outcome = str(document.get("outcome") or "?")
        self.noop_message = _text_or_none(document.get("noop_message"))
        self.reason = _text_or_none(document.get("reason"))
        self.output = _text_or_none(document.get("output"))
        self.diff = _text_or_none(document.get("diff"))
        self.errors = tuple(str(each) for each in document.get("errors") or ())
        self.warnings = tuple(str(each) for each in document.get("warnings") or ())


def _text_or_none(value: object) -> str | None:
    return None if value is None else str(value)


def print_report(document: Mapping[str, Any], *, verbose: bool) -> None:
    """Prints a line per resource and the summary; stable and skipped resources only if `verbose`."""
    palette = Palette(sys.stdout)
    events = [ReportedEvent(each) for each in document.get("events") or () if isinstance(each, dict)]
    for event in events:
        if verbose or event.outcome not in EXPECTED or event.warnings:
            print("\n".join(event_lines(palette, event.name, event)))
    for error in document.get("errors") or ():
        print(f"{palette.paint('error:', 'failed')} {indented(str(error))}")
    print(_summary_of(palette, document, events))


def print_host_report(report: Any, *, verbose: bool) -> None:
    """Prints what an agent reported, if anything, below an empty line. A document without events is printed as a tree."""
    if isinstance(report, dict) and isinstance(report.get("events"), list):
        print()
        print_report(report, verbose=verbose)
    elif report is not None:
        from mainstay.cli.views.tables import tree_lines

        print("\n".join(["", *tree_lines({"report": report}, "")]))


def _summary_of(palette: Palette, document: Mapping[str, Any], events: list[ReportedEvent]) -> str:
    summary: Any = document.get("summary")
    reported = summary if isinstance(summary, dict) else {}
    numbers: dict[str, Any] = {key: each for key, each in reported.items() if isinstance(each, (int, float))}
    # Count events only as a fallback: the history stores no events for stable resources.
    counts = {key: numbers.get(key, sum(event.outcome == key for event in events)) for key in COUNTED}
    kind = "Dry run, nothing was touched" if document.get("noop") else "Run"
    stopped = f", stopped: {printable(str(document['stopped_by']))}" if document.get("stopped_by") else ""
    return f"{kind}: {summary_line(palette, counts, numbers.get('duration_seconds'))}{stopped}"
