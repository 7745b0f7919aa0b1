"""Long polls: requests that wait for an announcement, with a timeout and a limit per caller."""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from collections.abc import Iterator, Sequence

from mainstay.control.access import Caller
from mainstay.control.api.errors import HttpRefusal

MAX_LONG_POLLS = 100
RETRY_SECONDS = 5
# How often a waiting request tries again while the database is unavailable, for example during a failover.
UNAVAILABLE_SECONDS = 1.0


class LongPollSlots:
    """Limits the waiting requests of a caller, which is an agent or a participant with all its tokens."""

    def __init__(self) -> None:
        self._taken: Counter[str] = Counter()

    def refuse_if_full(self, caller: Caller) -> None:
        if self._taken[_name(caller)] >= MAX_LONG_POLLS:
            raise HttpRefusal(
                429,
                "too_many_waiting",
                f"you already have {MAX_LONG_POLLS} waiting requests",
                headers={"Retry-After": str(RETRY_SECONDS)},
            )

    @contextlib.contextmanager
    def taken(self, caller: Caller) -> Iterator[None]:
        name = _name(caller)
        self._taken[name] += 1
        try:
            yield
        finally:
            self._taken[name] -= 1
            if not self._taken[name]:
                del self._taken[name]


def _name(caller: Caller) -> str:
    return caller.agent_id or caller.participant_id or caller.token_id


async def first_of(events: Sequence[asyncio.Event], seconds: float) -> None:
    waits = [asyncio.ensure_future(event.wait()) for event in events]
    try:
        await asyncio.wait(waits, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for each in waits:
            each.cancel()
        for each in waits:
            with contextlib.suppress(asyncio.CancelledError):
                await each
