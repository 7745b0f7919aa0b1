"""How a run is stopped: on request, or when the deadline of its lease passes."""

from __future__ import annotations

import time
from typing import Any

from mainstay.converge.failures import StopFlag

# Reasons.
LOST, CANCELLED, TIMED_OUT, STOPPING = "lease lost", "cancelled", "timed out", "stopping"


def now() -> float:
    """Seconds since boot: independent of clock changes, and counted while the host sleeps."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


class LeaseStopFlag(StopFlag):
    """Stops a run on request, and by itself when the deadline of the lease passes. Checks the clock at every read, so
    that a run notices the deadline first thing after a sleep or a SIGSTOP."""

    def __init__(self) -> None:
        # None: there is no lease.
        self.deadline: float | None = None
        self._lost = False
        super().__init__()

    def is_lost(self) -> bool:
        """Once true it stays true: the run may already have skipped resources because of it."""
        if not self._lost and self.deadline is not None and now() >= self.deadline:
            self._lost = True
        return self._lost

    @property
    def reason(self) -> str | None:
        return LOST if self.is_lost() else self._reason

    @reason.setter
    def reason(self, reason: str | None) -> None:
        self._reason = reason

    @property
    def at_once(self) -> bool:
        return self.is_lost() or self._at_once

    @at_once.setter
    def at_once(self, at_once: bool) -> None:
        self._at_once = at_once

    def mark_lost(self) -> None:
        self._lost = True

    def export(self) -> tuple[Any, ...]:
        """What the flag of another process `adopt`s. The deadline is part of it: this process may be stopped meanwhile."""
        return self._reason, self._at_once, self.is_lost(), self.deadline

    def adopt(self, exported: tuple[Any, ...]) -> None:
        self._reason, self._at_once, is_lost, self.deadline = exported
        self._lost = self._lost or is_lost
