"""The clock, in one place, so that code that decides never reads it."""

from __future__ import annotations

import time

from mainstay.converge.failures import StopFlag

STOP_CHECK_SECONDS = 0.1


def sleep(seconds: float, stop: StopFlag) -> None:
    """Returns early if the run is asked to stop."""
    until = time.monotonic() + seconds
    while stop.reason is None and (left := until - time.monotonic()) > 0:
        time.sleep(min(left, STOP_CHECK_SECONDS))


monotonic = time.perf_counter
wall_time = time.time
