"""Rate limits: a token bucket per key. Callers and enrollments have separate limits."""

from __future__ import annotations

import time
from collections import OrderedDict

from mainstay.control.api.errors import HttpRefusal

MAX_KEYS = 10_000
BURST = 10


class Limits:
    def __init__(self, per_second: float, burst: float | None = None) -> None:
        self._per_second = per_second
        self._burst = burst if burst is not None else per_second * BURST
        # Key → (tokens left, at which time), least recently used first; those are evicted.
        self._buckets: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def admit(self, key: str) -> None:
        if self._per_second <= 0:
            return
        now = time.monotonic()
        left, since = self._buckets.pop(key, (self._burst, now))
        left = min(self._burst, left + (now - since) * self._per_second)
        self._buckets[key] = (max(left - 1, 0.0) if left >= 1 else left, now)
        if len(self._buckets) > MAX_KEYS:
            self._buckets.popitem(last=False)
        if left < 1:
            wait = int((1 - left) / self._per_second) + 1
            raise HttpRefusal(
                429, "rate_limited", f"too many requests; try again in {wait} s", headers={"Retry-After": str(wait)}
            )
