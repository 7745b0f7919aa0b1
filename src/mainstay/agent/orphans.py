"""Cleans up orphans: what forced deletes and moves left on this host. Runs the `delete` manifest of each
and confirms the clean-up, or reports why it failed. A clean-up that was killed or stopped runs again."""

from __future__ import annotations

import random
import threading
from collections.abc import Iterable, Mapping
from typing import Any

from mainstay.agent.client import ServerRefusal, Unreachable
from mainstay.agent.context import AgentContext
from mainstay.agent.job_documents import service_key
from mainstay.agent.job_runner import Outcome, failed, run_job
from mainstay.agent.journal import JobJournal, JobJournalEntry
from mainstay.agent.log import origin_of
from mainstay.agent.responses import ORPHAN, require_shape
from mainstay.agent.stop_flag import LeaseStopFlag, now

LONGEST_BACKOFF_SECONDS = 3600.0
# Pause before what could not be done now: the server is away, or a job still uses the service.
POSTPONED_SECONDS = 5.0
# How long a job may need to notice that its service was deleted.
JOB_END_SECONDS = 10.0
# For a blueprint without a timeout: a clean-up that hangs must not keep the agent from its jobs.
LONGEST_CLEAN_UP_SECONDS = 300.0


class OrphanCleaner:
    def __init__(self, agent: AgentContext) -> None:
        self._agent = agent
        # Results that the server has not received yet.
        self._journal = JobJournal(agent.state, "orphans")
        self._wake = threading.Event()
        # Open orphans at the last reading: id → type and name of the service.
        self._open: dict[str, tuple[str, str]] = {}
        # When a failed clean-up may run again.
        self._not_before: dict[str, float] = {}
        self._postponed = False
        # Threads that clean up, and the orphans that they have or will have.
        self._threads: list[threading.Thread] = []
        self._in_progress: set[str] = set()
        # The list was read once; every orphan on it was tried once.
        self.was_read = threading.Event()
        self.was_tried = threading.Event()

    def run(self) -> None:
        """Never returns before the agent stops."""
        agent = self._agent
        while not agent.stopping.is_set():
            self._wake.clear()
            self._postponed = False
            try:
                self._deliver_saved()
                orphans = self._read()
                self.was_read.set()
                self._start_clean_ups(orphans)
                if not self.was_tried.is_set():
                    for thread in self._threads:
                        thread.join()
                    self.was_tried.set()
            except (Unreachable, ServerRefusal) as error:
                self._handle_refusal(error)
            except Exception as error:  # noqa: BLE001  # a bug here must not keep the agent from its jobs
                agent.log.error("bug", task="orphans", at=origin_of(error))
                self.was_read.set()
                self.was_tried.set()
            every = agent.settings.orphan_seconds
            self._wake.wait(min(POSTPONED_SECONDS, every) if self._postponed else every)

    def _handle_refusal(self, error: Unreachable | ServerRefusal) -> None:
        if isinstance(error, ServerRefusal) and error.status == 404:
            # Servers of older releases have no orphans.
            self.was_read.set()
            self.was_tried.set()
            return
        self._agent.log.warning("reading orphans failed", reason=str(error))
        self._postponed = True

    def notice(self, orphan_id: str | None = None) -> None:
        """Reads the list soon: a job was lost, or waits for this orphan."""
        if orphan_id is None or orphan_id not in self._open:
            self._wake.set()

    def blocks(self, service: Mapping[str, Any]) -> bool:
        """Whether an open orphan has the type and name of the service."""
        return service_key(service) in self._open.values()

    def _read(self) -> list[Mapping[str, Any]]:
        found = [require_shape(each, ORPHAN) for each in self._agent.client.pages("/orphans")]
        self._open = {each["id"]: service_key(each["service"]) for each in found}
        self._not_before = {each: time for each, time in self._not_before.items() if each in self._open}
        return found

    # ---- clean-ups ----
    def _start_clean_ups(self, orphans: Iterable[Mapping[str, Any]]) -> None:
        """Clean-ups of services with the same type and name run one after the other, others in parallel. They are not
        waited for: a clean-up that takes long must not delay a new one."""
        self._threads = [each for each in self._threads if each.is_alive()]
        saved = {entry.job_id for entry in self._journal.entries()}
        groups: dict[tuple[str, str], list[Mapping[str, Any]]] = {}
        for orphan in orphans:
            if orphan["id"] in self._in_progress:
                # It may be postponed while the loop waits.
                self._postponed = True
            elif orphan["id"] not in saved and self._not_before.get(orphan["id"], 0.0) <= now():
                groups.setdefault(service_key(orphan["service"]), []).append(orphan)
        waiting = list(groups.values())
        free = self._agent.settings.jobs - len(self._threads)
        if not waiting or free <= 0:
            return
        # The list is read again while they run.
        self._postponed = True
        self._in_progress.update(orphan["id"] for group in waiting for orphan in group)
        for _ in range(min(free, len(waiting))):
            thread = threading.Thread(target=self._work_off, args=(waiting,), name="clean-up", daemon=True)
            self._threads.append(thread)
            thread.start()

    def _work_off(self, waiting: list[list[Mapping[str, Any]]]) -> None:
        while True:
            try:
                group = waiting.pop()
            except IndexError:
                return
            for orphan in group:
                try:
                    if not self._agent.stopping.is_set():
                        self._clean_up(orphan)
                finally:
                    self._in_progress.discard(orphan["id"])

    def _clean_up(self, orphan: Mapping[str, Any]) -> None:
        agent, service = self._agent, orphan["service"]
        key = service_key(service)
        if not agent.services.start_clean_up(key):
            self._postponed = True
            return
        try:
            stop = agent.services.try_acquire(service["id"], wait_seconds=JOB_END_SECONDS)
            outcome = Outcome(None)
            if stop is not None:
                try:
                    outcome = self._run(orphan, stop)
                finally:
                    agent.services.release(service["id"])
        finally:
            agent.services.end_clean_up(key)
        if outcome.verb in ("complete", "fail"):
            self._finish(orphan, outcome)
        else:
            # Stopped, locked by another run, or the server is away.
            self._postponed = True

    def _run(self, orphan: Mapping[str, Any], stop: LeaseStopFlag) -> Outcome:
        agent, service = self._agent, orphan["service"]
        job = {
            "id": orphan["id"],
            "serviceId": service["id"],
            "action": "delete",
            "attempt": orphan["attempts"] + 1,
            "service": service,
            "blueprintDigest": service.get("blueprintDigest"),
        }
        agent.log.info("clean-up started", orphan=orphan["id"], service=service["name"])
        try:
            return run_job(agent, job, stop, lease=None, default_timeout_seconds=LONGEST_CLEAN_UP_SECONDS)
        except Unreachable as error:
            agent.log.warning("clean-up waits for the server", orphan=orphan["id"], reason=str(error))
            return Outcome(None)
        except OSError as error:
            return failed(f"the agent cannot run the clean-up: {error.strerror}")
        except Exception as error:  # noqa: BLE001  # a bug in one clean-up must not end the others
            agent.log.error("bug", orphan=orphan["id"], at=origin_of(error))
            return failed(f"bug in the agent: {origin_of(error)}")

    # ---- results ----
    def _finish(self, orphan: Mapping[str, Any], outcome: Outcome) -> None:
        agent, orphan_id = self._agent, str(orphan["id"])
        fields = {"orphan": orphan_id, "service": orphan["service"]["name"]}
        if outcome.verb == "complete":
            agent.log.info("clean-up finished", **fields, outcome="confirm")
            result = ("confirm", {"report": outcome.body.get("report")})
        else:
            self._not_before[orphan_id] = now() + self._backoff_seconds(orphan["attempts"])
            reason = str(outcome.body["errorMessage"]).split("\n")[0]
            agent.log.warning("clean-up finished", **fields, outcome="fail", reason=reason)
            result = ("fail", outcome.body)
        entry = JobJournalEntry(orphan_id, orphan["serviceId"], "", result=result)
        try:
            self._journal.write(entry, durable=True)
        except OSError as error:
            agent.log.error("journal not writable", orphan=orphan_id, reason=error.strerror)
        self._deliver(entry)

    def _backoff_seconds(self, failures: int) -> float:
        doubled: float = self._agent.settings.orphan_seconds * 2 ** min(failures, 10)
        return min(doubled, LONGEST_BACKOFF_SECONDS) * random.uniform(0.9, 1.0)  # noqa: S311  # no secret

    def _deliver_saved(self) -> None:
        for entry in self._journal.entries():
            if entry.job_id in self._in_progress:
                # Its thread reports it.
                continue
            if entry.result is None:
                # The result carried a secret and was not written: the clean-up runs again.
                self._journal.remove(entry.job_id)
            else:
                self._deliver(entry)

    def _deliver(self, entry: JobJournalEntry) -> None:
        """The journal keeps a result that the server did not receive."""
        if entry.result is None:
            return
        verb, body = entry.result
        try:
            self._send(entry.job_id, verb, body)
        except Unreachable as error:
            self._agent.log.warning("clean-up not reported, retrying", orphan=entry.job_id, reason=str(error))
            self._postponed = True
            return
        except ServerRefusal as refusal:
            if refusal.status in (401, 403):
                self._agent.log.error("server refuses this agent", orphan=entry.job_id, reason=str(refusal))
                self._postponed = True
                return
            # 404: the orphan is closed already.
            self._agent.log.info("clean-up report refused, dropped", orphan=entry.job_id, reason=str(refusal))
        else:
            if verb == "confirm":
                self._open.pop(entry.job_id, None)
        self._journal.remove(entry.job_id)

    def _send(self, orphan_id: str, verb: str, body: Mapping[str, Any]) -> None:
        try:
            self._agent.client.post(f"/orphans/{orphan_id}/{verb}", body)
        except ServerRefusal as refusal:
            if refusal.status not in (400, 413) or body.get("report") is None:
                raise
            self._agent.client.post(f"/orphans/{orphan_id}/{verb}", {**body, "report": None})
