"""Holds a job: renews its lease in the background with progress, and ends the run before the lease can be another's."""

from __future__ import annotations

import threading
import time

from mainstay.agent.client import ServerRefusal, Unreachable
from mainstay.agent.responses import RENEWED, matching
from mainstay.converge.contract import StopFlag

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Self

    from mainstay.agent.client import Client
    from mainstay.agent.log import Log

LOST, CANCELLED = "lease lost", "cancelled"
RENEW_EVERY_SECONDS = 5.0
PROGRESS_EVERY_SECONDS = 1.0
# Ending a command with its process group may take so long; of a short lease it is most.
ENDING_SECONDS = 8.0
ENDING_SHARE = 0.6
LONGEST_RENEWAL_SECONDS = 5.0


def now() -> float:
    """Seconds that no change of the clock touches, and that go on while the host sleeps."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


class LeaseStopFlag(StopFlag):
    """Asks a run to end, and does so by itself at the last moment: whoever looks first, after a sleep or a SIGSTOP, is
    told in time."""

    def __init__(self) -> None:
        # None: nothing is held that could be lost.
        self.last_moment: float | None = None
        self._lost = False
        super().__init__()

    def is_lost(self) -> bool:
        """Once it was said to be, it is for good: somebody may have left out something because of it."""
        if not self._lost and self.last_moment is not None and now() >= self.last_moment:
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

    def lose(self) -> None:
        self._lost = True


class Lease:
    """One job's lease from the moment that the claim was sent: counted from there, it never seems longer than it is."""

    def __init__(
        self, client: Client, job_id: str, token: str, seconds: int, sent_at: float, stop: LeaseStopFlag, log: Log
    ) -> None:
        self._client = client
        self._job_id = job_id
        self.token = token
        self._seconds = seconds
        self._stop = stop
        self._log = log
        self._progress: dict[str, Any] | None = None
        self._told: dict[str, Any] | None = None
        self._over = False
        self._changed = threading.Condition()
        self._thread = threading.Thread(target=self._keep, name=f"lease {job_id}", daemon=True)
        self._good_from(sent_at)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        with self._changed:
            self._over = True
            self._changed.notify()
        self._thread.join()

    def _good_from(self, sent_at: float) -> None:
        """The run must begin to end early enough that it is over while the lease still holds."""
        ending = min(ENDING_SECONDS, self._seconds * ENDING_SHARE)
        self._stop.last_moment = sent_at + self._seconds - ending

    def tell(self, percent: float, text: str) -> None:
        """How far the run is; sent with the next renewal, at most once a second."""
        with self._changed:
            self._progress = {"percent": round(percent, 1), "text": text[:2000]}
            self._changed.notify()

    def _keep(self) -> None:
        pause = min(RENEW_EVERY_SECONDS, self._seconds / 6)
        renewed = now()
        while True:
            with self._changed:
                while not self._over:
                    is_news = self._progress != self._told
                    left = renewed + (min(PROGRESS_EVERY_SECONDS, pause) if is_news else pause) - now()
                    if left <= 0:
                        break
                    self._changed.wait(left)
                if self._over:
                    return
            renewed = now()
            if not self._renew():
                return

    def _renew(self) -> bool:
        """Whether the lease still is, or may be, ours."""
        if self._stop.is_lost():
            return self._give_up("it could not be renewed in time")
        progress = self._progress
        sent_at = now()
        body = {"leaseToken": self.token, "leaseSeconds": self._seconds, "progress": progress}
        path = f"/jobs/{self._job_id}/renew"
        try:
            answer = matching(self._client.post(path, body, timeout_seconds=LONGEST_RENEWAL_SECONDS), RENEWED)
        except ServerRefusal as refusal:
            if refusal.status in (409, 404):
                return self._give_up(str(refusal))
            self._log.warning("the lease could not be renewed", job=self._job_id, reason=str(refusal))
            return True
        except Unreachable as error:
            self._log.warning("the lease could not be renewed", job=self._job_id, reason=str(error))
            return True
        if self._stop.is_lost():
            # The run has begun to end, and cannot be told to go on.
            return self._give_up("it was renewed too late")
        self._good_from(sent_at)
        self._told = progress
        if answer["cancelRequested"]:
            self._stop.request(CANCELLED)
        return True

    def _give_up(self, reason: str) -> bool:
        self._log.warning("the job is no longer ours; its run ends", job=self._job_id, reason=reason)
        self._stop.lose()
        return False
