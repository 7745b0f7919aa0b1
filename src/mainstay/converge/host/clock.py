"""Time, in one place so that what decides never asks for it."""

from __future__ import annotations

import time
from functools import lru_cache

TYPE_CHECKING = False
if TYPE_CHECKING:
    from mainstay.converge.contract import StopFlag

STOP_CHECK_SECONDS = 0.1


def timestamp(seconds: float) -> str:
    """RFC 3339, to the microsecond."""
    whole = int(seconds // 1)
    return f"{_whole_seconds(whole)}.{int((seconds - whole) * 1_000_000):06d}Z"


@lru_cache(maxsize=4)
def _whole_seconds(seconds: int) -> str:
    """Files of one run were mostly written within few of them."""
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(seconds))


def sleep(seconds: float, stop: StopFlag) -> None:
    """Wakes up early when the run is asked to stop."""
    until = time.monotonic() + seconds
    while stop.reason is None and (left := until - time.monotonic()) > 0:
        time.sleep(min(left, STOP_CHECK_SECONDS))


monotonic = time.perf_counter
wall_time = time.time
