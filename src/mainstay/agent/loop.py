"""The agent loop: polls for jobs, claims them, runs them in parallel and delivers the results.

The main thread only waits for signals. One thread polls and claims; each job has its own thread."""

from __future__ import annotations

import os
import select
import signal
import threading
import uuid
from collections.abc import Callable, Iterator, Mapping
from functools import partial

from mainstay.agent.blueprint_cache import BlueprintCache
from mainstay.agent.client import ServerRefusal, Unreachable
from mainstay.agent.context import AgentContext, Backoff
from mainstay.agent.drift import DriftWatch
from mainstay.agent.fact_reporter import FactReporter
from mainstay.agent.job_documents import bounded_message
from mainstay.agent.job_processes import JobProcesses
from mainstay.agent.job_runner import Outcome, failed, preload_engine, run_job
from mainstay.agent.journal import JobJournal, JobJournalEntry
from mainstay.agent.lease import Lease
from mainstay.agent.log import origin_of
from mainstay.agent.orphans import OrphanCleaner
from mainstay.agent.plans import Planner
from mainstay.agent.responses import JOB, LEASED, RENEWED, require_items, require_shape
from mainstay.agent.stop_flag import CANCELLED, LeaseStopFlag, now
from mainstay.converge.failures import StopFlag
from mainstay.converge.host.state import Busy, Lock
from mainstay.foundation import Any

POLL_SECONDS = 30
POLL_GRACE_SECONDS = 15
STOP_POLL_SECONDS = 0.05
# When a stopping agent interrupts its runs, and when it no longer waits for them: with the report at most 30 seconds.
FINISH_SECONDS, STOP_SECONDS, REPORT_STOP_SECONDS = 15.0, 24.0, 5.0
# Pause between polls while every pending job waits for a clean-up: the server returns those jobs at once.
BLOCKED_POLL_SECONDS = 1.0
LARGEST_POLL = 100
# Refusal codes of a job that this agent does not hold (any more): its result is dropped.
GONE = frozenset({"lease_lost", "not_processing", "not_pending"})


class AlreadyRunning(Exception):
    """Another agent uses the same state directory."""


class AgentLoop:
    def __init__(self, agent: AgentContext) -> None:
        """Call it before any thread is started: the processes of jobs are forked from this one as it is now."""
        preload_engine()
        agent.processes = JobProcesses()
        self._agent = agent
        self._log = agent.log
        # Pending jobs at the last poll that wait for a clean-up.
        self._blocked = 0

    # ---- start and stop ----
    def run(self) -> None:
        """Runs until a signal arrives. Raises `AlreadyRunning`."""
        self._agent.state.directory("agent")
        try:
            lock = Lock(os.path.join(self._agent.state.path, "agent", "lock"), 0.0, StopFlag())
        except Busy as busy:
            raise AlreadyRunning(f"another agent uses {self._agent.state.path}: {busy}") from None
        try:
            self._agent.blueprint_cache = BlueprintCache(
                self._agent.state,
                self._agent.client,
                self._log,
                self._agent.settings.blueprints,
                self._agent.settings.trust,
            )
            self._journal = JobJournal(self._agent.state)
            self._cleaner = OrphanCleaner(self._agent)
            signals = Signals()
            self._log.info("agent started", server=self._agent.client.url, pid=os.getpid())
            for entry in self._journal.entries():
                self._start_job(entry.service_id, partial(self._resume, entry))
            for task in self._tasks():
                threading.Thread(target=task, name=task.__name__, daemon=True).start()
            signals.wait(None)
            self._log.info("agent stopping")
            self._stop(signals)
            self._report_stop()
            self._log.info("agent stopped")
        finally:
            lock.release()
        if self._agent.processes.has_ended:
            # The service manager restarts an agent that fails.
            raise SystemExit(1)

    def _tasks(self) -> Iterator[Callable[[], None]]:
        yield self._cleaner.run
        yield self._poll
        drift = DriftWatch(self._agent)
        yield Planner(self._agent, {"orphans": self._cleaner.notice, "repairs": drift.notice}).run
        yield drift.run
        yield FactReporter(self._agent).run

    def _stop(self, signals: Signals) -> None:
        """Waits until each run has finished its current resource. After a while, or a second signal, the resource is
        interrupted. What is left then, such as a package manager, ends without the agent."""
        self._agent.stopping.set()
        at_once = False
        started = now()
        while self._agent.services.request_stop(at_once=at_once):
            at_once = signals.wait(STOP_POLL_SECONDS) or at_once or now() - started > FINISH_SECONDS
            if now() - started > STOP_SECONDS:
                self._log.warning("agent stops without waiting for its jobs")
                return

    def _report_stop(self) -> None:
        """Sets the status, so that the server need not wait for the silence. Every other request would undo it: a thread
        that found the agent running just before may be about to poll."""
        try:
            self._agent.client.call_last(
                "PUT", "/agents/me/status", {"status": "Disconnected"}, timeout_seconds=REPORT_STOP_SECONDS
            )
        except (Unreachable, ServerRefusal) as error:
            self._log.info("server not informed of the stop", reason=str(error))

    def _start_job(self, service_id: str, work: Callable[[LeaseStopFlag], None]) -> None:
        """Starts the thread of a job. The server sends the jobs of one service one after the other."""
        thread = threading.Thread(
            target=self._job_thread, args=(service_id, work), name=f"job of {service_id}", daemon=True
        )
        self._agent.services.start_job(service_id)
        thread.start()

    def _job_thread(self, service_id: str, work: Callable[[LeaseStopFlag], None]) -> None:
        services = self._agent.services
        try:
            work(services.acquire_for_job(service_id))
        except Exception as error:  # noqa: BLE001  # a bug in one job must not end the others
            self._log.error("bug", service=service_id, at=origin_of(error))
        finally:
            services.end_job(service_id)

    # ---- polling and claiming ----
    def _poll(self) -> None:
        backoff = Backoff()
        while not self._agent.stopping.is_set():
            if not self._cleaner.was_tried.wait(BLOCKED_POLL_SECONDS):
                continue
            free = self._agent.services.free_job_slots(self._agent.settings.jobs)
            if not free:
                continue
            try:
                if self._poll_once(free):
                    backoff.reset()
                    continue
            except (Unreachable, ServerRefusal) as error:
                self._log.warning("polling for jobs failed", reason=str(error))
                backoff.at_least(getattr(error, "retry_after_seconds", None))
            except OSError as error:
                self._log.error("journal not writable, no jobs are claimed", reason=error.strerror)
            except Exception as error:  # noqa: BLE001  # polling must continue
                self._log.error("bug", task="job polling", at=origin_of(error))
            backoff.wait(self._agent.stopping)

    def _poll_once(self, free: int) -> bool:
        """Whether to poll again at once: the long poll ended without jobs, or a job was claimed."""
        found = self._agent.client.get(
            "/jobs/pending",
            # More than is free, so that jobs that wait for a clean-up do not hide the others.
            query={"limit": min(free + self._blocked, LARGEST_POLL), "wait": POLL_SECONDS},
            timeout_seconds=POLL_SECONDS + POLL_GRACE_SECONDS,
        )
        jobs = require_items(found, JOB)
        self._agent.metrics.server_answered()
        claimable = [job for job in jobs if job.get("orphanId") is None]
        self._blocked = len(jobs) - len(claimable)
        claimed = [job for job in claimable[:free] if self._claim(job)]
        if self._blocked and not claimable:
            for job in jobs:
                self._cleaner.notice(job["orphanId"])
            self._agent.stopping.wait(BLOCKED_POLL_SECONDS)
            return True
        return bool(claimed) or not jobs

    def _claim(self, job: Mapping[str, Any]) -> bool:
        """Whether the job was claimed and its thread started."""
        services = self._agent.services
        if not services.start_claim(job["service"]):
            return False
        try:
            return self._try_to_claim(JobJournalEntry(job["id"], job["serviceId"], str(uuid.uuid4())))
        finally:
            services.end_claim(job["serviceId"])

    def _try_to_claim(self, entry: JobJournalEntry) -> bool:
        self._journal.write(entry, durable=False)
        sent_at = now()
        try:
            job = self._send_claim(entry)
        except Unreachable as error:
            # The claim may have succeeded: repeated with the same id, it returns the same lease.
            self._log.warning("no response to a claim, retrying", job=entry.job_id, reason=str(error))
            self._start_job(entry.service_id, partial(self._resume, entry))
            return True
        if job is None:
            return False
        self._start_job(entry.service_id, partial(self._run_claimed, entry, job, sent_at))
        return True

    def _send_claim(self, entry: JobJournalEntry) -> Mapping[str, Any] | None:
        """Returns the job and stores its lease in the entry. None: the server refused."""
        body = {"leaseSeconds": self._agent.settings.lease_seconds, "claimId": entry.claim_id}
        try:
            answer = require_shape(self._agent.client.post(f"/jobs/{entry.job_id}/claim", body), LEASED)
        except ServerRefusal as refusal:
            self._log.info("claim refused", job=entry.job_id, reason=str(refusal))
            self._journal.remove(entry.job_id)
            return None
        entry.lease_token = answer["leaseToken"]
        job: Mapping[str, Any] = answer["job"]
        return job

    def _resume(self, entry: JobJournalEntry, stop: LeaseStopFlag) -> None:
        """Delivers the saved result, or continues the job, of an earlier process or of a claim without a response."""
        if entry.result is not None:
            self._log.info("delivering saved result", job=entry.job_id)
            self._deliver(entry, Outcome(*entry.result))
            return
        backoff = Backoff()
        while stop.reason is None:
            sent_at = now()
            try:
                job = self._renew_claim(entry)
            except Unreachable as error:
                self._log.warning("job cannot be resumed yet", job=entry.job_id, reason=str(error))
                backoff.wait(self._agent.stopping)
                continue
            if job is not None:
                self._run_resumed(entry, job, sent_at, stop)
            return

    def _run_resumed(
        self, entry: JobJournalEntry, job: Mapping[str, Any], sent_at: float, stop: LeaseStopFlag
    ) -> None:
        """Returns the job to the queue if a clean-up of the same type and name must come first."""
        self._cleaner.was_read.wait(self._agent.settings.lease_seconds / 4)
        if self._cleaner.blocks(job["service"]) or not self._agent.services.register_job(job["service"]):
            self._log.info("job waits for a clean-up", job=entry.job_id)
            self._deliver(entry, Outcome("release"))
            return
        self._log.info("job resumed", job=entry.job_id)
        self._run_claimed(entry, job, sent_at, stop)

    def _renew_claim(self, entry: JobJournalEntry) -> Mapping[str, Any] | None:
        """The job with a renewed lease, since the old one may end soon. None: the job is held by another agent or over."""
        job = self._send_claim(entry) if entry.lease_token is None else None
        if entry.lease_token is None:
            return None
        body = {"leaseToken": entry.lease_token, "leaseSeconds": self._agent.settings.lease_seconds}
        try:
            require_shape(self._agent.client.post(f"/jobs/{entry.job_id}/renew", body), RENEWED)
            return job or require_shape(self._agent.client.get(f"/jobs/{entry.job_id}"), JOB)
        except ServerRefusal as refusal:
            self._log.info("saved job dropped", job=entry.job_id, reason=str(refusal))
            self._journal.remove(entry.job_id)
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
        self._log.info("job started", **fields, attempt=job["attempt"])
        with Lease(self._agent, entry.job_id, token, sent_at, stop) as lease:
            outcome = self._run_job(job, lease, stop)
        self._agent.metrics.count_job(outcome.verb or "lost", now() - started)
        self._log.info(
            "job finished",
            **fields,
            outcome=outcome.verb or "lost",
            seconds=f"{now() - started:.3f}",
            **({"reason": str(outcome.body["errorMessage"]).split("\n")[0]} if outcome.verb == "fail" else {}),
        )
        if outcome.verb is None:
            self._journal.remove(entry.job_id)
            # The service may have been deleted with force.
            self._cleaner.notice()
            return
        if outcome.verb != "release":
            entry.result = (outcome.verb, outcome.body)
            self._save(entry)
        self._deliver(entry, outcome)

    def _run_job(self, job: Mapping[str, Any], lease: Lease, stop: LeaseStopFlag) -> Outcome:
        backoff = Backoff()
        while True:
            try:
                return run_job(self._agent, job, stop, lease)
            except Unreachable as error:
                if stop.reason is not None:
                    return Outcome(None if stop.is_lost() else "release")
                self._log.warning("job waits for the server", job=job["id"], reason=str(error))
                backoff.wait(self._agent.stopping)
            except OSError as error:
                return failed(f"the agent cannot run the job: {error.strerror}")
            except Exception as error:  # noqa: BLE001  # fails the job at once instead of after its lease
                self._log.error("bug", job=job["id"], at=origin_of(error))
                return failed(f"bug in the agent: {origin_of(error)}")

    def _save(self, entry: JobJournalEntry) -> None:
        """On a full disk the agent continues; a kill would then lose the result."""
        try:
            self._journal.write(entry, durable=True)
        except OSError as error:
            self._log.error("journal not writable", job=entry.job_id, reason=error.strerror)

    def _deliver(self, entry: JobJournalEntry, outcome: Outcome) -> None:
        """Retries until the server accepts or refuses the result. When the agent stops first, the journal keeps it."""
        backoff = Backoff()
        verb, body = str(outcome.verb), outcome.body
        while True:
            try:
                answer = self._agent.client.post(
                    f"/jobs/{entry.job_id}/{verb}", {**body, "leaseToken": entry.lease_token}
                )
                if answer is not None:
                    raise Unreachable("unexpected response of the server: it is not empty")
                break
            except ServerRefusal as refusal:
                if refusal.status in (401, 403):
                    self._log.error("server refuses this agent", job=entry.job_id, reason=str(refusal))
                elif verb == "complete" and refusal.code not in GONE and refusal.status in (400, 409):
                    # The lease is still valid: only the outputs were refused.
                    verb, body = "fail", self._refused_outputs(refusal, body)
                    continue
                elif refusal.status in (400, 413) and body.get("report") is not None:
                    body = {**body, "report": None}
                    continue
                else:
                    self._log.warning("result refused by the server, dropped", job=entry.job_id, reason=str(refusal))
                    break
            except Unreachable as error:
                self._log.warning("result not delivered, retrying", job=entry.job_id, reason=str(error))
            if self._agent.stopping.is_set():
                return
            backoff.wait(self._agent.stopping)
        self._journal.remove(entry.job_id)

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
