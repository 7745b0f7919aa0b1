"""Time, in one place so that what decides never asks for it."""

from __future__ import annotations

import time


def timestamp(seconds: float) -> str:
    """RFC 3339, to the microsecond."""
    whole = int(seconds // 1)
    return f"{time.strftime('%Y-%m-%dT%H:%M:%S', time.gmtime(whole))}.{int((seconds - whole) * 1_000_000):06d}Z"


monotonic = time.perf_counter
sleep = time.sleep
