"""Which services of this agent are in use: one job, plan, drift check or clean-up at a time has a service."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from typing import Any

from mainstay.agent.job_documents import service_key
from mainstay.agent.metrics import AgentMetrics
from mainstay.agent.stop_flag import STOPPING, LeaseStopFlag

# The server knows the end of a job before its thread has ended: how long to wait for the thread.
JOB_END_WAIT_SECONDS = 2.0


class ServicesInUse:
    def __init__(self, stopping: threading.Event, metrics: AgentMetrics) -> None:
        self._stopping = stopping
        self._metrics = metrics
        self._changed = threading.Condition()
        # Services in use by a job, a plan or a drift check: id → how to stop it.
        self._holders: dict[str, LeaseStopFlag] = {}
        # Ids of the services with a claimed job.
        self._jobs: set[str] = set()
        # Type and name of the services with a claimed job, by id, and those of running clean-ups.
        self._job_keys: dict[str, tuple[str, str]] = {}
        self._clean_up_keys: set[tuple[str, str]] = set()
        self._claiming = False
        # How many jobs of each service have started in this process.
        self._starts: dict[str, int] = {}

    def request_stop(self, *, at_once: bool) -> bool:
        """Whether anything is still running."""
        with self._changed:
            for stop in self._holders.values():
                stop.request(STOPPING, at_once=at_once)
            return bool(self._jobs or self._holders or self._claiming)

    def job_starts(self) -> dict[str, int]:
        with self._changed:
            return dict(self._starts)

    # ---- plans and drift checks ----
    def try_acquire(self, service_id: str, wait_seconds: float = 0.0) -> LeaseStopFlag | None:
        """Holds the service for a plan or drift check. None: a job or another check has it."""
        with self._changed:
            self._changed.wait_for(lambda: service_id not in self._jobs, min(wait_seconds, JOB_END_WAIT_SECONDS))
            self._changed.wait_for(lambda: service_id not in self._holders or service_id in self._jobs, wait_seconds)
            if service_id in self._holders or service_id in self._jobs or self._stopping.is_set():
                return None
            return self._add_holder(service_id)

    def release(self, service_id: str) -> None:
        with self._changed:
            self._holders.pop(service_id, None)
            self._changed.notify_all()

    def _add_holder(self, service_id: str) -> LeaseStopFlag:
        self._holders[service_id] = stop = LeaseStopFlag()
        if self._stopping.is_set():
            stop.request(STOPPING)
        return stop

    # ---- jobs ----
    def free_job_slots(self, limit: int) -> int:
        """How many more jobs may run. Without a free slot it waits a second for the end of one."""
        with self._changed:
            free = limit - len(self._jobs)
            if free <= 0:
                self._changed.wait(1.0)
            return max(free, 0)

    def start_claim(self, service: Mapping[str, Any]) -> bool:
        """Whether a job of the service may be claimed. A stopping agent waits for the claim, to release the job that it
        may get."""
        with self._changed:
            if self._stopping.is_set():
                return False
            has_ended = self._changed.wait_for(lambda: service["id"] not in self._jobs, JOB_END_WAIT_SECONDS)
            self._claiming = has_ended and self.register_job(service)
            return self._claiming

    def end_claim(self, service_id: str) -> None:
        with self._changed:
            self._claiming = False
            if service_id not in self._jobs:
                self._job_keys.pop(service_id, None)

    def register_job(self, service: Mapping[str, Any]) -> bool:
        """Whether the job may run: no clean-up of the same type and name is running."""
        with self._changed:
            if service_key(service) in self._clean_up_keys:
                return False
            self._job_keys[service["id"]] = service_key(service)
            return True

    def start_job(self, service_id: str) -> None:
        with self._changed:
            self._jobs.add(service_id)
            self._metrics.jobs_at_work = len(self._jobs)
            self._starts[service_id] = self._starts.get(service_id, 0) + 1

    def acquire_for_job(self, service_id: str) -> LeaseStopFlag:
        """Stops a plan or drift check of the service and waits for its end."""
        with self._changed:
            while (holder := self._holders.get(service_id)) is not None:
                holder.request("a job was claimed")
                self._changed.wait(1.0)
            return self._add_holder(service_id)

    def end_job(self, service_id: str) -> None:
        with self._changed:
            self._jobs.discard(service_id)
            self._metrics.jobs_at_work = len(self._jobs)
            self._job_keys.pop(service_id, None)
            self.release(service_id)

    # ---- clean-ups ----
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
