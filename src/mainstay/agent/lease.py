"""Holds a job: renews its lease in the background with progress, and ends the run before the lease can be another's."""

from __future__ import annotations

import threading
import time

from mainstay.agent.client import ServerRefusal, Unreachable

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Self

    from mainstay.agent.client import Client
    from mainstay.agent.log import Log
    from mainstay.converge.contract import StopFlag

LOST, CANCELLED = "lease lost", "cancelled"
RENEW_EVERY_SECONDS = 5.0
PROGRESS_EVERY_SECONDS = 1.0
# Ending a command with its process group may take so long.
ENDING_SECONDS = 8.0
LONGEST_RENEWAL_SECONDS = 10.0


def now() -> float:
    """Seconds that no change of the clock touches, and that go on while the host sleeps."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


class Lease:
    """One job's lease from the moment that the claim was sent: counted from there, it never seems longer than it is."""

    def __init__(
        self, client: Client, job_id: str, token: str, seconds: int, sent_at: float, stop: StopFlag, log: Log
    ) -> None:
        self._client = client
        self._job_id = job_id
        self.token = token
        self._seconds = seconds
        self._good_until = sent_at + seconds
        self._stop = stop
        self._log = log
        self._progress: dict[str, Any] | None = None
        self._told: dict[str, Any] | None = None
        self._over = False
        self._changed = threading.Condition()
        self._thread = threading.Thread(target=self._keep, name=f"lease {job_id}", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        with self._changed:
            self._over = True
            self._changed.notify()
        self._thread.join()

    @property
    def lost(self) -> bool:
        return self._stop.reason == LOST

    @property
    def _last_moment(self) -> float:
        """When the run must begin to end, so that it is over while the lease still holds."""
        return self._good_until - min(ENDING_SECONDS, self._seconds / 3)

    def tell(self, percent: float, text: str) -> None:
        """How far the run is; sent with the next renewal, at most once a second."""
        with self._changed:
            self._progress = {"percent": round(percent, 1), "text": text[:2000]}
            self._changed.notify()

    def _keep(self) -> None:
        pause = min(RENEW_EVERY_SECONDS, self._seconds / 3)
        renewed = now()
        while True:
            with self._changed:
                while not self._over:
                    is_news = self._progress != self._told
                    due = renewed + (min(PROGRESS_EVERY_SECONDS, pause) if is_news else pause)
                    left = min(due, self._last_moment) - now()
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
        progress = self._progress
        sent_at = now()
        left = self._last_moment - sent_at
        body = {"leaseToken": self.token, "leaseSeconds": self._seconds, "progress": progress}
        if left > 0:
            try:
                answer = self._client.post(
                    f"/jobs/{self._job_id}/renew", body, timeout_seconds=min(left, LONGEST_RENEWAL_SECONDS)
                )
            except Unreachable as error:
                self._log.warning("the lease could not be renewed", job=self._job_id, reason=str(error))
                return True
            except ServerRefusal as refusal:
                if refusal.status in (409, 404):
                    return self._give_up(str(refusal))
                self._log.warning("the lease could not be renewed", job=self._job_id, reason=str(refusal))
                return True
            self._good_until, self._told = sent_at + self._seconds, progress
            if answer["cancelRequested"]:
                self._stop.request(CANCELLED)
            return True
        return self._give_up("it could not be renewed in time")

    def _give_up(self, reason: str) -> bool:
        self._log.warning("the job is no longer ours; its run ends", job=self._job_id, reason=reason)
        self._stop.reason = LOST
        self._stop.at_once = True
        return False
