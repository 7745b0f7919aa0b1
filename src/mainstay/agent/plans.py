"""Answers plan requests of the server: what a job would do on this host, according to a dry run of its manifest.

Nothing of a plan is stored or logged: the request contains secrets."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from typing import Any

from mainstay.agent import job_documents
from mainstay.agent.blueprint_cache import NoBlueprint
from mainstay.agent.client import ServerRefusal, Unreachable
from mainstay.agent.context import AgentContext, Backoff
from mainstay.agent.job_runner import HostRun, find_manifest, stored_report, time_limit
from mainstay.agent.log import origin_of
from mainstay.agent.responses import PLAN, require_items
from mainstay.converge.failures import StopFlag, Stopped
from mainstay.converge.host.state import Unusable
from mainstay.converge.run import Locked
from mainstay.foundation.faults import DoesNotLoad

POLL_SECONDS = 60
POLL_GRACE_SECONDS = 15
BUSY = "the agent is working on this service; plan again when it is done"


class Planner:
    def __init__(self, agent: AgentContext, wakes: Mapping[str, Callable[[], None]]) -> None:
        self._agent = agent
        # The long poll for plans also returns for new clean-ups and repairs: by name, what to call then.
        self._wakes = wakes
        self._slots = threading.Semaphore(agent.settings.jobs)

    def run(self) -> None:
        """Never returns before the agent stops. Each request is answered in its own thread."""
        backoff = Backoff()
        while not self._agent.stopping.is_set():
            self._slots.acquire()
            plan = self._poll(backoff)
            if plan is None:
                self._slots.release()
            else:
                threading.Thread(target=self._work, args=(plan,), name=f"plan {plan['id']}", daemon=True).start()

    def _poll(self, backoff: Backoff) -> Mapping[str, Any] | None:
        agent = self._agent
        try:
            found, headers = agent.client.get_with_headers(
                "/plans/pending",
                query={"limit": 1, "wait": POLL_SECONDS},
                timeout_seconds=POLL_SECONDS + POLL_GRACE_SECONDS,
            )
            for name in headers.get("Mainstay-Wake", "").split(", "):
                if name in self._wakes:
                    self._wakes[name]()
            plans = require_items(found, PLAN)
            backoff.reset()
            return plans[0] if plans else None
        except ServerRefusal as refusal:
            # Servers of older releases have no plans.
            if refusal.status != 404:
                agent.log.warning("polling for plans failed", reason=str(refusal))
        except Unreachable as error:
            # The poll for jobs logs that the server is unreachable.
            backoff.at_least(error.retry_after_seconds)
        except Exception as error:  # noqa: BLE001  # the next request must still be answered
            agent.log.error("bug", task="plan polling", at=origin_of(error))
        backoff.wait(agent.stopping)
        return None

    def _work(self, plan: Mapping[str, Any]) -> None:
        agent, service_id = self._agent, plan["job"]["serviceId"]
        stop = agent.services.try_acquire(service_id, wait_seconds=plan["seconds"])
        try:
            # Holds the service until the answer is sent: a stopping agent waits for it.
            self._send(plan, {"error": BUSY} if stop is None else self._answer(plan, stop))
        except Exception as error:  # noqa: BLE001  # a bug in one plan must not end the others
            agent.log.error("bug", task="plan", at=origin_of(error))
        finally:
            if stop is not None:
                agent.services.release(service_id)
            self._slots.release()

    def _answer(self, plan: Mapping[str, Any], stop: StopFlag) -> dict[str, Any]:
        try:
            with time_limit(plan["seconds"], stop):
                return _dry_run_answer(plan, self._agent, stop)
        except Unreachable as error:
            return {"error": f"the blueprint cannot be fetched: {error}"}

    def _send(self, plan: Mapping[str, Any], answer: dict[str, Any]) -> None:
        try:
            self._agent.client.post(f"/plans/{plan['id']}/answer", answer)
        except (Unreachable, ServerRefusal) as error:
            # The caller has timed out or soon will, and can plan again.
            self._agent.log.info("plan answer not delivered", plan=plan["id"], reason=str(error))


def _dry_run_answer(plan: Mapping[str, Any], agent: AgentContext, stop: StopFlag) -> dict[str, Any]:
    job, opened = plan["job"], plan["secrets"]
    try:
        blueprint, entry = find_manifest(agent.blueprint_cache, job)
    except (NoBlueprint, ServerRefusal) as problem:
        return {"error": str(problem)}
    properties, paths = job_documents.desired_properties(job), blueprint.secret_paths
    if not opened.keys() >= {reference for _, reference in job_documents.secret_references(properties, paths)}:
        return {"error": "a secret cannot be opened: the blueprint declares one that the service type does not"}
    new_secrets = job_documents.new_secrets(job, paths)
    properties = job_documents.insert_secrets(properties, paths, opened, new_secrets)
    try:
        roots = job_documents.lookup_roots(job["service"], properties, job, agent.work_area.root)
    except job_documents.UnsafeName as problem:
        return {"error": str(problem)}
    try:
        host_run = HostRun(blueprint, job["serviceId"], agent.work_area, stop)
        session, report, digest = host_run.plan(entry.manifest, roots, agent.client.key_for("plans"), new_secrets)
    except DoesNotLoad as refusal:
        return {"error": job_documents.fault_message(refusal, blueprint.directory)}
    except (Locked, Stopped):
        return {"error": BUSY}
    except Unusable as problem:
        return {"error": str(problem)}
    if stop.reason is not None:
        return {"error": BUSY}
    document = stored_report(session, report, blueprint)
    shown = {name: document[name] for name in ("manifest", "events", "summary")}
    return {"digest": digest, "secretsHidden": True, **shown}
