"""Shows a run from its JSON document, as the run itself was shown: for the history, for jobs and for plans."""

from __future__ import annotations

import sys

from mainstay.cli.display import Palette, event_lines, indented, summary_line

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

COUNTED = ("changed", "refreshed", "failed", "unmet", "skipped", "stable")
EXPECTED = ("skipped", "stable")


class ToldEvent:
    """What became of one resource, as a document tells it. It may come from afar: what is missing is nothing."""

    def __init__(self, document: Mapping[str, Any]) -> None:
        self.name = f"{document.get('type', '?')}#{document.get('name', '?')}"
        self.outcome = str(document.get("outcome") or "?")
        self.noop_message = text_or_none(document.get("noop_message"))
        self.reason = text_or_none(document.get("reason"))
        self.output = text_or_none(document.get("output"))
        self.diff = text_or_none(document.get("diff"))
        self.errors = tuple(str(each) for each in document.get("errors") or ())
        self.warnings = tuple(str(each) for each in document.get("warnings") or ())


def text_or_none(value: object) -> str | None:
    return None if value is None else str(value)


def print_report(document: Mapping[str, Any], *, verbose: bool) -> None:
    """A line per resource, those that are as wanted only if `verbose`, and the summary."""
    palette = Palette(sys.stdout)
    events = [ToldEvent(each) for each in document.get("events") or () if isinstance(each, dict)]
    for event in events:
        if verbose or event.outcome not in EXPECTED or event.warnings:
            print("\n".join(event_lines(palette, event.name, event)))
    for error in document.get("errors") or ():
        print(f"{palette.paint('error:', 'failed')} {indented(str(error))}")
    print(summary_of(palette, document, events))


def summary_of(palette: Palette, document: Mapping[str, Any], events: list[ToldEvent]) -> str:
    counts = {word: sum(event.outcome == word for event in events) for word in COUNTED}
    told = document.get("summary")
    seconds = told.get("duration_seconds") if isinstance(told, dict) else None
    kind = "Dry run, nothing was touched" if document.get("noop") else "Run"
    return f"{kind}: {summary_line(palette, counts, seconds if isinstance(seconds, (int, float)) else None)}"
