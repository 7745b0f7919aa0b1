"""Prints a run as it happens: coloured lines and a progress line on a terminal, plain lines in a pipe."""

from __future__ import annotations

import os
import sys

from mainstay.converge.host.clock import monotonic
from mainstay.converge.report import CHANGED, FAILED, NOT_REACHED, REFRESHED, SKIPPED, STABLE, UNMET, Observer
from mainstay.converge.value_kinds import conceal, to_text

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Protocol, TextIO

    from mainstay.converge.contract import Resource
    from mainstay.converge.report import Event, Report
    from mainstay.foundation.faults import Fault

    class ShownEvent(Protocol):
        """What is shown of an event, of a run or of a report."""

        outcome: str
        noop_message: str | None
        reason: str | None
        output: str | None
        diff: str | None
        errors: tuple[str, ...]
        warnings: tuple[str, ...]


COLOURS = {
    STABLE: "32",
    CHANGED: "33",
    REFRESHED: "36",
    SKIPPED: "90",
    UNMET: "35",
    FAILED: "31",
    "+": "32",
    "-": "31",
    "@": "36",
    "bold": "1",
    "dim": "2",
}
WIDTH = 9
# Heads the output of a command that is shown line by line.
RUNNING = "running"
FLUSH_INTERVAL_SECONDS = 0.1
MAX_BUFFERED_CHARACTERS = 64 * 1024


class Palette:
    """Colours text if the stream is a terminal and NO_COLOR is not set."""

    def __init__(self, stream: TextIO) -> None:
        # Whether lines can be replaced.
        self.is_live = stream.isatty() and os.environ.get("TERM") != "dumb"
        self.on = self.is_live and not os.environ.get("NO_COLOR")

    def paint(self, text: str, colour: str) -> str:
        return f"\033[{COLOURS[colour]}m{text}\033[0m" if self.on and colour in COLOURS else text


class RunDisplay(Observer):
    """Prints each event of a run. The run continues if the output cannot be written."""

    def __init__(self, *, verbose: bool) -> None:
        self.stream = sys.stdout
        self.palette = Palette(self.stream)
        self.verbose = verbose
        self.total = 0
        self.live = self.palette.is_live
        self.shown_progress = False
        # The resource whose output was shown line by line; its event repeats none of it.
        self.streamed: str | None = None
        # Buffered here because the stream may be unbuffered (PYTHONUNBUFFERED).
        self.buffer: list[str] = []
        self.buffered_characters = 0
        self.flushed_at = 0.0
        # The error that ended the output; raised after the run.
        self.write_error: OSError | None = None

    def _write(self, text: str) -> None:
        self.buffer.append(text)
        self.buffered_characters += len(text)
        if self.buffered_characters > MAX_BUFFERED_CHARACTERS:
            self._flush()

    def _flush(self) -> None:
        if self.write_error is None and self.buffer:
            try:
                self.stream.write("".join(self.buffer))
                self.stream.flush()
            except OSError as error:
                self.write_error = error
        self.buffer.clear()
        self.buffered_characters = 0

    def _flush_if_due(self) -> None:
        """Flushes each line on a terminal; in a pipe, lines in quick succession are written together."""
        now = monotonic()
        if self.live or now - self.flushed_at > FLUSH_INTERVAL_SECONDS:
            self._flush()
            self.flushed_at = now

    def about_to_wait(self) -> None:
        self._flush()

    def run_started(self, total: int) -> None:
        self.total = total

    def resource_started(self, index: int, resource: Resource) -> None:
        # Updating the line for each of ten thousand resources would take longer than checking them.
        if not self.live or (self.total > 200 and index % 50):
            return
        width = self._terminal_width()
        line = f"[{index + 1}/{self.total}] {printable(resource.id)}"
        self._write("\r\033[K" + self.palette.paint(line[: width - 1], "dim"))
        self._flush()
        self.shown_progress = True

    def _terminal_width(self) -> int:
        try:
            return os.get_terminal_size(self.stream.fileno()).columns
        except OSError:
            return 80

    def _clear_progress(self) -> None:
        if self.shown_progress:
            self._write("\r\033[K")
            self.shown_progress = False

    def message(self, text: str) -> None:
        self._clear_progress()
        self._write(printable(text.rstrip("\n"), keep_newlines=True) + "\n")
        self._flush_if_due()

    def output(self, resource: Resource, line: str) -> None:
        self._clear_progress()
        if self.streamed != resource.id:
            self.streamed = resource.id
            self._write(f"{RUNNING:<{WIDTH}} {self.palette.paint(printable(resource.id), 'bold')}\n")
        self._write(f"  {self.palette.paint('|', 'dim')} {printable(line)}\n")
        self._flush_if_due()

    def event(self, index: int, event: Event) -> None:
        if not self.verbose and self._is_expected(event):
            return
        self._clear_progress()
        was_streamed = self.streamed == event.resource.id
        lines = event_lines(self.palette, _nested_name(event.resource), event, with_output=not was_streamed)
        self._write("\n".join((*lines, "")))
        self._flush_if_due()

    def _is_expected(self, event: Event) -> bool:
        """Stable and deliberately skipped resources only appear in the summary."""
        if event.outcome not in (STABLE, SKIPPED) or event.warnings:
            return False
        return event.outcome == STABLE or not (event.reason or "").startswith(NOT_REACHED)

    def finish(self, report: Report) -> None:
        self._clear_progress()
        for error in report.output_errors:
            self._write(f"{self.palette.paint('error:', FAILED)} {indented(error)}\n")
        for name, value in (report.outputs or {}).items():
            self._write(f"output    {printable(name)} = {printable(to_text(conceal(value)))}\n")
        self._write(self._summary(report) + "\n")
        self._flush()

    def _summary(self, report: Report) -> str:
        counts = report.summary()
        kind = "Dry run, nothing was touched" if report.noop else "Run"
        stopped = f", stopped: {report.stopped_by}" if report.stopped_by else ""
        return f"{kind}: {summary_line(self.palette, counts, counts['duration_seconds'])}{stopped}"


def _nested_name(resource: Resource) -> str:
    """Resources of an applied manifest are indented; the line of their `apply` resource follows them."""
    return "  " * len(resource.within) + resource.id


def summary_line(palette: Palette, counts: Mapping[str, int], seconds: float | None) -> str:
    """Counts per outcome, and the duration if known."""
    shown = [
        palette.paint(f"{counts[outcome]} {outcome}", outcome)
        for outcome in (CHANGED, REFRESHED, FAILED, UNMET, SKIPPED, STABLE)
        if counts[outcome]
    ]
    return f"{', '.join(shown) or 'nothing to do'}" + ("" if seconds is None else f" in {seconds:.2f} s")


def event_lines(palette: Palette, name: str, event: ShownEvent, *, with_output: bool = True) -> list[str]:
    """The line of one resource, followed by its errors, warnings, output and diff."""
    message = event.noop_message or ""
    reason = event.reason or ""
    detail = f"{message}: {reason}" if message and reason and reason not in message else message or reason
    shown = f"  {detail}" if detail else ""
    if palette.on:
        outcome = palette.paint(f"{printable(event.outcome):<{WIDTH}}", event.outcome)
        lines = [f"{outcome} {palette.paint(printable(name), 'bold')}{printable(shown)}"]
    else:
        lines = [printable(f"{event.outcome:<{WIDTH}} {name}{shown}")]
    if not (event.errors or event.warnings or event.output or event.diff):
        return lines
    lines += [f"  {palette.paint('error:', FAILED)} {indented(text)}" for text in event.errors]
    lines += [f"  {palette.paint('warning:', CHANGED)} {indented(text)}" for text in event.warnings]
    if event.outcome == FAILED and event.output and with_output:
        lines += [f"  {palette.paint('|', 'dim')} {printable(line)}" for line in _tail(event.output, 20)]
    if event.diff:
        lines += [diff_line(palette, line) for line in event.diff.split("\n")]
    return lines


def diff_line(palette: Palette, line: str) -> str:
    return "    " + palette.paint(printable(line), line[:1])


def printable(text: str, *, keep_newlines: bool = False) -> str:
    """Escapes control characters, so that text cannot control the terminal."""
    if text.isprintable():
        return text
    kept = "\t\n" if keep_newlines else "\t"
    return "".join(
        character if character.isprintable() or character in kept else character.encode("unicode_escape").decode()
        for character in text
    )


def counted(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def indented(text: str) -> str:
    return printable(text, keep_newlines=True).replace("\n", "\n         ")


def _tail(text: str, count: int) -> list[str]:
    lines = text.rstrip("\n").split("\n")
    return lines if len(lines) <= count else [f"[… {len(lines) - count} lines before]", *lines[-count:]]


def print_faults(faults: Sequence[Fault], limit: int = 50) -> None:
    palette = Palette(sys.stderr)
    for fault in faults[:limit]:
        place, _, message = str(fault).partition(": ")
        if fault.line is None:
            place, message = fault.file, fault.message
        print(f"{palette.paint(printable(place), 'bold')}: {printable(message)}", file=sys.stderr)
    if len(faults) > limit:
        print(f"… and {len(faults) - limit} more", file=sys.stderr)
    print(f"{counted(len(faults), 'fault')}; nothing was touched.", file=sys.stderr)
