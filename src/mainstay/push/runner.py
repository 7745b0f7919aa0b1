"""Pushes to many hosts: batches one after another, hosts of a batch in parallel, one orderly stop for all."""

from __future__ import annotations

import asyncio
import contextlib
import signal
from collections.abc import Sequence

from mainstay.push.host_push import HostPush
from mainstay.push.outcome import STOPPED, HostFault

TICK_SECONDS = 0.2
# After a stop request: the host ends its command within 5 s, writes its state and its report.
STOP_SECONDS = 30.0


class PushObserver:
    """Receives notifications during a push. The default ignores them."""

    def finished(self, push: HostPush) -> None:
        """A host has its outcome."""

    def tick(self, running: Sequence[HostPush]) -> None:
        """Some time has passed."""


class Runner:
    def __init__(
        self, batches: Sequence[Sequence[HostPush]], *, parallel: int, stop_after: int | None, observer: PushObserver
    ) -> None:
        self._batches = batches
        self._parallel = parallel
        self._stop_after = stop_after
        self._observer = observer
        self._running: list[HostPush] = []
        self._failures = 0
        # The signal that stopped the push.
        self.stopped_by: signal.Signals | None = None

    async def run(self) -> None:
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, self._stop, number)
        ticking = asyncio.create_task(self._tick())
        try:
            for batch in self._batches:
                await self._run_batch(batch)
        finally:
            ticking.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await ticking
            for number in (signal.SIGINT, signal.SIGTERM):
                loop.remove_signal_handler(number)

    async def _run_batch(self, batch: Sequence[HostPush]) -> None:
        waiting = list(reversed(batch))

        async def work() -> None:
            while waiting:
                await self._run_one(waiting.pop())

        await asyncio.gather(*(work() for _ in range(min(self._parallel, len(batch)))))

    async def _run_one(self, push: HostPush) -> None:
        reason = self._reason_to_stop()
        if reason is not None:
            push.outcome.fault = HostFault(STOPPED, reason)
        else:
            self._running.append(push)
            try:
                await push.run()
            finally:
                self._running.remove(push)
            self._failures += push.outcome.has_failed
        self._observer.finished(push)

    def _reason_to_stop(self) -> str | None:
        if self.stopped_by is not None:
            return f"not attempted: {self.stopped_by.name}"
        if self._stop_after is not None and self._failures >= self._stop_after:
            return f"not attempted: {self._failures} failed before (--stop-after {self._stop_after})"
        return None

    def _stop(self, number: signal.Signals) -> None:
        is_second = self.stopped_by is not None
        self.stopped_by = self.stopped_by or signal.Signals(number)
        for push in list(self._running):
            if is_second:
                push.kill()
            else:
                push.stop()
        if not is_second:
            asyncio.get_running_loop().call_later(STOP_SECONDS, self._kill_all)

    def _kill_all(self) -> None:
        for push in list(self._running):
            push.kill()

    async def _tick(self) -> None:
        while True:
            await asyncio.sleep(TICK_SECONDS)
            self._observer.tick(self._running)
