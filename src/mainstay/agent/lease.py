"""The lease of a job: renews it in the background with progress, and ends the run before another agent can get the job."""

from __future__ import annotations

import threading
from typing import Any, Self

from mainstay.agent.client import ServerRefusal, Unreachable
from mainstay.agent.context import AgentContext
from mainstay.agent.responses import RENEWED, require_shape
from mainstay.agent.stop_flag import CANCELLED, LeaseStopFlag, now

RENEW_EVERY_SECONDS = 5.0
PROGRESS_EVERY_SECONDS = 1.0
# Time to end a command with its process group; at most this share of a short lease.
ENDING_SECONDS = 8.0
ENDING_SHARE = 0.6
LONGEST_RENEWAL_SECONDS = 5.0


class Lease:
    """The lease of one job, counted from when the claim was sent: the server counts from later, so it never ends earlier."""

    def __init__(self, agent: AgentContext, job_id: str, token: str, sent_at: float, stop: LeaseStopFlag) -> None:
        self._agent = agent
        self._job_id = job_id
        self._token = token
        self._seconds = agent.settings.lease_seconds
        self._stop = stop
        self._progress: dict[str, Any] | None = None
        self._sent_progress: dict[str, Any] | None = None
        self._over = False
        self._changed = threading.Condition()
        self._thread = threading.Thread(target=self._keep_renewed, name=f"lease {job_id}", daemon=True)
        self._extend_from(sent_at)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        with self._changed:
            self._over = True
            self._changed.notify()
        self._thread.join()

    def _extend_from(self, sent_at: float) -> None:
        """The run must stop early enough to be over while the lease is still valid."""
        ending = min(ENDING_SECONDS, self._seconds * ENDING_SHARE)
        self._stop.deadline = sent_at + self._seconds - ending

    def report_progress(self, percent: float, text: str) -> None:
        """Progress is sent with the next renewal, at most once a second."""
        with self._changed:
            self._progress = {"percent": round(percent, 1), "text": text[:2000]}
            self._changed.notify()

    def _keep_renewed(self) -> None:
        interval = min(RENEW_EVERY_SECONDS, self._seconds / 6)
        renewed = now()
        while True:
            with self._changed:
                while not self._over:
                    has_progress = self._progress != self._sent_progress
                    left = renewed + (min(PROGRESS_EVERY_SECONDS, interval) if has_progress else interval) - now()
                    if left <= 0:
                        break
                    self._changed.wait(left)
                if self._over:
                    return
            renewed = now()
            if not self._renew():
                return

    def _renew(self) -> bool:
        """Whether the lease is, or may still be, ours."""
        if self._stop.is_lost():
            return self._give_up("not renewed in time")
        progress = self._progress
        sent_at = now()
        body = {"leaseToken": self._token, "leaseSeconds": self._seconds, "progress": progress}
        path = f"/jobs/{self._job_id}/renew"
        try:
            answer = require_shape(
                self._agent.client.post(path, body, timeout_seconds=LONGEST_RENEWAL_SECONDS), RENEWED
            )
        except ServerRefusal as refusal:
            if refusal.status in (409, 404):
                return self._give_up(str(refusal))
            self._agent.log.warning("lease not renewed", job=self._job_id, reason=str(refusal))
            return True
        except Unreachable as error:
            self._agent.log.warning("lease not renewed", job=self._job_id, reason=str(error))
            return True
        if self._stop.is_lost():
            # The run is already stopping and cannot continue.
            return self._give_up("renewed too late")
        self._extend_from(sent_at)
        self._sent_progress = progress
        if answer["cancelRequested"]:
            self._stop.request(CANCELLED)
        return True

    def _give_up(self, reason: str) -> bool:
        self._agent.log.warning("lease lost, ending the run", job=self._job_id, reason=reason)
        self._stop.mark_lost()
        return False
