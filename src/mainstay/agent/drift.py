"""Looks now and then whether the host still is as each service's blueprint says, and tells the server, or mends it."""

from __future__ import annotations

import random

from mainstay.agent import translate
from mainstay.agent.blueprint_cache import NoBlueprint
from mainstay.agent.client import ServerRefusal, Unreachable
from mainstay.agent.job_runner import open_secrets, request_for
from mainstay.agent.log import place_of
from mainstay.agent.responses import SEEN, matching
from mainstay.converge.contract import Stopped
from mainstay.converge.host.state import Unusable
from mainstay.converge.report import FAILED, UNMET
from mainstay.converge.run import Locked, run
from mainstay.foundation.faults import DoesNotLoad

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    from mainstay.agent.blueprint import Blueprint
    from mainstay.agent.loop import AgentLoop
    from mainstay.converge.contract import StopFlag
    from mainstay.converge.report import Event, Report

CONDITION = "InSync"
IN_SYNC, DRIFTED, REPAIRED, UNKNOWN = "InSync", "Drifted", "Repaired", "Unknown"
STATUS = {IN_SYNC: "True", REPAIRED: "True", DRIFTED: "False", UNKNOWN: "Unknown"}
# However it is escaped, it fits into what the server keeps of conditions.
LONGEST_MESSAGE = 10_000


class DriftWatch:
    def __init__(self, agent: AgentLoop) -> None:
        self._agent = agent

    def run(self) -> None:
        """For ever. The first look comes at a random time, so that agents that start together do not look together."""
        agent, seconds = self._agent, self._agent.settings.drift_seconds
        pause = random.uniform(0, seconds)  # noqa: S311  # no secret
        while not agent.stopping.wait(pause):
            try:
                for service in agent.client.pages("/services", {"living": "true"}):
                    if agent.stopping.is_set():
                        return
                    self._try_to_look_at(service)
            except (Unreachable, ServerRefusal) as error:
                agent.log.warning("drift was not looked for", reason=str(error))
            except Exception as error:  # noqa: BLE001  # the next look comes all the same
                agent.log.error("bug", task="drift", at=place_of(error))
            pause = seconds * random.uniform(0.9, 1.1)  # noqa: S311  # no secret

    def _try_to_look_at(self, service: Mapping[str, Any]) -> None:
        """What is wrong with one service must not keep the others from being looked at."""
        try:
            self._look_at(matching(service, SEEN))
        except ServerRefusal as refusal:
            self._agent.log.warning("a service was not looked at", service=service["name"], reason=str(refusal))
        except OSError as error:
            self._agent.log.warning("a service was not looked at", service=service["name"], reason=error.strerror)

    def _look_at(self, service: Mapping[str, Any]) -> None:
        agent = self._agent
        if service.get("activeJob") is not None or not service["availableActions"]:
            return
        try:
            blueprint = agent.shelf.find(service["serviceType"]["name"], service.get("blueprintDigest"))
        except (NoBlueprint, ServerRefusal):
            return
        manifest = blueprint.keeps.get(service["status"])
        if manifest is None:
            self._tell(service, None)
            return
        stop = agent.take(service["id"])
        if stop is None:
            return
        try:
            found = self._find(service, blueprint, manifest, stop)
        finally:
            agent.leave(service["id"])
        if stop.reason is None:
            self._tell(service, found)

    def _find(
        self, service: Mapping[str, Any], blueprint: Blueprint, manifest: str, stop: StopFlag
    ) -> tuple[str, str]:
        """(reason, message)."""
        agent = self._agent
        try:
            properties = open_secrets(agent.client, dict(service["properties"]), blueprint)
        except ServerRefusal as refusal:
            return UNKNOWN, f"a secret cannot be opened: {refusal}"
        roots = translate.roots_of(service, properties, None, agent.place.root)
        place = blueprint.place(manifest)

        def look(*, noop: bool) -> Report:
            return run(request_for(place, service["id"], roots, agent.place, stop, noop=noop))[1]

        try:
            reason, message = _judge(look(noop=True), blueprint.directory)
            if reason != DRIFTED or blueprint.drift != "repair" or not self._is_still(service, stop):
                return reason, message
            agent.log.info("drift is repaired", service=service["name"])
            mended = look(noop=False)
        except (Locked, Stopped, Unusable) as problem:
            return UNKNOWN, str(problem)
        except DoesNotLoad as refusal:
            return UNKNOWN, translate.fault_message(refusal, blueprint.directory)
        if mended.failed:
            return DRIFTED, translate.failure_message(mended, blueprint.directory)
        return REPAIRED, _judge(mended, blueprint.directory)[1]

    def _is_still(self, service: Mapping[str, Any], stop: StopFlag) -> bool:
        """Asked again right before something is changed: an order may have come meanwhile."""
        current = self._agent.client.get(f"/services/{service['id']}")
        same = all(current[name] == service[name] for name in ("status", "version", "agentId"))
        return stop.reason is None and same and current.get("activeJob") is None

    def _tell(self, service: Mapping[str, Any], found: tuple[str, str] | None) -> None:
        """Only what is new: a condition that stays the same is no event."""
        others = [each for each in service["conditions"] if each["type"] != CONDITION]
        known = [each for each in service["conditions"] if each["type"] == CONDITION]
        if found is None:
            if not known:
                return
            wanted = others
        else:
            reason, message = found
            self._agent.measures.drift_found(reason)
            condition = {"type": CONDITION, "status": STATUS[reason], "reason": reason, "message": message}
            if known and all(known[0].get(name) == value for name, value in condition.items()):
                return
            self._agent.log.info("a service is looked at", service=service["name"], found=reason)
            wanted = [*others, condition]
        body = [{name: each[name] for name in ("type", "status", "reason", "message")} for each in wanted]
        self._agent.client.call("PUT", f"/services/{service['id']}/conditions", body)


def _judge(report: Report, directory: str) -> tuple[str, str]:
    """What a dry run of the `keeps` manifest says; the message is redacted as all reports are."""
    events = [event for event in report.events if counts(event)]
    bad = [event for event in events if event.outcome in (FAILED, UNMET)]
    if bad or report.stopped_by is not None:
        return UNKNOWN, "\n".join(translate.first_line(event, directory) for event in bad)[:LONGEST_MESSAGE]
    drifted = [event for event in events if event.changed]
    if not drifted:
        return IN_SYNC, ""
    return DRIFTED, "\n".join(describe(event) for event in drifted)[:LONGEST_MESSAGE]


def counts(event: Event) -> bool:
    """A command without `creates` or guards would always run: that is no drift."""
    resource = event.resource
    if resource.type != "exec":
        return True
    return any(getattr(resource, name, None) for name in ("creates", "onlyif", "unless", "refresh_only"))


def describe(event: Event) -> str:
    said = f"{event.resource.id}: {event.noop_message or event.outcome}"
    reason = f" ({event.reason})" if event.reason else ""
    return f"{said}{reason}" + (f"\n{event.diff}" if event.diff else "")
