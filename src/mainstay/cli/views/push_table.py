"""Shows a push: one line per host as it finishes, running hosts below on a terminal, then what the hosts report.

All text of hosts is escaped. Text that is the same on several hosts is shown once."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from time import monotonic

from mainstay.cli.views.reports import ReportedEvent
from mainstay.cli.views.run_display import Palette, counted, event_lines, indented, printable
from mainstay.cli.views.tables import truncate
from mainstay.converge.report import SKIPPED, STABLE
from mainstay.push.host_push import HostPush
from mainstay.push.outcome import HostOutcome
from mainstay.push.runner import PushObserver

WIDEST_NAME = 40
RESULT_WIDTH = 11
COUNTS = (("CHANGED", ("changed", "refreshed")), ("FAILED", ("failed", "unmet")), ("STABLE", ("stable",)))
RESULT_COLOURS = {"stable": "stable", "changed": "changed", "locked": "unmet"}
# A line about a slow host on a pipe; then after twice the time, and so on.
SLOW_SECONDS = 30.0
MOST_BLOCKS = 200
# Of the events of one host.
MOST_SHOWN_CHARACTERS = 4_000_000
MOST_NAMES_SHOWN = 8


class PushTable(PushObserver):
    def __init__(self, hosts: Sequence[str], *, verbose: bool) -> None:
        self.stream = sys.stdout
        self.palette = Palette(self.stream)
        self.verbose = verbose
        self.width = max(4, min(WIDEST_NAME, max(len(host) for host in hosts)))
        self.total = len(hosts)
        self.done = 0
        self.is_live = self.palette.is_live
        self._live_lines = 0
        self._slow_after: dict[str, float] = {}
        self._print(self.palette.paint(self._line("HOST", "RESULT", [name for name, _ in COUNTS], "SECONDS"), "bold"))

    # ---- notifications ----
    def finished(self, push: HostPush) -> None:
        self.done += 1
        self._clear_live()
        self._print(self._row(push.outcome))

    def tick(self, running: Sequence[HostPush]) -> None:
        if self.is_live:
            self._clear_live()
            self._draw_live(running)
        else:
            self._report_slow(running)

    # ---- lines ----
    def _row(self, outcome: HostOutcome) -> str:
        counts = outcome.summary or {}
        cells = [str(sum(counts.get(key, 0) for key in keys)) if counts else "-" for _, keys in COUNTS]
        result = self.palette.paint(f"{printable(outcome.result):<{RESULT_WIDTH}}", self._colour(outcome))
        return self._line(outcome.host, result, cells, f"{outcome.duration_seconds:.1f}")

    def _colour(self, outcome: HostOutcome) -> str:
        return RESULT_COLOURS.get(outcome.result, "failed")

    def _line(self, host: str, result: str, counts: Sequence[str], seconds: str) -> str:
        shown = printable(host)
        if len(shown) > self.width:
            shown = f"{shown[: self.width - 1]}…"
        cells = "  ".join(f"{cell:>7}" for cell in (*counts, seconds))
        return f"{shown:<{self.width}}  {result:<{RESULT_WIDTH}}  {cells}"

    def _draw_live(self, running: Sequence[HostPush]) -> None:
        try:
            size = os.get_terminal_size(self.stream.fileno())
            columns, rows = size.columns or 80, size.lines or 24
        except OSError:
            columns, rows = 80, 24
        shown = sorted(running, key=lambda push: push.started_at)[: max(1, rows - 4)]
        # A line that wraps would not be cleared as a whole.
        lines = [truncate(self._progress(push).replace("\t", " "), columns - 1) for push in shown]
        lines.append(truncate(f"{self.done}/{self.total} done, {len(running)} running", columns - 1))
        self.stream.write("".join(f"{self.palette.paint(line, 'dim')}\n" for line in lines))
        self.stream.flush()
        self._live_lines = len(lines)

    def _clear_live(self) -> None:
        if self._live_lines:
            self.stream.write(f"\033[{self._live_lines}A\033[J")
            self._live_lines = 0

    def _progress(self, push: HostPush) -> str:
        seconds = monotonic() - push.started_at
        where = f"  [{push.position + 1}/{push.total}] {printable(push.resource)}" if push.resource else ""
        return f"{printable(push.outcome.host):<{self.width}}  {push.phase:<{RESULT_WIDTH}}  {seconds:.0f} s{where}"

    def _report_slow(self, running: Sequence[HostPush]) -> None:
        for push in running:
            limit = self._slow_after.get(push.outcome.host, SLOW_SECONDS)
            if monotonic() - push.started_at > limit:
                self._slow_after[push.outcome.host] = limit * 2
                self._print(self._progress(push))

    def _print(self, text: str) -> None:
        self.stream.write(f"{text}\n")
        self.stream.flush()

    # ---- after the push ----
    def finish(self, outcomes: Sequence[HostOutcome], seconds: float, *, noop: bool) -> None:
        self._clear_live()
        blocks = _same_blocks(outcomes, self._blocks)
        for names, lines in blocks[:MOST_BLOCKS]:
            self._print(f"\n{self.palette.paint(_names(names), 'bold')}")
            self._print("\n".join(lines))
        if len(blocks) > MOST_BLOCKS:
            self._print(f"\n… and {len(blocks) - MOST_BLOCKS} more; `mainstay history` lists the reports")
        results: dict[str, int] = {}
        for outcome in outcomes:
            results[outcome.result] = results.get(outcome.result, 0) + 1
        found = ", ".join(f"{count} {result}" for result, count in results.items())
        kind = "Dry run, nothing was touched" if noop else "Push"
        hosts = counted(len(outcomes), "host")
        sent = f"{sum(outcome.sent_bytes for outcome in outcomes) / 1000:,.1f} kB sent"
        self._print(f"\n{kind}: {hosts}: {found} in {seconds:.1f} s, {sent}")

    def _blocks(self, outcome: HostOutcome) -> Iterator[str]:
        """What one host reports, in blocks that may be the same on other hosts."""
        for message in outcome.messages:
            yield indented(message)
        yield from self._event_blocks(outcome)
        if outcome.fault is not None:
            yield f"{self.palette.paint(f'{outcome.result}:', self._colour(outcome))} {indented(outcome.fault.message)}"
        for error in outcome.ending.get("errors", ()):
            yield f"{self.palette.paint('error:', 'failed')} {indented(error)}"
        for warning in outcome.ending.get("warnings", ()):
            yield f"{self.palette.paint('warning:', 'changed')} {indented(warning)}"

    def _event_blocks(self, outcome: HostOutcome) -> Iterator[str]:
        left = MOST_SHOWN_CHARACTERS
        for event in outcome.events.events() if outcome.events is not None else ():
            reported = ReportedEvent(event)
            if self.verbose or reported.outcome not in (STABLE, SKIPPED) or reported.warnings:
                text = "\n".join(event_lines(self.palette, reported.name, reported))
                left -= len(text)
                if left < 0:
                    yield f"… more events are not shown; `mainstay history show {outcome.run_id}` prints them"
                    return
                yield text


def _same_blocks(
    outcomes: Iterable[HostOutcome], blocks_of: Callable[[HostOutcome], Iterable[str]]
) -> list[tuple[tuple[str, ...], list[str]]]:
    """Blocks with the hosts that report them; neighbouring blocks of the same hosts are joined."""
    hosts_of: dict[str, list[str]] = {}
    for outcome in outcomes:
        for block in blocks_of(outcome):
            hosts = hosts_of.setdefault(block, [])
            if outcome.host not in hosts:
                hosts.append(outcome.host)
    by_hosts: dict[tuple[str, ...], list[str]] = {}
    for block, names in hosts_of.items():
        by_hosts.setdefault(tuple(names), []).append(block)
    return list(by_hosts.items())


def _names(hosts: Sequence[str]) -> str:
    shown = ", ".join(printable(host) for host in hosts[:MOST_NAMES_SHOWN])
    more = f" and {len(hosts) - MOST_NAMES_SHOWN} more" if len(hosts) > MOST_NAMES_SHOWN else ""
    return f"{shown}{more}"
