"""Drift checks: a periodic dry run of the `keeps` manifest of each service. Reports or repairs the differences."""

from __future__ import annotations

import math
import random
import threading
from dataclasses import dataclass, field

from mainstay.agent import job_documents
from mainstay.agent.blueprint_cache import NoBlueprint, UntrustedBlueprint
from mainstay.agent.client import ServerRefusal, Unreachable
from mainstay.agent.job_runner import HostRun, open_secrets
from mainstay.agent.log import origin_of
from mainstay.agent.responses import CHECKED_SERVICE, require_shape
from mainstay.agent.stop_flag import now
from mainstay.converge.apply import Options
from mainstay.converge.failures import Stopped
from mainstay.converge.host.state import Unusable
from mainstay.converge.report import FAILED, UNMET
from mainstay.converge.run import Locked
from mainstay.foundation.faults import DoesNotLoad

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Any

    from mainstay.agent.blueprint import Blueprint
    from mainstay.agent.context import AgentContext
    from mainstay.converge.failures import StopFlag
    from mainstay.converge.report import Event, Report

CONDITION = "InSync"
# Members of a condition that the agent writes.
SENT = ("type", "status", "reason", "message", "consumerMessage")
IN_SYNC, DRIFTED, REPAIRED, UNKNOWN = "InSync", "Drifted", "Repaired", "Unknown"
NOT_HELD = "RepairDoesNotHold"
STATUS = {IN_SYNC: "True", REPAIRED: "True", DRIFTED: "False", NOT_HELD: "False", UNKNOWN: "Unknown"}
# From this number on, consecutive repairs of a resource do not hold, and the next ones wait longer and longer.
MANY_REPAIRS = 3
LONGEST_WAIT_SECONDS = 3600.0
# The thread looks at the stop flag at least this often.
LONGEST_PAUSE_SECONDS = 1.0
# Even fully escaped, two of them fit into the limit of the server for conditions.
LONGEST_MESSAGE = 5_000


class DriftFinding:
    """The result of a check. `consumer_message` is for readers who may not see what others wrote on the host."""

    def __init__(
        self, reason: str, message: str, consumer_message: str | None = None, resources: Sequence[str] = ()
    ) -> None:
        self.reason = reason
        # The resources that differ or were repaired.
        self.resources = resources
        # A difference of files may contain characters that the server refuses.
        self.message: str = job_documents.json_safe(message[:LONGEST_MESSAGE])
        shown = message.partition("\n")[0] if consumer_message is None else consumer_message
        self.consumer_message: str = job_documents.json_safe(shown[:LONGEST_MESSAGE])

    def as_condition(self) -> dict[str, str]:
        condition = {"type": CONDITION, "status": STATUS[self.reason], "reason": self.reason, "message": self.message}
        # Left out if it is the same, as with servers of older releases.
        if self.consumer_message != self.message:
            condition["consumerMessage"] = self.consumer_message
        return condition


@dataclass
class RepairCounts:
    """In how many consecutive checks resources of a service had to be repaired."""

    # Jobs of the service that had started; another one begins anew.
    job_starts: int = 0
    numbers: dict[str, int] = field(default_factory=dict)
    last_repair_at: float = 0.0
    # What the last repair changed. A check that only waits reports it again: words of a dry run would be another condition.
    last_change: DriftFinding | None = None

    @property
    def worst(self) -> tuple[str, int]:
        return max(self.numbers.items(), key=lambda each: each[1], default=("", 0))

    def forget_stable(self, drifted: Sequence[str]) -> None:
        self.numbers = {name: number for name, number in self.numbers.items() if name in drifted}

    def wait_seconds(self, interval_seconds: float) -> float:
        """Time between the last repair and the next one."""
        doublings = self.worst[1] + 1 - MANY_REPAIRS
        return min(interval_seconds * 2.0 ** min(doublings, 20), LONGEST_WAIT_SECONDS) if doublings > 0 else 0.0

    def count(self, change: DriftFinding) -> None:
        self.numbers = {name: self.numbers.get(name, 0) + 1 for name in change.resources}
        self.last_repair_at = now()
        self.last_change = change

    def classify(self, found: DriftFinding) -> DriftFinding:
        """A repair, or one that does not hold. `found`: what this check found, or changed."""
        found = self.last_change or found
        resource, number = self.worst
        if number < MANY_REPAIRS:
            return DriftFinding(REPAIRED, found.message, found.consumer_message)
        head = f"{resource}: repaired in {number} consecutive checks, and differs again each time"
        return DriftFinding(NOT_HELD, f"{head}\n{found.message}", f"{head}\n{found.consumer_message}")


class DriftWatch:
    """While the server is away, services are checked and repaired as they were last known. Their opened secrets are kept
    in memory for that, never on disk."""

    def __init__(self, agent: AgentContext) -> None:
        self._agent = agent
        # The services of the last complete list, by id.
        self._known: dict[str, Mapping[str, Any]] = {}
        # How many jobs of each service had started before that list.
        self._known_starts: dict[str, int] = {}
        # Service → its properties, and the same with opened secrets.
        self._opened: dict[str, tuple[Mapping[str, Any], dict[str, Any]]] = {}
        # Repairs that could not be reported, by service.
        self._unreported: dict[str, DriftFinding] = {}
        # By service, since the start of the agent.
        self._repairs: dict[str, RepairCounts] = {}
        self._is_offline = False
        self._wake = threading.Event()

    def notice(self) -> None:
        """Checks services with a requested repair soon."""
        self._wake.set()

    def run(self) -> None:
        """Never returns before the agent stops. The random first delay spreads agents that start together."""
        agent, seconds = self._agent, self._agent.settings.drift_seconds
        # Without drift checks only requested repairs run.
        due_at = now() + random.uniform(0, seconds) if seconds > 0 else math.inf  # noqa: S311  # no secret
        while not agent.stopping.is_set():
            is_woken = self._wake.wait(max(0.0, min(due_at - now(), LONGEST_PAUSE_SECONDS)))
            self._wake.clear()
            is_due = now() >= due_at
            if not is_woken and not is_due:
                continue
            self._check_all(only_requested=not is_due)
            if is_due:
                due_at = now() + seconds * random.uniform(0.9, 1.1)  # noqa: S311  # no secret

    def _check_all(self, *, only_requested: bool) -> None:
        agent = self._agent
        try:
            for service in self._services():
                if agent.stopping.is_set():
                    return
                if not only_requested or service.get("repairRequestedAt"):
                    self._try_check(service)
        except ServerRefusal as error:
            agent.log.warning("drift checks postponed", reason=str(error))
        except Exception as error:  # noqa: BLE001  # the next round must still happen
            agent.log.error("bug", task="drift", at=origin_of(error))

    def _services(self) -> list[Mapping[str, Any]]:
        """The services of this agent. While the server is away: those of the last list without a job since, which may have
        changed the state of the service."""
        starts = self._agent.services.job_starts()
        try:
            found = list(self._agent.client.pages("/services", {"living": "true"}))
        except Unreachable as error:
            if not self._is_offline:
                self._agent.log.warning("drift checks continue without the server", reason=str(error))
            self._is_offline = True
            return [
                service
                for service_id, service in self._known.items()
                if starts.get(service_id) == self._known_starts.get(service_id)
            ]
        self._is_offline = False
        self._known_starts = starts
        self._known = {service["id"]: service for service in found}
        for remembered in (self._opened, self._unreported, self._repairs):
            for service_id in [each for each in remembered if each not in self._known]:
                del remembered[service_id]
        return found

    def _try_check(self, service: Mapping[str, Any]) -> None:
        """A failed check of one service must not prevent the checks of the others."""
        try:
            self._check(require_shape(service, CHECKED_SERVICE))
        except ServerRefusal as refusal:
            self._agent.log.warning("drift check failed", service=service["name"], reason=str(refusal))
        except Unreachable as error:
            self._agent.log.info("drift check not reported", service=service["name"], reason=str(error))
        except OSError as error:
            self._agent.log.warning("drift check failed", service=service["name"], reason=error.strerror)

    def _check(self, service: Mapping[str, Any]) -> None:
        agent = self._agent
        if service.get("activeJob") is not None or not service["availableActions"]:
            return
        try:
            blueprint = agent.blueprint_cache.find(service["serviceType"]["name"], service.get("blueprintDigest"))
        except UntrustedBlueprint as problem:
            self._report(service, DriftFinding(UNKNOWN, str(problem)))
            return
        except (NoBlueprint, ServerRefusal):
            return
        manifest = blueprint.keeps.get(service["status"])
        if manifest is None:
            self._report(service, None)
            self._finish_repair(service)
            return
        stop = agent.services.try_acquire(service["id"])
        if stop is None:
            return
        try:
            result = self._compare(service, blueprint, manifest, stop)
        finally:
            agent.services.release(service["id"])
        if stop.reason is None:
            self._report(service, result)
            if result.reason != UNKNOWN:
                self._finish_repair(service)

    def _finish_repair(self, service: Mapping[str, Any]) -> None:
        requested_at = service.get("repairRequestedAt")
        if requested_at:
            path, query = f"/services/{service['id']}/repair", {"requestedAt": requested_at}
            self._agent.client.call("DELETE", path, query=query)

    def _compare(
        self, service: Mapping[str, Any], blueprint: Blueprint, manifest: str, stop: StopFlag
    ) -> DriftFinding:
        """Dry-runs the manifest and repairs drift if the blueprint asks for it."""
        agent = self._agent
        try:
            properties = self._open_secrets(service, blueprint)
            roots = job_documents.lookup_roots(service, properties, None, agent.work_area.root)
        except (ServerRefusal, Unreachable) as refusal:
            return DriftFinding(UNKNOWN, f"a secret cannot be opened: {refusal}")
        except job_documents.UnsafeName as problem:
            return DriftFinding(UNKNOWN, str(problem))
        host_run = HostRun(blueprint, service["id"], agent.work_area, stop)
        try:
            _, report = host_run.run(manifest, roots, Options(noop=True, differences=True))
            found = _classify(report, blueprint.directory)
            if found.reason == IN_SYNC:
                self._repairs.pop(service["id"], None)
            is_requested, repairs_drift = bool(service.get("repairRequestedAt")), blueprint.drift == "repair"
            if found.reason != DRIFTED or not (repairs_drift or is_requested):
                return found
            repairs = self._repairs_of(service["id"]) if repairs_drift else RepairCounts()
            repairs.forget_stable(found.resources)
            if not is_requested and now() < repairs.last_repair_at + repairs.wait_seconds(
                agent.settings.drift_seconds
            ):
                return repairs.classify(found)
            if not self._is_unchanged(service, stop):
                return found
            agent.log.info("repairing drift", service=service["name"])
            _, repaired = host_run.run(manifest, roots, Options(differences=True))
        except (Locked, Stopped, Unusable) as problem:
            return DriftFinding(UNKNOWN, str(problem))
        except DoesNotLoad as refusal:
            return DriftFinding(UNKNOWN, job_documents.fault_message(refusal, blueprint.directory))
        if repaired.failed:
            return DriftFinding(DRIFTED, job_documents.failure_message(repaired, blueprint.directory))
        changes = _classify(repaired, blueprint.directory)
        repairs.count(changes)
        return repairs.classify(changes)

    def _repairs_of(self, service_id: str) -> RepairCounts:
        starts = self._agent.services.job_starts().get(service_id, 0)
        found = self._repairs.get(service_id)
        if found is None or found.job_starts != starts:
            found = self._repairs[service_id] = RepairCounts(starts)
        return found

    def _open_secrets(self, service: Mapping[str, Any], blueprint: Blueprint) -> dict[str, Any]:
        sealed = service["properties"]
        opened: dict[str, Any]
        try:
            opened = open_secrets(self._agent.client, dict(sealed), blueprint)
        except Unreachable:
            known, opened = self._opened.get(service["id"], (None, {}))
            if known != sealed:
                raise
        self._opened[service["id"]] = (sealed, opened)
        return opened

    def _is_unchanged(self, service: Mapping[str, Any], stop: StopFlag) -> bool:
        """Checks the service again right before the repair: an order may have arrived since. While the server is away no
        job of an order can run here."""
        try:
            current = self._agent.client.get(f"/services/{service['id']}")
        except Unreachable:
            return stop.reason is None and self._is_offline
        same = all(current[name] == service[name] for name in ("status", "version", "agentId"))
        return stop.reason is None and same and current.get("activeJob") is None

    def _report(self, service: Mapping[str, Any], result: DriftFinding | None) -> None:
        """Sends the condition only if it changed, since every update is an event. None removes the condition."""
        unreported = self._unreported.get(service["id"])
        if result is not None and result.reason == REPAIRED:
            self._unreported[service["id"]] = result
        elif result is not None and result.reason == IN_SYNC and unreported is not None:
            # Repaired while the server was away.
            result = unreported
        others = [each for each in service["conditions"] if each["type"] != CONDITION]
        known = [each for each in service["conditions"] if each["type"] == CONDITION]
        if result is None:
            if not known:
                return
            wanted = others
        else:
            self._agent.metrics.count_drift(result.reason)
            condition = result.as_condition()
            if known and {name: known[0].get(name) for name in SENT if name in known[0]} == condition:
                self._unreported.pop(service["id"], None)
                return
            wanted = [*others, condition]
        body = [{name: each[name] for name in SENT if name in each} for each in wanted]
        self._agent.client.call("PUT", f"/services/{service['id']}/conditions", body)
        self._unreported.pop(service["id"], None)
        if result is not None:
            self._agent.log.info("drift check", service=service["name"], result=result.reason)


def _classify(report: Report, directory: str) -> DriftFinding:
    """Reports are redacted, so the messages are too."""
    events = [event for event in report.events if counts_as_drift(event)]
    bad = [event for event in events if event.outcome in (FAILED, UNMET)]
    if bad or report.stopped_by is not None:
        reasons = "\n".join(job_documents.short_reason(event, directory) for event in bad)
        return DriftFinding(UNKNOWN, reasons, reasons)
    drifted = [event for event in events if event.changed]
    if not drifted:
        return DriftFinding(IN_SYNC, "")
    own = [event.diff if event.consumer_diff is None else event.consumer_diff for event in drifted]
    return DriftFinding(
        DRIFTED,
        "\n".join(describe_change(event, event.diff) for event in drifted),
        "\n".join(describe_change(event, diff) for event, diff in zip(drifted, own, strict=True)),
        [event.resource.id for event in drifted],
    )


def counts_as_drift(event: Event) -> bool:
    """A command without `creates` or guards always runs, so it is not drift."""
    resource = event.resource
    if resource.type != "exec":
        return True
    return any(getattr(resource, name, None) for name in ("creates", "onlyif", "unless", "refresh_only"))


def describe_change(event: Event, diff: str | None) -> str:
    summary = f"{event.resource.id}: {event.noop_message or event.outcome}"
    reason = f" ({event.reason})" if event.reason else ""
    return f"{summary}{reason}" + (f"\n{diff}" if diff else "")
