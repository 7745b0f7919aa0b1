"""Ends the work on a resource when its time limit has passed, or when it goes on after the run was asked to stop.

A timer ticks in the main thread, the only one that a signal can interrupt. In other threads only commands are ended.
"""

from __future__ import annotations

import time

from mainstay.converge.failures import Interrupted, StopFlag, TimedOut
from mainstay.foundation import Any

TICK_SECONDS = 0.5
# How long work goes on by itself after a request to stop, and how long it cleans up after an interruption.
STOP_SECONDS, CLEAN_UP_SECONDS = 1.0, 5.0


class Interruption:
    """What may be interrupted now: nothing, or the work on one resource, but not while a command runs for it."""

    def __init__(self, stop: StopFlag) -> None:
        self._stop = stop
        self._limit_seconds: float | None = None
        # When the work on the resource ends; None: it has no limit.
        self._deadline: float | None = None
        # When a stopping run interrupts the work; None: the run is not stopping.
        self._stop_at: float | None = None
        self._is_at_work = False
        # Commands are ended with their process group, by the code that waits for them.
        self.has_command = False
        self._previous: Any = None

    def __enter__(self) -> None:
        import signal

        try:
            self._previous = signal.signal(signal.SIGALRM, self._tick)
        except ValueError:
            # Not the main thread.
            return
        signal.setitimer(signal.ITIMER_REAL, TICK_SECONDS, TICK_SECONDS)

    def __exit__(self, *_: object) -> None:
        import signal

        if self._previous is not None:
            signal.setitimer(signal.ITIMER_REAL, 0)
            signal.signal(signal.SIGALRM, self._previous)

    def start_work(self, limit_seconds: float | None) -> None:
        self._limit_seconds = limit_seconds
        self._deadline = None if limit_seconds is None else time.monotonic() + limit_seconds
        self._is_at_work = True

    def end_work(self) -> None:
        self._is_at_work = False

    def is_too_late(self, now: float) -> bool:
        return self._deadline is not None and now >= self._deadline

    def message(self) -> str:
        return f"timed out after {self._limit_seconds:g}s, the limit of its type"

    def _tick(self, *_: object) -> None:
        if not self._is_at_work or self.has_command:
            return
        now = time.monotonic()
        if self._stop.at_once:
            if self._stop_at is None:
                self._stop_at = now + STOP_SECONDS - TICK_SECONDS
            if now >= self._stop_at:
                self._stop_at = now + CLEAN_UP_SECONDS
                raise Interrupted(f"interrupted by {self._stop.reason}")
        elif self.is_too_late(now):
            message = self.message()
            self._deadline = now + CLEAN_UP_SECONDS
            raise Interrupted(message, TimedOut.kind)
