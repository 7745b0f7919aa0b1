"""Long polls: requests that wait for an announcement, with a timeout and a limit per caller."""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator, Sequence
from typing import TYPE_CHECKING, TypeVar

from mainstay.control.access import Caller
from mainstay.control.api.errors import HttpRefusal
from mainstay.control.store.engine.contract import Unavailable

if TYPE_CHECKING:
    from mainstay.control.api.contract import Call

T = TypeVar("T")
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


async def wait_until_found(call: Call, topic: str, check: Callable[[], Awaitable[T]], seconds: float) -> T:
    """Calls `check` now and after each announcement, until it finds something or the time is up or the server stops.
    Raises the refusal if the token of the caller ends meanwhile. While the database is unavailable it goes on waiting."""
    loop = asyncio.get_running_loop()
    until = loop.time() + seconds
    dependencies = call.dependencies
    stopping = dependencies.readiness.stopping
    caller = call.required_caller
    with dependencies.open_connections.opened(caller) as connection:
        while True:
            with dependencies.store.bus.listening(topic) as news:
                connection.refuse_if_ended()
                try:
                    found = await check()
                    left = until - loop.time()
                    if found or left <= 0 or stopping.is_set():
                        return found
                except Unavailable:
                    left = min(until - loop.time(), UNAVAILABLE_SECONDS)
                    if left <= 0 or stopping.is_set():
                        raise
                dependencies.long_poll_slots.refuse_if_full(caller)
                with dependencies.long_poll_slots.taken(caller):
                    await first_of((news, stopping, connection.ended), left)


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
