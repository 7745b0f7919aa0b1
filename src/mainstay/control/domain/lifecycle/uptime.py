"""The share of time that a service was running, from the history of its transitions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import pairwise

from mainstay.control.domain.lifecycle.schema import Lifecycle

DAY = timedelta(days=1)


@dataclass(frozen=True, slots=True)
class StateEntry:
    """The service entered a state; the first entry is its creation."""

    at: datetime
    state: str


@dataclass(frozen=True, slots=True)
class Uptime:
    running: timedelta
    # The part of the window in which the service existed.
    total: timedelta

    @property
    def share(self) -> float:
        return self.running / self.total if self.total else 0.0


def uptime(lifecycle: Lifecycle, history: Sequence[StateEntry], start: datetime, end: datetime) -> Uptime:
    """`history` is in chronological order. Time before the creation and in a terminal state does not count."""
    running = total = timedelta()
    for entry, until in _spans(history, end):
        if entry.state in lifecycle.terminal_states:
            continue
        length = max(min(until, end) - max(entry.at, start), timedelta())
        total += length
        if entry.state in lifecycle.running_states:
            running += length
    return Uptime(running, total)


@dataclass(frozen=True, slots=True)
class UptimeOfDay:
    # Midnight UTC.
    day: datetime
    uptime: Uptime
    # The states of the service on this day, in the order of their names.
    states: tuple[str, ...]


def uptime_by_day(
    lifecycle: Lifecycle, history: Sequence[StateEntry], end: datetime, days: int
) -> tuple[UptimeOfDay, ...]:
    """The last days up to `end`, oldest first."""
    last = end.replace(hour=0, minute=0, second=0, microsecond=0)
    first = last - (days - 1) * DAY
    running, total = [timedelta()] * days, [timedelta()] * days
    states: list[set[str]] = [set() for _ in range(days)]
    for entry, until in _spans(history, end):
        if entry.state in lifecycle.terminal_states:
            continue
        start = max(entry.at, first)
        while start < until:
            index = (start - first) // DAY
            stop = min(until, first + (index + 1) * DAY)
            total[index] += stop - start
            states[index].add(entry.state)
            if entry.state in lifecycle.running_states:
                running[index] += stop - start
            start = stop
    return tuple(
        UptimeOfDay(first + index * DAY, Uptime(running[index], total[index]), tuple(sorted(states[index])))
        for index in range(days)
    )


def _spans(history: Sequence[StateEntry], end: datetime) -> list[tuple[StateEntry, datetime]]:
    spans = [(entry, following.at) for entry, following in pairwise(history)]
    return [*spans, (history[-1], end)] if history else []
