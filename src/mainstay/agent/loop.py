"""The agent loop: polls for jobs, claims them, runs them in parallel and delivers the results.

The main thread only waits for signals. One thread polls and claims; each job has its own thread."""

from __future__ import annotations

import os
import random
import select
import signal
import threading
import uuid
from dataclasses import dataclass
from functools import partial

from mainstay.agent.blueprint_cache import BlueprintCache
from mainstay.agent.client import ServerRefusal, Unreachable
from mainstay.agent.job_runner import STOPPING, Outcome, WorkArea, failed, preload_engine, run_job
from mainstay.agent.journal import JobJournal, JobJournalEntry
from mainstay.agent.lease import CANCELLED, Lease, LeaseStopFlag, now
from mainstay.agent.log import origin_of
from mainstay.agent.metrics import AgentMetrics
from mainstay.agent.orphans import OrphanCleaner
from mainstay.agent.responses import JOB, LEASED, RENEWED, require_items, require_shape
from mainstay.agent.translate import bounded_message, service_key
from mainstay.converge.contract import StopFlag
from mainstay.converge.host.state import Busy, Lock, StateDirectory

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from typing import Any

    from mainstay.agent.client import Client
    from mainstay.agent.log import Log

POLL_SECONDS = 30
POLL_GRACE_SECONDS = 15
FIRST_BACKOFF_SECONDS = 0.5
LONGEST_BACKOFF_SECONDS = 60.0
JOB_END_WAIT_SECONDS = 2.0
STOP_POLL_SECONDS = 0.05
GOODBYE_SECONDS = 5.0
# Pause between polls while every pending job waits for a clean-up: the server returns those jobs at once.
BLOCKED_POLL_SECONDS = 1.0
LARGEST_POLL = 100
# Refusal codes of a job that this agent does not hold (any more): its result is dropped.
GONE = frozenset({"lease_lost", "not_processing", "not_pending"})


class AlreadyRunning(Exception):
    """Another agent uses the same state directory."""


@dataclass(kw_only=True)
class AgentSettings:
    jobs: int = 4
    lease_seconds: int = 60
    # 0: no drift checks.
    drift_seconds: float = 300.0
    orphan_seconds: float = 60.0
    blueprints: Sequence[str] = ()
    # File with the keys that sign blueprints; None: blueprints need no signature.
    trust: str | None = None


class AgentLoop:
    def __init__(
        self, client: Client, state: StateDirectory, work_area: WorkArea, settings: AgentSettings, log: Log
    ) -> None:
        self.client = client
        self.state = state
        self.work_area = work_area
        self.settings = settings
        self.log = log
        self.metrics = AgentMetrics()
        self.stopping = threading.Event()
        self._changed = threading.Condition()
        # Services in use by a job, a plan or a drift check: id → how to stop it.
        self._holders: dict[str, LeaseStopFlag] = {}
        # Services with a claimed job.
        self._jobs: dict[str, threading.Thread] = {}
        # Type and name of the services with a claimed job, by id, and those of running clean-ups.
        self._job_keys: dict[str, tuple[str, str]] = {}
        self._clean_up_keys: set[tuple[str, str]] = set()
        self._claiming = False
        # How many jobs of each service have started in this process.
        self._starts: dict[str, int] = {}
        # Pending jobs at the last poll that wait for a clean-up.
        self._blocked = 0

    # ---- start and stop ----
    def run(self) -> None:
        """Runs until a signal arrives. Raises `AlreadyRunning`."""
        self.state.directory("agent")
        try:
            lock = Lock(os.path.join(self.state.path, "agent", "lock"), 0.0, StopFlag())
        except Busy as busy:
            raise AlreadyRunning(f"another agent uses {self.state.path}: {busy}") from None
        try:
            self.blueprint_cache = BlueprintCache(
                self.state, self.client, self.settings.blueprints, self.settings.trust
            )
            self.journal = JobJournal(self.state)
            self.cleaner = OrphanCleaner(self)
            preload_engine()
            signals = Signals()
            self.log.info("agent started", server=self.client.url, pid=os.getpid())
            for entry in self.journal.entries():
                self._start_job(entry.service_id, partial(self._resume, entry))
            for task in self._tasks():
                threading.Thread(target=task, name=task.__name__, daemon=True).start()
            signals.wait(None)
            self.log.info("agent stopping")
            self._stop(signals)
            self._say_goodbye()
            self.log.info("agent stopped")
        finally:
            lock.release()

    def _tasks(self) -> Iterator[Callable[[], None]]:
        from mainstay.agent.drift import DriftWatch
        from mainstay.agent.plans import Planner

        yield self.cleaner.run
        yield self._poll
        yield Planner(self).run
        if self.settings.drift_seconds > 0:
            yield DriftWatch(self).run

    def _stop(self, signals: Signals) -> None:
        """Waits until each run has finished its current resource; a second signal also ends the running commands."""
        self.stopping.set()
        at_once = False
        while self._request_stop(at_once=at_once):
            at_once = signals.wait(STOP_POLL_SECONDS) or at_once

    def _say_goodbye(self) -> None:
        """Sets the status, so that the server need not wait for the silence. Every other request would undo it: the
        threads that poll send none any more."""
        try:
            self.client.call("PUT", "/agents/me/status", {"status": "Disconnected"}, timeout_seconds=GOODBYE_SECONDS)
        except (Unreachable, ServerRefusal) as error:
            self.log.info("server not informed of the stop", reason=str(error))

    def _request_stop(self, *, at_once: bool) -> bool:
        """Whether anything is still running."""
        with self._changed:
            for stop in self._holders.values():
                stop.request(STOPPING, at_once=at_once)
            return bool(self._jobs or self._holders or self._claiming)

    # ---- one holder per service ----
    def _start_job(self, service_id: str, work: Callable[[LeaseStopFlag], None]) -> None:
        """Starts the thread of a job. The server sends the jobs of one service one after the other."""
        thread = threading.Thread(
            target=self._job_thread, args=(service_id, work), name=f"job of {service_id}", daemon=True
        )
        with self._changed:
            self._jobs[service_id] = thread
            self._starts[service_id] = self._starts.get(service_id, 0) + 1
        thread.start()

    def job_starts(self) -> dict[str, int]:
        with self._changed:
            return dict(self._starts)

    def _job_thread(self, service_id: str, work: Callable[[LeaseStopFlag], None]) -> None:
        try:
            work(self._acquire_for_job(service_id))
        except Exception as error:  # noqa: BLE001  # a bug in one job must not end the others
            self.log.error("bug", service=service_id, at=origin_of(error))
        finally:
            with self._changed:
                self._jobs.pop(service_id, None)
                self._job_keys.pop(service_id, None)
                self.release(service_id)

    def _acquire_for_job(self, service_id: str) -> LeaseStopFlag:
        """Stops a plan or drift check of the service and waits for its end."""
        with self._changed:
            while (holder := self._holders.get(service_id)) is not None:
                holder.request("a job was claimed")
                self._changed.wait(1.0)
            return self._add_holder(service_id)

    def try_acquire(self, service_id: str, wait_seconds: float = 0.0) -> LeaseStopFlag | None:
        """Holds the service for a plan or drift check. None: a job or another check has it."""
        with self._changed:
            # The server knows the end of a job before its thread has ended.
            self._changed.wait_for(lambda: service_id not in self._jobs, min(wait_seconds, JOB_END_WAIT_SECONDS))
            self._changed.wait_for(lambda: service_id not in self._holders or service_id in self._jobs, wait_seconds)
            if service_id in self._holders or service_id in self._jobs or self.stopping.is_set():
                return None
            return self._add_holder(service_id)

    def start_clean_up(self, key: tuple[str, str]) -> bool:
        """Whether no job of a service with this type and name runs; then none is claimed until `end_clean_up`."""
        with self._changed:
            if key in self._job_keys.values():
                return False
            self._clean_up_keys.add(key)
            return True

    def end_clean_up(self, key: tuple[str, str]) -> None:
        with self._changed:
            self._clean_up_keys.discard(key)

    def _register_job(self, service: Mapping[str, Any]) -> bool:
        """Whether the job may run: no clean-up of the same type and name is running."""
        with self._changed:
            if service_key(service) in self._clean_up_keys:
                return False
            self._job_keys[service["id"]] = service_key(service)
            return True

    def _add_holder(self, service_id: str) -> LeaseStopFlag:
        self._holders[service_id] = stop = LeaseStopFlag()
        if self.stopping.is_set():
            stop.request(STOPPING)
        return stop

    def release(self, service_id: str) -> None:
        with self._changed:
            self._holders.pop(service_id, None)
            self.metrics.jobs_at_work = len(self._jobs)
            self._changed.notify_all()

    # ---- polling and claiming ----
    def _poll(self) -> None:
        backoff = Backoff()
        while not self.stopping.is_set():
            if not self.cleaner.was_tried.wait(BLOCKED_POLL_SECONDS):
                continue
            with self._changed:
                free = self.settings.jobs - len(self._jobs)
                if free <= 0:
                    self._changed.wait(1.0)
                    continue
            try:
                if self._poll_once(free):
                    backoff.reset()
                    continue
            except (Unreachable, ServerRefusal) as error:
                self.log.warning("polling for jobs failed", reason=str(error))
                backoff.at_least(getattr(error, "retry_after_seconds", None))
            except OSError as error:
                self.log.error("journal not writable, no jobs are claimed", reason=error.strerror)
            except Exception as error:  # noqa: BLE001  # polling must continue
                self.log.error("bug", task="job polling", at=origin_of(error))
            backoff.wait(self.stopping)

    def _poll_once(self, free: int) -> bool:
        """Whether to poll again at once: the long poll ended without jobs, or a job was claimed."""
        found = self.client.get(
            "/jobs/pending",
            # More than is free, so that jobs that wait for a clean-up do not hide the others.
            query={"limit": min(free + self._blocked, LARGEST_POLL), "wait": POLL_SECONDS},
            timeout_seconds=POLL_SECONDS + POLL_GRACE_SECONDS,
        )
        jobs = require_items(found, JOB)
        self.metrics.server_answered()
        claimable = [job for job in jobs if job.get("orphanId") is None]
        self._blocked = len(jobs) - len(claimable)
        claimed = [job for job in claimable[:free] if self._claim(job)]
        if self._blocked and not claimable:
            for job in jobs:
                self.cleaner.notice(job["orphanId"])
            self.stopping.wait(BLOCKED_POLL_SECONDS)
            return True
        return bool(claimed) or not jobs

    def _claim(self, job: Mapping[str, Any]) -> bool:
        """Whether the job was claimed and its thread started."""
        with self._changed:
            if self.stopping.is_set():
                return False
            # The server knows the end of the last job of the service before its thread has ended.
            has_ended = self._changed.wait_for(lambda: job["serviceId"] not in self._jobs, JOB_END_WAIT_SECONDS)
            if not has_ended or not self._register_job(job["service"]):
                return False
            # A stopping agent waits for the claim, to release the job it may get.
            self._claiming = True
        try:
            return self._try_to_claim(JobJournalEntry(job["id"], job["serviceId"], str(uuid.uuid4())))
        finally:
            with self._changed:
                self._claiming = False
                if job["serviceId"] not in self._jobs:
                    self._job_keys.pop(job["serviceId"], None)

    def _try_to_claim(self, entry: JobJournalEntry) -> bool:
        self.journal.write(entry, durable=False)
        sent_at = now()
        try:
            job = self._send_claim(entry)
        except Unreachable as error:
            # The claim may have succeeded: repeated with the same id, it returns the same lease.
            self.log.warning("no response to a claim, retrying", job=entry.job_id, reason=str(error))
            self._start_job(entry.service_id, partial(self._resume, entry))
            return True
        if job is None:
            return False
        self._start_job(entry.service_id, partial(self._run_claimed, entry, job, sent_at))
        return True

    def _send_claim(self, entry: JobJournalEntry) -> Mapping[str, Any] | None:
        """Returns the job and stores its lease in the entry. None: the server refused."""
        body = {"leaseSeconds": self.settings.lease_seconds, "claimId": entry.claim_id}
        try:
            answer = require_shape(self.client.post(f"/jobs/{entry.job_id}/claim", body), LEASED)
        except ServerRefusal as refusal:
            self.log.info("claim refused", job=entry.job_id, reason=str(refusal))
            self.journal.remove(entry.job_id)
            return None
        entry.lease_token = answer["leaseToken"]
        job: Mapping[str, Any] = answer["job"]
        return job

    def _resume(self, entry: JobJournalEntry, stop: LeaseStopFlag) -> None:
        """Delivers the saved result, or continues the job, of an earlier process or of a claim without a response."""
        if entry.result is not None:
            self.log.info("delivering saved result", job=entry.job_id)
            self._deliver(entry, Outcome(*entry.result))
            return
        backoff = Backoff()
        while stop.reason is None:
            sent_at = now()
            try:
                job = self._renew_claim(entry)
            except Unreachable as error:
                self.log.warning("job cannot be resumed yet", job=entry.job_id, reason=str(error))
                backoff.wait(self.stopping)
                continue
            if job is not None:
                self._run_resumed(entry, job, sent_at, stop)
            return

    def _run_resumed(
        self, entry: JobJournalEntry, job: Mapping[str, Any], sent_at: float, stop: LeaseStopFlag
    ) -> None:
        """Returns the job to the queue if a clean-up of the same type and name must come first."""
        self.cleaner.was_read.wait(self.settings.lease_seconds / 4)
        if self.cleaner.blocks(job["service"]) or not self._register_job(job["service"]):
            self.log.info("job waits for a clean-up", job=entry.job_id)
            self._deliver(entry, Outcome("release"))
            return
        self.log.info("job resumed", job=entry.job_id)
        self._run_claimed(entry, job, sent_at, stop)

    def _renew_claim(self, entry: JobJournalEntry) -> Mapping[str, Any] | None:
        """The job with a renewed lease, since the old one may end soon. None: the job is held by another agent or over."""
        job = self._send_claim(entry) if entry.lease_token is None else None
        if entry.lease_token is None:
            return None
        body = {"leaseToken": entry.lease_token, "leaseSeconds": self.settings.lease_seconds}
        try:
            require_shape(self.client.post(f"/jobs/{entry.job_id}/renew", body), RENEWED)
            return job or require_shape(self.client.get(f"/jobs/{entry.job_id}"), JOB)
        except ServerRefusal as refusal:
            self.log.info("saved job dropped", job=entry.job_id, reason=str(refusal))
            self.journal.remove(entry.job_id)
            return None

    # ---- running and delivering ----
    def _run_claimed(
        self, entry: JobJournalEntry, job: Mapping[str, Any], sent_at: float, stop: LeaseStopFlag
    ) -> None:
        started = now()
        token = str(entry.lease_token)
        if job.get("cancelRequested"):
            # The cancel was requested while no agent ran the job.
            stop.request(CANCELLED)
        fields = {"job": entry.job_id, "action": job["action"], "service": job["service"]["name"]}
        self.log.info("job started", **fields, attempt=job["attempt"])
        with Lease(self.client, entry.job_id, token, self.settings.lease_seconds, sent_at, stop, self.log) as lease:
            outcome = self._run_job(job, lease, stop)
        self.metrics.count_job(outcome.verb or "lost", now() - started)
        self.log.info(
            "job finished",
            **fields,
            outcome=outcome.verb or "lost",
            seconds=f"{now() - started:.3f}",
            **({"reason": str(outcome.body["errorMessage"]).split("\n")[0]} if outcome.verb == "fail" else {}),
        )
        if outcome.verb is None:
            self.journal.remove(entry.job_id)
            # The service may have been deleted with force.
            self.cleaner.notice()
            return
        if outcome.verb != "release":
            entry.result = (outcome.verb, outcome.body)
            self._save(entry)
        self._deliver(entry, outcome)

    def _run_job(self, job: Mapping[str, Any], lease: Lease, stop: LeaseStopFlag) -> Outcome:
        backoff = Backoff()
        while True:
            try:
                return run_job(job, self.client, self.blueprint_cache, self.work_area, lease, stop)
            except Unreachable as error:
                if stop.reason is not None:
                    return Outcome(None if stop.is_lost() else "release")
                self.log.warning("job waits for the server", job=job["id"], reason=str(error))
                backoff.wait(self.stopping)
            except OSError as error:
                return failed(f"the agent cannot run the job: {error.strerror}")
            except Exception as error:  # noqa: BLE001  # fails the job at once instead of after its lease
                self.log.error("bug", job=job["id"], at=origin_of(error))
                return failed(f"bug in the agent: {origin_of(error)}")

    def _save(self, entry: JobJournalEntry) -> None:
        """On a full disk the agent continues; a kill would then lose the result."""
        try:
            self.journal.write(entry, durable=True)
        except OSError as error:
            self.log.error("journal not writable", job=entry.job_id, reason=error.strerror)

    def _deliver(self, entry: JobJournalEntry, outcome: Outcome) -> None:
        """Retries until the server accepts or refuses the result. When the agent stops first, the journal keeps it."""
        backoff = Backoff()
        verb, body = str(outcome.verb), outcome.body
        while True:
            try:
                answer = self.client.post(f"/jobs/{entry.job_id}/{verb}", {**body, "leaseToken": entry.lease_token})
                if answer is not None:
                    raise Unreachable("unexpected response of the server: it is not empty")
                break
            except ServerRefusal as refusal:
                if refusal.status in (401, 403):
                    self.log.error("server refuses this agent", job=entry.job_id, reason=str(refusal))
                elif verb == "complete" and refusal.code not in GONE and refusal.status in (400, 409):
                    # The lease is still valid: only the outputs were refused.
                    verb, body = "fail", self._refused_outputs(refusal, body)
                    continue
                elif refusal.status in (400, 413) and body.get("report") is not None:
                    body = {**body, "report": None}
                    continue
                else:
                    self.log.warning("result refused by the server, dropped", job=entry.job_id, reason=str(refusal))
                    break
            except Unreachable as error:
                self.log.warning("result not delivered, retrying", job=entry.job_id, reason=str(error))
            if self.stopping.is_set():
                return
            backoff.wait(self.stopping)
        self.journal.remove(entry.job_id)

    def _refused_outputs(self, refusal: ServerRefusal, body: Mapping[str, Any]) -> dict[str, Any]:
        reasons = [f"{path}: {message}" for path, message in refusal.faults] or [str(refusal)]
        message = bounded_message(["the server refused the outputs", *reasons])
        return {"errorMessage": message, "report": body.get("report")}


class Signals:
    """SIGTERM and SIGINT as bytes in a pipe: a handler that takes locks could deadlock with the thread it interrupts."""

    def __init__(self) -> None:
        self._reader, writer = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        signal.set_wakeup_fd(writer)
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_: None)

    def wait(self, seconds: float | None) -> bool:
        """Waits for the next signal; None waits without limit. Whether one arrived."""
        ready = select.select([self._reader], [], [], seconds)[0]
        return bool(ready) and bool(os.read(self._reader, 1))


class Backoff:
    """Waits longer each time, with jitter, so that agents do not all return at once after an outage."""

    def __init__(self) -> None:
        self._seconds = FIRST_BACKOFF_SECONDS
        self._least = 0.0

    def reset(self) -> None:
        self._seconds = FIRST_BACKOFF_SECONDS

    def at_least(self, seconds: float | None) -> None:
        self._least = min(seconds or 0.0, LONGEST_BACKOFF_SECONDS)

    def wait(self, stopping: threading.Event) -> None:
        seconds = max(self._least, random.uniform(self._seconds / 2, self._seconds))  # noqa: S311  # no secret
        self._least = 0.0
        self._seconds = min(self._seconds * 2, LONGEST_BACKOFF_SECONDS)
        if stopping.is_set():
            # A thread that finishes its work while the agent stops must not retry in a tight loop.
            threading.Event().wait(min(seconds, 1.0))
        else:
            stopping.wait(seconds)
