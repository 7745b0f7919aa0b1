"""Long polls: requests that wait for an announcement, with a timeout and a limit per caller."""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from collections.abc import Iterator, Sequence

from mainstay.control.access import Caller
from mainstay.control.api.errors import HttpRefusal

MAX_LONG_POLLS = 100
# Of all agents of a participant.
MAX_SHARED_LONG_POLLS = 1000
RETRY_SECONDS = 5
# How often a waiting request tries again while the database is unavailable, for example during a failover.
UNAVAILABLE_SECONDS = 1.0


class LongPollSlots:
    """Limits the waiting requests of a caller, which is an agent or a participant with all its tokens, and those of all
    agents of a participant together."""

    def __init__(self) -> None:
        self._taken: Counter[str] = Counter()

    def refuse_if_full(self, caller: Caller) -> None:
        for name, most, whose in _limits(caller):
            if self._taken[name] >= most:
                raise HttpRefusal(
                    429,
                    "too_many_waiting",
                    f"{whose} already have {most} waiting requests",
                    headers={"Retry-After": str(RETRY_SECONDS)},
                )

    @contextlib.contextmanager
    def taken(self, caller: Caller) -> Iterator[None]:
        names = [name for name, _, _ in _limits(caller)]
        self._taken.update(names)
        try:
            yield
        finally:
            self._taken.subtract(names)
            for name in names:
                if not self._taken[name]:
                    del self._taken[name]


def _limits(caller: Caller) -> list[tuple[str, int, str]]:
    """(key, most waiting requests, whose)."""
    if caller.agent_id is None:
        return [(caller.participant_id or caller.token_id, MAX_LONG_POLLS, "you")]
    shared = (f"agents of {caller.participant_id}", MAX_SHARED_LONG_POLLS, "the agents of your participant")
    return [(caller.agent_id, MAX_LONG_POLLS, "you"), shared]


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
