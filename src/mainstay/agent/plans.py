"""Answers the server's questions for plans: what a job would do on this host, found out by a dry run of its manifest.

Nothing of a plan is written down or logged; what the question holds is gone with the answer."""

from __future__ import annotations

import threading

from mainstay.agent import translate
from mainstay.agent.blueprint_cache import NoBlueprint
from mainstay.agent.client import ServerRefusal, Unreachable
from mainstay.agent.job_runner import dry_run, find_manifest, time_limit
from mainstay.agent.log import place_of
from mainstay.agent.loop import Pause
from mainstay.agent.responses import PLAN, matching_items
from mainstay.converge.contract import Stopped
from mainstay.converge.host.state import Unusable
from mainstay.converge.run import Locked
from mainstay.foundation.faults import DoesNotLoad

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    from mainstay.agent.loop import AgentLoop
    from mainstay.converge.contract import StopFlag

POLL_SECONDS = 60
POLL_GRACE_SECONDS = 15
BUSY = "the agent is at work on this service; ask again when it is done"


class Planner:
    def __init__(self, agent: AgentLoop) -> None:
        self._agent = agent
        self._places = threading.Semaphore(agent.settings.jobs)

    def run(self) -> None:
        """For ever: one question after the other, each answered in a thread of its own."""
        pause = Pause()
        while not self._agent.stopping.is_set():
            self._places.acquire()
            plan = self._ask(pause)
            if plan is None:
                self._places.release()
            else:
                threading.Thread(target=self._work, args=(plan,), name=f"plan {plan['id']}", daemon=True).start()

    def _ask(self, pause: Pause) -> Mapping[str, Any] | None:
        agent = self._agent
        try:
            found = agent.client.get(
                "/plans/pending",
                query={"limit": 1, "wait": POLL_SECONDS},
                timeout_seconds=POLL_SECONDS + POLL_GRACE_SECONDS,
            )
            plans = matching_items(found, PLAN)
            pause.reset()
            return plans[0] if plans else None
        except ServerRefusal as refusal:
            # A server of an older release makes no plans.
            if refusal.status != 404:
                agent.log.warning("the server gives no plans", reason=str(refusal))
        except Unreachable as error:
            # That the server is away is told by whoever asks for jobs.
            pause.at_least(error.retry_after_seconds)
        except Exception as error:  # noqa: BLE001  # the next question comes all the same
            agent.log.error("bug", task="asking for plans", at=place_of(error))
        pause.wait(agent.stopping)
        return None

    def _work(self, plan: Mapping[str, Any]) -> None:
        agent, service_id = self._agent, plan["job"]["serviceId"]
        stop = agent.take(service_id, wait_seconds=plan["seconds"])
        try:
            # The service is held until the answer is sent: an agent that stops waits for that.
            self._tell(plan, {"error": BUSY} if stop is None else self._find(plan, stop))
        except Exception as error:  # noqa: BLE001  # one plan's bug must not end the others
            agent.log.error("bug", task="plan", at=place_of(error))
        finally:
            if stop is not None:
                agent.leave(service_id)
            self._places.release()

    def _find(self, plan: Mapping[str, Any], stop: StopFlag) -> dict[str, Any]:
        timer = time_limit(plan["seconds"], stop)
        try:
            return _answer_to(plan, self._agent, stop)
        except Unreachable as error:
            return {"error": f"the blueprint cannot be fetched: {error}"}
        finally:
            if timer is not None:
                timer.cancel()

    def _tell(self, plan: Mapping[str, Any], answer: dict[str, Any]) -> None:
        try:
            self._agent.client.post(f"/plans/{plan['id']}/answer", answer)
        except (Unreachable, ServerRefusal) as error:
            # Whoever asked waits no more, or not for long, and asks again.
            self._agent.log.info("an answer for a plan was not taken", plan=plan["id"], reason=str(error))


def _answer_to(plan: Mapping[str, Any], agent: AgentLoop, stop: StopFlag) -> dict[str, Any]:
    job, opened = plan["job"], plan["secrets"]
    try:
        blueprint, entry = find_manifest(agent.shelf, job)
    except (NoBlueprint, ServerRefusal) as problem:
        return {"error": str(problem)}
    properties, paths = translate.wanted_properties(job), blueprint.secret_paths
    if not opened.keys() >= set(translate.references_in(properties, paths)):
        return {"error": "a secret cannot be opened: the blueprint declares one that the service type does not"}
    properties = translate.open_properties(properties, paths, opened)
    roots = translate.roots_of(job["service"], properties, job, agent.place.root)
    manifest = blueprint.place(entry.manifest)
    try:
        _, report, digest = dry_run(manifest, job["serviceId"], roots, agent.place, stop, agent.client)
    except DoesNotLoad as refusal:
        return {"error": translate.fault_message(refusal, blueprint.directory)}
    except (Locked, Stopped):
        return {"error": BUSY}
    except Unusable as problem:
        return {"error": str(problem)}
    if stop.reason is not None:
        return {"error": BUSY}
    told = translate.report_document(report.as_json(), blueprint.directory)
    return {"digest": digest, **{name: told[name] for name in ("manifest", "events", "summary")}}
