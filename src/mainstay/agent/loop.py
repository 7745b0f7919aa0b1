"""The agent: asks for jobs, claims them, works on them side by side, and tells what became of them.

The main thread only waits for signals. One thread asks and claims; each job has a thread of its own."""

from __future__ import annotations

import os
import random
import select
import signal
import threading
import uuid
from functools import partial

from mainstay.agent.blueprint_cache import BlueprintCache
from mainstay.agent.client import ServerRefusal, Unreachable
from mainstay.agent.job_runner import STOPPING, Outcome, WorkArea, carry_out, failed, load_ahead
from mainstay.agent.journal import JobJournal, JobJournalEntry
from mainstay.agent.lease import CANCELLED, Lease, LeaseStopFlag, now
from mainstay.agent.log import place_of
from mainstay.agent.metrics import AgentMetrics
from mainstay.agent.responses import JOB, LEASED, RENEWED, matching, matching_items
from mainstay.agent.translate import message_of
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
FIRST_PAUSE_SECONDS = 0.5
LONGEST_PAUSE_SECONDS = 60.0
JOB_ENDS_SECONDS = 2.0
LOOK_SECONDS = 0.05
# Refusals that mean: this job is not ours, or no longer; there is nothing left to tell.
GONE = frozenset({"lease_lost", "not_processing", "not_pending"})


class AlreadyRunning(Exception):
    """Another agent works with the same state directory."""


class AgentSettings:
    def __init__(
        self, *, jobs: int = 4, lease_seconds: int = 60, drift_seconds: float = 300.0, blueprints: Sequence[str] = ()
    ) -> None:
        self.jobs = jobs
        self.lease_seconds = lease_seconds
        # 0: drift is not looked for.
        self.drift_seconds = drift_seconds
        self.blueprints = blueprints


class AgentLoop:
    def __init__(
        self, client: Client, state: StateDirectory, place: WorkArea, settings: AgentSettings, log: Log
    ) -> None:
        self.client = client
        self.state = state
        self.place = place
        self.settings = settings
        self.log = log
        self.measures = AgentMetrics()
        self.stopping = threading.Event()
        self._changed = threading.Condition()
        # Services somebody is at work on, by id → how to ask him to stop.
        self._at_work: dict[str, LeaseStopFlag] = {}
        # Services with a job of ours.
        self._jobs: dict[str, threading.Thread] = {}
        self._claiming = False

    # ---- from start to end ----
    def run(self) -> None:
        """Until a signal comes. Raises `AlreadyRunning`."""
        self.state.directory("agent")
        try:
            lock = Lock(os.path.join(self.state.path, "agent", "lock"), 0.0, StopFlag())
        except Busy as busy:
            raise AlreadyRunning(f"another agent works with {self.state.path}: {busy}") from None
        try:
            self.shelf = BlueprintCache(self.state, self.client, self.settings.blueprints)
            self.journal = JobJournal(self.state)
            load_ahead()
            signals = Signals()
            self.log.info("the agent starts", server=self.client.url, pid=os.getpid())
            for entry in self.journal.entries():
                self._begin(entry.service_id, partial(self._resume, entry))
            for task in self._tasks():
                threading.Thread(target=task, name=task.__name__, daemon=True).start()
            signals.came(None)
            self._end(signals)
            self.log.info("the agent ends")
        finally:
            lock.release()

    def _tasks(self) -> Iterator[Callable[[], None]]:
        from mainstay.agent.drift import DriftWatch
        from mainstay.agent.plans import Planner

        yield self._poll
        yield Planner(self).run
        if self.settings.drift_seconds > 0:
            yield DriftWatch(self).run

    def _end(self, signals: Signals) -> None:
        """The resource at hand is finished first; a second signal ends its command as well."""
        self.stopping.set()
        at_once = False
        while self._is_busy(at_once=at_once):
            at_once = signals.came(LOOK_SECONDS) or at_once

    def _is_busy(self, *, at_once: bool) -> bool:
        with self._changed:
            for stop in self._at_work.values():
                stop.request(STOPPING, at_once=at_once)
            return bool(self._jobs or self._at_work or self._claiming)

    # ---- who works on what ----
    def _begin(self, service_id: str, work: Callable[[LeaseStopFlag], None]) -> None:
        """A job in a thread of its own. Jobs of one service come one after the other from the server."""
        thread = threading.Thread(
            target=self._work, args=(service_id, work), name=f"job of {service_id}", daemon=True
        )
        with self._changed:
            self._jobs[service_id] = thread
        thread.start()

    def _work(self, service_id: str, work: Callable[[LeaseStopFlag], None]) -> None:
        try:
            work(self._take_over(service_id))
        except Exception as error:  # noqa: BLE001  # one job's bug must not end the others
            self.log.error("bug", service=service_id, at=place_of(error))
        finally:
            with self._changed:
                self._jobs.pop(service_id, None)
                self.leave(service_id)

    def _take_over(self, service_id: str) -> LeaseStopFlag:
        """The service for a job alone: whoever only looks at it is asked to stop."""
        with self._changed:
            while (holder := self._at_work.get(service_id)) is not None:
                holder.request("a job has come")
                self._changed.wait(1.0)
            return self._note_holder(service_id)

    def take(self, service_id: str, wait_seconds: float = 0.0) -> LeaseStopFlag | None:
        """The service for somebody who only looks at it; None: there is, or will be, a job at work, or another looks."""
        with self._changed:
            # The server may know of a job's end before we do.
            self._changed.wait_for(lambda: service_id not in self._jobs, min(wait_seconds, JOB_ENDS_SECONDS))
            self._changed.wait_for(lambda: service_id not in self._at_work or service_id in self._jobs, wait_seconds)
            if service_id in self._at_work or service_id in self._jobs or self.stopping.is_set():
                return None
            return self._note_holder(service_id)

    def _note_holder(self, service_id: str) -> LeaseStopFlag:
        self._at_work[service_id] = stop = LeaseStopFlag()
        if self.stopping.is_set():
            stop.request(STOPPING)
        return stop

    def leave(self, service_id: str) -> None:
        with self._changed:
            self._at_work.pop(service_id, None)
            self.measures.at_work = len(self._jobs)
            self._changed.notify_all()

    # ---- asking ----
    def _poll(self) -> None:
        pause = Pause()
        while not self.stopping.is_set():
            with self._changed:
                free = self.settings.jobs - len(self._jobs)
                if free <= 0:
                    self._changed.wait(1.0)
                    continue
            try:
                if self._ask(free):
                    pause.reset()
                    continue
            except (Unreachable, ServerRefusal) as error:
                self.log.warning("the server gives no jobs", reason=str(error))
                pause.at_least(getattr(error, "retry_after_seconds", None))
            except OSError as error:
                self.log.error("the journal cannot be written, so nothing is claimed", reason=error.strerror)
            except Exception as error:  # noqa: BLE001  # an agent that asks no more would be no agent
                self.log.error("bug", task="asking for jobs", at=place_of(error))
            pause.wait(self.stopping)

    def _ask(self, free: int) -> bool:
        """Whether to ask again at once: nothing came in the time there was, or something that was ours to take."""
        found = self.client.get(
            "/jobs/pending",
            query={"limit": free, "wait": POLL_SECONDS},
            timeout_seconds=POLL_SECONDS + POLL_GRACE_SECONDS,
        )
        jobs = matching_items(found, JOB)
        self.measures.heard()
        begun = [job for job in jobs if self._claim(job)]
        return bool(begun) or not jobs

    def _claim(self, job: Mapping[str, Any]) -> bool:
        """Whether the job is ours, and being worked on."""
        with self._changed:
            if self.stopping.is_set() or not self._is_over(job["serviceId"]):
                return False
            # Whoever ends the agent waits for this, since a job that is won is given back.
            self._claiming = True
        try:
            return self._try_to_claim(JobJournalEntry(job["id"], job["serviceId"], str(uuid.uuid4())))
        finally:
            self._claiming = False

    def _try_to_claim(self, entry: JobJournalEntry) -> bool:
        self.journal.write(entry, durable=False)
        sent_at = now()
        try:
            claimed = self._ask_to_claim(entry)
        except Unreachable as error:
            # Nobody knows whether the claim was won: asked again under the same name, the answer is the same.
            self.log.warning("a claim got no answer", job=entry.job_id, reason=str(error))
            self._begin(entry.service_id, partial(self._resume, entry))
            return True
        if claimed is None:
            return False
        self._begin(entry.service_id, partial(self._hold, entry, claimed, sent_at))
        return True

    def _is_over(self, service_id: str) -> bool:
        """Whether nothing is left of the service's last job, whose end the server may know before we do."""
        with self._changed:
            return self._changed.wait_for(lambda: service_id not in self._jobs, JOB_ENDS_SECONDS)

    def _ask_to_claim(self, entry: JobJournalEntry) -> Mapping[str, Any] | None:
        """The job with its lease; None: it is another's."""
        body = {"leaseSeconds": self.settings.lease_seconds, "claimId": entry.claim_id}
        try:
            answer = matching(self.client.post(f"/jobs/{entry.job_id}/claim", body), LEASED)
        except ServerRefusal as refusal:
            self.log.info("a job was not ours to take", job=entry.job_id, reason=str(refusal))
            self.journal.remove(entry.job_id)
            return None
        entry.lease_token = answer["leaseToken"]
        job: Mapping[str, Any] = answer["job"]
        return job

    def _resume(self, entry: JobJournalEntry, stop: LeaseStopFlag) -> None:
        """What an earlier process, or an answer that got lost, left: a result to send, or a job to go on with."""
        if entry.result is not None:
            self.log.info("a kept result is sent", job=entry.job_id)
            self._deliver(entry, Outcome(*entry.result))
            return
        pause = Pause()
        while stop.reason is None:
            sent_at = now()
            try:
                job = self._ask_to_go_on(entry)
            except Unreachable as error:
                self.log.warning("a job cannot be resumed yet", job=entry.job_id, reason=str(error))
                pause.wait(self.stopping)
                continue
            if job is not None:
                self.log.info("the job is resumed", job=entry.job_id)
                self._hold(entry, job, sent_at, stop)
            return

    def _ask_to_go_on(self, entry: JobJournalEntry) -> Mapping[str, Any] | None:
        """The job, with its lease renewed: one that was won earlier may be nearly over."""
        job = self._ask_to_claim(entry) if entry.lease_token is None else None
        if entry.lease_token is None:
            return None
        body = {"leaseToken": entry.lease_token, "leaseSeconds": self.settings.lease_seconds}
        try:
            matching(self.client.post(f"/jobs/{entry.job_id}/renew", body), RENEWED)
            return job or matching(self.client.get(f"/jobs/{entry.job_id}"), JOB)
        except ServerRefusal as refusal:
            self.log.info("a job begun earlier is no longer ours", job=entry.job_id, reason=str(refusal))
            self.journal.remove(entry.job_id)
            return None

    # ---- working and telling ----
    def _hold(self, entry: JobJournalEntry, job: Mapping[str, Any], sent_at: float, stop: LeaseStopFlag) -> None:
        begun = now()
        token = str(entry.lease_token)
        if job.get("cancelRequested"):
            # Asked for while nobody was there to hear it.
            stop.request(CANCELLED)
        facts = {"job": entry.job_id, "action": job["action"], "service": job["service"]["name"]}
        self.log.info("a job begins", **facts, attempt=job["attempt"])
        with Lease(self.client, entry.job_id, token, self.settings.lease_seconds, sent_at, stop, self.log) as lease:
            outcome = self._carry_out(job, lease, stop)
        self.measures.job_done(outcome.verb or "lost", now() - begun)
        self.log.info(
            "a job ends",
            **facts,
            outcome=outcome.verb or "lost",
            seconds=f"{now() - begun:.3f}",
            **({"reason": str(outcome.body["errorMessage"]).split("\n")[0]} if outcome.verb == "fail" else {}),
        )
        if outcome.verb is None:
            self.journal.remove(entry.job_id)
            return
        if outcome.verb != "release":
            entry.result = (outcome.verb, outcome.body)
            self._note(entry)
        self._deliver(entry, outcome)

    def _carry_out(self, job: Mapping[str, Any], lease: Lease, stop: LeaseStopFlag) -> Outcome:
        pause = Pause()
        while True:
            try:
                return carry_out(job, self.client, self.shelf, self.place, lease, stop)
            except Unreachable as error:
                if stop.reason is not None:
                    return Outcome(None if stop.is_lost() else "release")
                self.log.warning("the server is needed and away", job=job["id"], reason=str(error))
                pause.wait(self.stopping)
            except OSError as error:
                return failed(f"the agent cannot work here: {error.strerror}")
            except Exception as error:  # noqa: BLE001  # told at once, it need not be found out by a lease that ends
                self.log.error("bug", job=job["id"], at=place_of(error))
                return failed(f"bug in the agent: {place_of(error)}")

    def _note(self, entry: JobJournalEntry) -> None:
        """Without room on the disk the work goes on; a kill would then lose what could not be noted."""
        try:
            self.journal.write(entry, durable=True)
        except OSError as error:
            self.log.error("the journal cannot be written", job=entry.job_id, reason=error.strerror)

    def _deliver(self, entry: JobJournalEntry, outcome: Outcome) -> None:
        """Until the server has it, or does not want it. When the agent stops, the journal knows what is left to do."""
        pause = Pause()
        verb, body = str(outcome.verb), outcome.body
        while True:
            try:
                answer = self.client.post(f"/jobs/{entry.job_id}/{verb}", {**body, "leaseToken": entry.lease_token})
                if answer is not None:
                    raise Unreachable("the answer of the server is not as agreed: it should be empty")
                break
            except ServerRefusal as refusal:
                if refusal.status in (401, 403):
                    self.log.error("the server refuses this agent", job=entry.job_id, reason=str(refusal))
                elif verb == "complete" and refusal.code not in GONE and refusal.status in (400, 409):
                    # The job is still ours: what was reported is not taken.
                    verb, body = "fail", self._not_taken(refusal, body)
                    continue
                elif refusal.status in (400, 413) and body.get("report") is not None:
                    body = {**body, "report": None}
                    continue
                else:
                    self.log.warning("a result was refused and dropped", job=entry.job_id, reason=str(refusal))
                    break
            except Unreachable as error:
                self.log.warning("a result waits for the server", job=entry.job_id, reason=str(error))
            if self.stopping.is_set():
                return
            pause.wait(self.stopping)
        self.journal.remove(entry.job_id)

    def _not_taken(self, refusal: ServerRefusal, body: Mapping[str, Any]) -> dict[str, Any]:
        told = [f"{path}: {message}" for path, message in refusal.faults] or [str(refusal)]
        message = message_of(["the outputs were refused by the server", *told])
        return {"errorMessage": message, "report": body.get("report")}


class Signals:
    """SIGTERM and SIGINT as bytes in a pipe: a handler that takes locks may wait for the very thread it interrupts."""

    def __init__(self) -> None:
        self._reader, writer = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        signal.set_wakeup_fd(writer)
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_: None)

    def came(self, seconds: float | None) -> bool:
        """Waits for one more, as long as that; None is for ever."""
        ready = select.select([self._reader], [], [], seconds)[0]
        return bool(ready) and bool(os.read(self._reader, 1))


class Pause:
    """Longer each time, with jitter, so that agents that lost a server together do not come back together."""

    def __init__(self) -> None:
        self._seconds = FIRST_PAUSE_SECONDS
        self._least = 0.0

    def reset(self) -> None:
        self._seconds = FIRST_PAUSE_SECONDS

    def at_least(self, seconds: float | None) -> None:
        self._least = min(seconds or 0.0, LONGEST_PAUSE_SECONDS)

    def wait(self, stopping: threading.Event) -> None:
        seconds = max(self._least, random.uniform(self._seconds / 2, self._seconds))  # noqa: S311  # no secret
        self._least = 0.0
        self._seconds = min(self._seconds * 2, LONGEST_PAUSE_SECONDS)
        if stopping.is_set():
            # Whoever has something to finish while we stop must not do so in a tight loop.
            threading.Event().wait(min(seconds, 1.0))
        else:
            stopping.wait(seconds)
