"""Rate limits: requests by caller and cost, and failed attempts by address."""

from __future__ import annotations

import time
from collections import OrderedDict

from mainstay.control.access import Caller, Role
from mainstay.control.api.errors import HttpRefusal

MAX_KEYS = 10_000
BURST_SECONDS = 4
# Bytes of a body that cost as much as a request.
BYTES_PER_REQUEST = 16 * 2**10
# What all agents of a participant may do together, in rates of one agent, and for how long at once.
SHARED_RATES = 10
SHARED_BURST_SECONDS = 2
FAILURES_PER_MINUTE = 10


class TokenBuckets:
    """A token bucket for each key. The least recently used ones are evicted."""

    def __init__(self, per_second: float, burst: float) -> None:
        self._per_second = per_second
        self._burst = burst
        # Key → (tokens left, at which time), least recently used first.
        self._buckets: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def take(self, key: str, cost: int = 1) -> float:
        """Takes `cost` tokens if there is at least one; the next callers wait for those that are missing. Returns the
        seconds until there is one, if there is none."""
        now = time.monotonic()
        left, since = self._buckets.pop(key, (self._burst, now))
        left = min(self._burst, left + (now - since) * self._per_second)
        self._buckets[key] = (left - cost if left >= 1 else left, now)
        if len(self._buckets) > MAX_KEYS:
            self._buckets.popitem(last=False)
        return 0.0 if left >= 1 else (1 - left) / self._per_second


class RequestLimits:
    """Limits an agent or a participant with all its tokens, and all agents of a participant together; an admin is not
    limited."""

    def __init__(self, per_second: float) -> None:
        self._is_off = per_second <= 0
        self._buckets = TokenBuckets(per_second, per_second * BURST_SECONDS)
        shared = per_second * SHARED_RATES
        self._shared = TokenBuckets(shared, shared * SHARED_BURST_SECONDS)

    def admit(self, caller: Caller, cost: int = 1) -> None:
        """`cost`: of how many requests this one is worth."""
        if self._is_off or caller.role is Role.ADMIN:
            return
        wait = self._buckets.take(str(caller.agent_id or caller.participant_id), cost)
        if not wait and caller.agent_id is not None:
            wait = self._shared.take(str(caller.participant_id), cost)
        if wait:
            raise _too_many("rate_limited", "too many requests", wait)

    def admit_body(self, caller: Caller, size: int) -> None:
        """A body costs as much as its parsing, beyond the request itself."""
        if size >= BYTES_PER_REQUEST:
            self.admit(caller, size // BYTES_PER_REQUEST)


class FailedAttempts:
    """Limits the wrong codes or tokens of an address. A right one is never refused, whatever else comes from there."""

    def __init__(self, what: str) -> None:
        self._what = what
        self._buckets = TokenBuckets(FAILURES_PER_MINUTE / 60, FAILURES_PER_MINUTE)

    def count(self, address: str) -> None:
        """Counts a failure; raises if there were too many."""
        wait = self._buckets.take(address)
        if wait:
            raise _too_many("too_many_failures", f"too many wrong {self._what} from your address", wait)


def _too_many(code: str, message: str, wait_seconds: float) -> HttpRefusal:
    wait = int(wait_seconds) + 1
    return HttpRefusal(429, code, f"{message}; try again in {wait} s", headers={"Retry-After": str(wait)})
