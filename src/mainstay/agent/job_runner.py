"""Carries out one job on this host: blueprint, secrets, one engine run, and what the server is told of it."""

from __future__ import annotations

import threading
from importlib import import_module

from mainstay.agent import translate
from mainstay.agent.blueprint_cache import NoBlueprint
from mainstay.agent.client import ServerRefusal
from mainstay.agent.forecast_digest import forecast_digest
from mainstay.agent.lease import CANCELLED, LOST
from mainstay.agent.responses import SECRET, matching
from mainstay.converge import providers, resources
from mainstay.converge.apply import Options
from mainstay.converge.contract import Stopped
from mainstay.converge.host.state import StateDirectory, Unusable, read_text
from mainstay.converge.redaction import Redactor, secret_values
from mainstay.converge.report import Observer
from mainstay.converge.run import Locked, RunRequest, run
from mainstay.foundation.faults import DoesNotLoad
from mainstay.foundation.vault import VAULT_PREFIX

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    from mainstay.agent.blueprint import ActionEntry, Blueprint
    from mainstay.agent.blueprint_cache import BlueprintCache
    from mainstay.agent.client import Client
    from mainstay.agent.lease import Lease
    from mainstay.converge.contract import Resource, StopFlag
    from mainstay.converge.report import Event, Report
    from mainstay.converge.run import Session

TIMED_OUT, STOPPING = "timed out", "stopping"
LOCK_WAIT_SECONDS = 30.0
HOST_CHANGED = "the host has changed since the plan"
# What is in the agent's environment for the agent alone.
OWN_VARIABLES = ("MAINSTAY_TOKEN",)


# Modules of the engine, and what they use, that a run loads only when it needs them.
LOADED_AHEAD = (
    "difflib",
    "subprocess",
    "mainstay.converge.health_checks.command",
    "mainstay.converge.host.commands",
    "mainstay.converge.host.running_command",
    "mainstay.converge.host.trees",
    "mainstay.converge.manifest.sandbox",
)


class Outcome:
    """What to tell the server: complete, fail or release; None is nothing, since the job is another's now."""

    def __init__(self, verb: str | None, body: dict[str, Any] | None = None) -> None:
        self.verb = verb
        self.body = body or {}


class WorkArea:
    """Where the agent works: this host, or a scratch directory on it."""

    def __init__(self, state_directory: str, root: str, environ: Mapping[str, str]) -> None:
        self.state_directory = state_directory
        self.root = root
        self.environ = {name: value for name, value in environ.items() if name not in OWN_VARIABLES}


class ProgressObserver(Observer):
    """Tells the lease how far the run is, and notes that it has begun."""

    def __init__(self, lease: Lease, redactor: Redactor, begun: PlannedJobMarker, stop: StopFlag) -> None:
        self._lease = lease
        self._redactor = redactor
        self._begun = begun
        self._stop = stop
        self._total = 0

    def begins(self, total: int) -> None:
        self._total = total

    def resource_begins(self, index: int, resource: Resource) -> None:
        if index == 0 and self._stop.reason is None:
            self._begun.note()
        name = self._redactor.clean(resource.id)
        self._lease.tell(100 * index / max(self._total, 1), f"resource {index + 1} of {self._total}: {name}")

    def event(self, index: int, event: Event) -> None:
        if index + 1 == self._total:
            self._lease.tell(100, f"{self._total} of {self._total} resources done")


def load_ahead() -> None:
    """What somebody would wait for in the first job otherwise; the agent runs for long, and may be slower to start."""
    for name in LOADED_AHEAD:
        import_module(name)
    for name in resources.names():
        resources.find(name)
        providers.find_all(name)


def carry_out(
    job: Mapping[str, Any], client: Client, shelf: BlueprintCache, place: WorkArea, lease: Lease, stop: StopFlag
) -> Outcome:
    """One job to its outcome. Raises `Unreachable` when the server is needed and away."""
    service = job["service"]
    try:
        blueprint, entry = find_manifest(shelf, job)
        properties = open_secrets(client, translate.wanted_properties(job), blueprint)
    except NoBlueprint as problem:
        return failed(str(problem))
    except ServerRefusal as refusal:
        return failed(f"a secret cannot be opened: {refusal}")
    roots = translate.roots_of(service, properties, job, place.root)
    redactor = Redactor(secret_values(roots))
    manifest = blueprint.place(entry.manifest)
    begun = PlannedJobMarker(place, job)
    request = request_for(
        manifest, service["id"], roots, place, stop, observer=ProgressObserver(lease, redactor, begun, stop)
    )
    timer = time_limit(entry.timeout_seconds, stop)
    try:
        if not begun.is_known():
            *_, digest = dry_run(manifest, service["id"], roots, place, stop, client)
            # Whoever is asked to stop meanwhile does nothing, and says why.
            if stop.reason is None and digest != job["planDigest"]:
                return failed(HOST_CHANGED)
        session, report = run(request)
    except DoesNotLoad as refusal:
        return failed(translate.fault_message(refusal, blueprint.directory))
    except (Locked, Stopped):
        return Outcome(None if stop.reason == LOST else "release")
    except Unusable as problem:
        return failed(str(problem))
    finally:
        if timer is not None:
            timer.cancel()
    return _conclude(session, report, blueprint, stop, entry.timeout_seconds)


def find_manifest(shelf: BlueprintCache, job: Mapping[str, Any]) -> tuple[Blueprint, ActionEntry]:
    """Raises `NoBlueprint`, and `ServerRefusal` or `Unreachable` when one has to be fetched."""
    blueprint = shelf.find(job["service"]["serviceType"]["name"], job.get("blueprintDigest"))
    entry = blueprint.actions.get(job["action"])
    if entry is None:
        raise NoBlueprint(f"blueprint {blueprint.name} {blueprint.version} has no manifest for {job['action']}")
    return blueprint, entry


class PlannedJobMarker:
    """The planned job that has begun to change the host for a service, noted beside what the engine keeps of it.

    When that job is resumed, by this process or a later one, what differs from its plan is its own work."""

    def __init__(self, place: WorkArea, job: Mapping[str, Any]) -> None:
        self._state = StateDirectory(place.state_directory)
        self._identity = translate.identity_of(job["serviceId"])
        self._job_id = job["id"]
        self._is_planned = job.get("planDigest") is not None

    def is_known(self) -> bool:
        return (
            not self._is_planned or read_text(f"{self._state.identity_path(self._identity)}/planned") == self._job_id
        )

    def note(self) -> None:
        """Durable before anything is changed."""
        if not self.is_known():
            place = f"{self._state.identity_directory(self._identity)}/planned"
            self._state.write(place, self._job_id.encode(), durable=True)


def dry_run(
    manifest: str, service_id: str, roots: Mapping[str, Any], place: WorkArea, stop: StopFlag, client: Client
) -> tuple[Session, Report, str]:
    """A dry run, and the digest of what it says."""
    session, report = run(request_for(manifest, service_id, roots, place, stop, noop=True))
    return session, report, forecast_digest(report, session.host.files, client.key_for("plans"))


def request_for(
    manifest: str,
    service_id: str,
    roots: Mapping[str, Any],
    place: WorkArea,
    stop: StopFlag,
    *,
    observer: Observer | None = None,
    noop: bool = False,
) -> RunRequest:
    """One run of a blueprint's manifest. Differences are always found out, for the report; dry runs leave no trace."""
    return RunRequest(
        manifest,
        options=Options(noop=noop, differences=True),
        roots=roots,
        identity=translate.identity_of(service_id),
        state_directory=place.state_directory,
        environ=place.environ,
        observer=observer,
        stop=stop,
        lock_wait_seconds=LOCK_WAIT_SECONDS,
        keep_history=not noop,
    )


def open_secrets(client: Client, properties: dict[str, Any], blueprint: Blueprint) -> Any:
    """The properties with their secrets in them, as tainted values. Raises `ServerRefusal` or `Unreachable`."""
    paths = blueprint.secret_paths
    references = set(translate.references_in(properties, paths)) if paths else set()
    opened = {
        reference: matching(client.get(f"/vault/secrets/{reference.removeprefix(VAULT_PREFIX)}"), SECRET)["value"]
        for reference in sorted(references)
    }
    return translate.open_properties(properties, paths, opened)


def time_limit(seconds: float | None, stop: StopFlag) -> threading.Timer | None:
    if seconds is None:
        return None
    timer = threading.Timer(seconds, lambda: stop.request(TIMED_OUT, at_once=True))
    timer.daemon = True
    timer.start()
    return timer


def _conclude(
    session: Session, report: Report, blueprint: Blueprint, stop: StopFlag, timeout_seconds: float | None
) -> Outcome:
    if stop.reason == LOST:
        return Outcome(None)
    stopped_by = report.stopped_by
    if stopped_by is not None and stopped_by not in (CANCELLED, TIMED_OUT):
        return Outcome("release")
    report.complete(session.host.files)
    kept = translate.report_document(report.as_json(), blueprint.directory)
    done, total = translate.done_of(report)
    if stopped_by == CANCELLED:
        return failed(f"cancelled after {done} of {total}", kept)
    if stopped_by == TIMED_OUT:
        return failed(f"timed out after {timeout_seconds:g}s\n{done} of {total} resources were done", kept)
    if report.failed:
        return failed(translate.failure_message(report, blueprint.directory), kept)
    try:
        body = translate.completion(report, blueprint.secret_paths)
    except translate.BadOutputs as problem:
        return failed(str(problem), kept)
    return Outcome("complete", {**body, "report": kept})


def failed(message: str, report: dict[str, Any] | None = None) -> Outcome:
    return Outcome("fail", {"errorMessage": message, "report": report})
