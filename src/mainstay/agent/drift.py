"""Drift checks: a periodic dry run of the `keeps` manifest of each service. Reports or repairs the differences."""

from __future__ import annotations

import random

from mainstay.agent import translate
from mainstay.agent.blueprint_cache import NoBlueprint
from mainstay.agent.client import ServerRefusal, Unreachable
from mainstay.agent.job_runner import open_secrets, run_request
from mainstay.agent.log import origin_of
from mainstay.agent.responses import CHECKED_SERVICE, require_shape
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
# Even fully escaped it fits into the limit of the server for conditions.
LONGEST_MESSAGE = 10_000


class DriftWatch:
    def __init__(self, agent: AgentLoop) -> None:
        self._agent = agent

    def run(self) -> None:
        """Never returns before the agent stops. The random first delay spreads agents that start together."""
        agent, seconds = self._agent, self._agent.settings.drift_seconds
        pause_seconds = random.uniform(0, seconds)  # noqa: S311  # no secret
        while not agent.stopping.wait(pause_seconds):
            try:
                for service in agent.client.pages("/services", {"living": "true"}):
                    if agent.stopping.is_set():
                        return
                    self._try_check(service)
            except (Unreachable, ServerRefusal) as error:
                agent.log.warning("drift checks postponed", reason=str(error))
            except Exception as error:  # noqa: BLE001  # the next round must still happen
                agent.log.error("bug", task="drift", at=origin_of(error))
            pause_seconds = seconds * random.uniform(0.9, 1.1)  # noqa: S311  # no secret

    def _try_check(self, service: Mapping[str, Any]) -> None:
        """A failed check of one service must not prevent the checks of the others."""
        try:
            self._check(require_shape(service, CHECKED_SERVICE))
        except ServerRefusal as refusal:
            self._agent.log.warning("drift check failed", service=service["name"], reason=str(refusal))
        except OSError as error:
            self._agent.log.warning("drift check failed", service=service["name"], reason=error.strerror)

    def _check(self, service: Mapping[str, Any]) -> None:
        agent = self._agent
        if service.get("activeJob") is not None or not service["availableActions"]:
            return
        try:
            blueprint = agent.blueprint_cache.find(service["serviceType"]["name"], service.get("blueprintDigest"))
        except (NoBlueprint, ServerRefusal):
            return
        manifest = blueprint.keeps.get(service["status"])
        if manifest is None:
            self._report(service, None)
            return
        stop = agent.try_acquire(service["id"])
        if stop is None:
            return
        try:
            result = self._compare(service, blueprint, manifest, stop)
        finally:
            agent.release(service["id"])
        if stop.reason is None:
            self._report(service, result)

    def _compare(
        self, service: Mapping[str, Any], blueprint: Blueprint, manifest: str, stop: StopFlag
    ) -> tuple[str, str]:
        """Dry-runs the manifest and repairs drift if the blueprint asks for it. Returns (reason, message)."""
        agent = self._agent
        try:
            properties = open_secrets(agent.client, dict(service["properties"]), blueprint)
        except ServerRefusal as refusal:
            return UNKNOWN, f"a secret cannot be opened: {refusal}"
        roots = translate.lookup_roots(service, properties, None, agent.work_area.root)
        path = blueprint.manifest_path(manifest)

        def apply(*, noop: bool) -> Report:
            return run(run_request(path, service["id"], roots, agent.work_area, stop, noop=noop))[1]

        try:
            reason, message = _classify(apply(noop=True), blueprint.directory)
            if reason != DRIFTED or blueprint.drift != "repair" or not self._is_unchanged(service, stop):
                return reason, message
            agent.log.info("repairing drift", service=service["name"])
            repaired = apply(noop=False)
        except (Locked, Stopped, Unusable) as problem:
            return UNKNOWN, str(problem)
        except DoesNotLoad as refusal:
            return UNKNOWN, translate.fault_message(refusal, blueprint.directory)
        if repaired.failed:
            return DRIFTED, translate.failure_message(repaired, blueprint.directory)
        return REPAIRED, _classify(repaired, blueprint.directory)[1]

    def _is_unchanged(self, service: Mapping[str, Any], stop: StopFlag) -> bool:
        """Checks the service again right before the repair: an order may have arrived since."""
        current = self._agent.client.get(f"/services/{service['id']}")
        same = all(current[name] == service[name] for name in ("status", "version", "agentId"))
        return stop.reason is None and same and current.get("activeJob") is None

    def _report(self, service: Mapping[str, Any], result: tuple[str, str] | None) -> None:
        """Sends the condition only if it changed, since every update is an event. None removes the condition."""
        others = [each for each in service["conditions"] if each["type"] != CONDITION]
        known = [each for each in service["conditions"] if each["type"] == CONDITION]
        if result is None:
            if not known:
                return
            wanted = others
        else:
            reason, message = result
            self._agent.metrics.count_drift(reason)
            # A difference of files may contain characters that the server refuses.
            text = translate.json_safe(message)
            condition = {"type": CONDITION, "status": STATUS[reason], "reason": reason, "message": text}
            if known and all(known[0].get(name) == value for name, value in condition.items()):
                return
            self._agent.log.info("drift check", service=service["name"], result=reason)
            wanted = [*others, condition]
        body = [{name: each[name] for name in ("type", "status", "reason", "message")} for each in wanted]
        self._agent.client.call("PUT", f"/services/{service['id']}/conditions", body)


def _classify(report: Report, directory: str) -> tuple[str, str]:
    """(reason, message) of a report. Reports are redacted, so the message is too."""
    events = [event for event in report.events if counts_as_drift(event)]
    bad = [event for event in events if event.outcome in (FAILED, UNMET)]
    if bad or report.stopped_by is not None:
        return UNKNOWN, "\n".join(translate.short_reason(event, directory) for event in bad)[:LONGEST_MESSAGE]
    drifted = [event for event in events if event.changed]
    if not drifted:
        return IN_SYNC, ""
    return DRIFTED, "\n".join(describe_change(event) for event in drifted)[:LONGEST_MESSAGE]


def counts_as_drift(event: Event) -> bool:
    """A command without `creates` or guards always runs, so it is not drift."""
    resource = event.resource
    if resource.type != "exec":
        return True
    return any(getattr(resource, name, None) for name in ("creates", "onlyif", "unless", "refresh_only"))


def describe_change(event: Event) -> str:
    summary = f"{event.resource.id}: {event.noop_message or event.outcome}"
    reason = f" ({event.reason})" if event.reason else ""
    return f"{summary}{reason}" + (f"\n{event.diff}" if event.diff else "")
