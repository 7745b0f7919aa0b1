"""Runs one job on this host: fetches blueprint and secrets, applies one manifest in a process of its own, and returns what
to report. Claiming and delivering are in loop.py."""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from importlib import import_module
from typing import Any

from mainstay.agent import job_documents
from mainstay.agent.blueprint import ActionEntry, Blueprint
from mainstay.agent.blueprint_cache import BlueprintCache, NoBlueprint
from mainstay.agent.client import Client, ServerRefusal
from mainstay.agent.context import AgentContext, WorkArea
from mainstay.agent.forecast_digest import forecast_digest
from mainstay.agent.job_documents import Place
from mainstay.agent.job_processes import ProcessEnded
from mainstay.agent.lease import Lease
from mainstay.agent.log import origin_of
from mainstay.agent.responses import SECRET, require_shape
from mainstay.agent.stop_flag import CANCELLED, LOST, TIMED_OUT, LeaseStopFlag
from mainstay.converge import health_checks, providers, resources
from mainstay.converge.apply import Options
from mainstay.converge.contract import Resource
from mainstay.converge.failures import StopFlag, Stopped
from mainstay.converge.host.state import StateDirectory, Unusable, read_text
from mainstay.converge.report import Event, Observer, Report
from mainstay.converge.run import Locked, RunRequest, Session, run
from mainstay.foundation.faults import DoesNotLoad
from mainstay.foundation.vault import VAULT_PREFIX

LOCK_WAIT_SECONDS = 30.0
CRASHED = "the process of the job ended without a result; it may have been killed, or the host is out of memory"
HOST_CHANGED = "the host has changed since the plan"
# Modules that the engine imports only on demand.
PRELOADED = (
    "difflib",
    "subprocess",
    "mainstay.converge.host.commands",
    "mainstay.converge.host.running_command",
    "mainstay.converge.host.trees",
    "mainstay.converge.manifest.evaluation",
)


# No repr: the body may contain secrets.
@dataclass(repr=False)
class Outcome:
    """What to report to the server: complete, fail or release. None: nothing, the lease is lost."""

    verb: str | None
    body: dict[str, Any] = field(default_factory=dict)


class ProgressObserver(Observer):
    """Sends the progress of a run to the agent, and marks a planned job when its run starts."""

    def __init__(self, send: Callable[[Any], None], marker: PlannedJobMarker, stop: StopFlag) -> None:
        self._send = send
        self._marker = marker
        self._stop = stop
        self._total = 0

    def run_started(self, total: int) -> None:
        self._total = total

    def resource_started(self, index: int, resource: Resource) -> None:
        if index == 0 and self._stop.reason is None:
            self._marker.write()
        percent = 100 * index / max(self._total, 1)
        # No name contains a secret: the loader refuses it.
        self._send((percent, f"resource {index + 1} of {self._total}: {resource.id}"))

    def event(self, index: int, event: Event) -> None:
        if index + 1 == self._total:
            self._send((100, f"{self._total} of {self._total} resources done"))


def preload_engine() -> None:
    """Imports at the start what the first job would otherwise wait for."""
    for name in PRELOADED:
        import_module(name)
    health_checks.kinds()
    for name in resources.names():
        found = resources.find(name)
        if found is not None and not found.composes:
            providers.find_all(name)


def run_job(
    agent: AgentContext,
    job: Mapping[str, Any],
    stop: LeaseStopFlag,
    lease: Lease | None,
    default_timeout_seconds: float | None = None,
) -> Outcome:
    """Runs the job to its outcome. Raises `Unreachable` if the server is needed and not reachable.

    `lease` None: the clean-up of an orphan, which no other agent can get. `default_timeout_seconds` applies if the
    blueprint has no timeout; None: no limit, because the server has one."""
    service, client, work_area = job["service"], agent.client, agent.work_area
    try:
        blueprint, entry = find_manifest(agent.blueprint_cache, job)
        new_secrets = job_documents.new_secrets(job, blueprint.secret_paths)
        properties = open_secrets(client, job_documents.desired_properties(job), blueprint, new_secrets)
        roots = job_documents.lookup_roots(service, properties, job, work_area.root)
    except (NoBlueprint, job_documents.UnsafeName) as problem:
        return failed(str(problem))
    except ServerRefusal as refusal:
        return failed(f"a secret cannot be opened: {refusal}")
    timeout_seconds = entry.timeout_seconds or default_timeout_seconds
    key = client.key_for("plans")
    work = JobRun(job, blueprint, entry.manifest, roots, work_area, timeout_seconds, key, frozenset(new_secrets))
    try:
        with time_limit(timeout_seconds, stop):
            outcome = _run_in_process(agent, work, stop, lease)
            if outcome.verb == "complete" and job.get("isMove"):
                return _apply_present_state(agent, work, outcome, stop, lease)
            return outcome
    except ServerRefusal as refusal:
        return failed(f"a secret cannot be opened: {refusal}")


def _run_in_process(agent: AgentContext, work: JobRun, stop: LeaseStopFlag, lease: Lease | None) -> Outcome:
    def report_progress(progress: tuple[float, str]) -> None:
        if lease is not None:
            lease.report_progress(*progress)

    try:
        outcome: Outcome = agent.processes.run(work, stop, report_progress)
    except ProcessEnded:
        if stop.reason == TIMED_OUT:
            return failed(f"timed out after {work.timeout_seconds:g}s")
        if stop.reason is not None or agent.processes.has_ended:
            return Outcome(None if stop.is_lost() else "release")
        return failed(CRASHED)
    # The lease may have been lost since the process checked it.
    return Outcome(None) if stop.is_lost() else outcome


# No repr: the roots contain secrets.
@dataclass(repr=False)
class JobRun:
    """One run of a manifest for a job: what its process gets."""

    job: Mapping[str, Any]
    blueprint: Blueprint
    manifest: str
    roots: Mapping[str, Any]
    work_area: WorkArea
    timeout_seconds: float | None
    plan_key: bytes
    new_secrets: Collection[Place]

    def execute(self, stop: LeaseStopFlag, send: Callable[[Any], None]) -> Outcome:
        marker = PlannedJobMarker(self.work_area, self.job)
        observer = ProgressObserver(send, marker, stop)
        service_id = self.job["serviceId"]
        host_run = HostRun(self.blueprint, service_id, self.work_area, stop, observer, self.timeout_seconds)
        try:
            if marker.must_check_plan():
                *_, digest = host_run.plan(self.manifest, self.roots, self.plan_key, self.new_secrets)
                # A dry run that was stopped has an incomplete digest.
                if stop.reason is None and digest != self.job["planDigest"]:
                    return failed(HOST_CHANGED)
            return host_run.apply(self.manifest, self.roots)
        except DoesNotLoad as refusal:
            return failed(job_documents.fault_message(refusal, self.blueprint.directory))
        except (Locked, Stopped):
            return Outcome(None if stop.reason == LOST else "release")
        except Unusable as problem:
            return failed(str(problem))
        except OSError as error:
            return failed(f"the agent cannot run the job: {error.strerror}")
        except Exception as error:  # noqa: BLE001  # the agent would take it for a crash
            return failed(f"bug in the agent: {origin_of(error)}")


@dataclass
class HostRun:
    """Runs manifests of a blueprint for one service. All raise `DoesNotLoad`, `Locked`, `Stopped` or `Unusable`."""

    blueprint: Blueprint
    service_id: str
    work_area: WorkArea
    stop: StopFlag
    observer: Observer | None = None
    timeout_seconds: float | None = None

    def apply(self, manifest: str, roots: Mapping[str, Any]) -> Outcome:
        session, report = self.run(manifest, roots, Options(differences=True), self.observer)
        return _outcome_of(session, report, self.blueprint, self.stop, self.timeout_seconds)

    def plan(
        self, manifest: str, roots: Mapping[str, Any], key: bytes, new_secrets: Collection[Place]
    ) -> tuple[Session, Report, str]:
        """Makes the dry run of a plan and returns it with its digest. It does not confirm guesses of secrets."""
        options = Options(noop=True, differences=True, is_plan=True, with_new_secrets=bool(new_secrets))
        session, report = self.run(manifest, roots, options)
        return session, report, forecast_digest(report, session.host.files, key, new_secrets)

    def run(
        self, manifest: str, roots: Mapping[str, Any], options: Options, observer: Observer | None = None
    ) -> tuple[Session, Report]:
        """Dry runs are not kept in the history."""
        request = RunRequest(
            self.blueprint.manifest_path(manifest),
            options=options,
            roots=roots,
            identity=job_documents.run_identity(self.service_id),
            state_directory=self.work_area.state_directory,
            environ=self.work_area.environ,
            observer=observer,
            stop=self.stop,
            lock_wait_seconds=LOCK_WAIT_SECONDS,
            keep_history=not options.noop,
            remember_files=True,
            # A blueprint is signed and checked as a whole: its manifests apply and read only what is in it.
            bundle=self.blueprint.directory,
        )
        return run(request)


def _apply_present_state(
    agent: AgentContext, first: JobRun, created: Outcome, stop: LeaseStopFlag, lease: Lease | None
) -> Outcome:
    """The second half of a move: the manifest that describes the host in the state of the service.

    It sees what the first half reported, as it would see it in a later job."""
    job, blueprint = first.job, first.blueprint
    service = job["service"]
    manifest = blueprint.keeps.get(service["status"])
    if manifest is None:
        return created
    reported = created.body
    wanted = job_documents.with_outputs(job_documents.desired_properties(job), reported["properties"])
    properties = open_secrets(agent.client, wanted, blueprint, first.new_secrets)
    placed = {**service, "agentInstanceData": reported["agentInstanceData"]}
    roots = job_documents.lookup_roots(placed, properties, job, agent.work_area.root)
    second = replace(first, manifest=manifest, roots=roots)
    outcome = _run_in_process(agent, second, stop, lease)
    if outcome.verb != "complete":
        return outcome
    return Outcome("complete", job_documents.join_completions(reported, outcome.body))


def find_manifest(blueprint_cache: BlueprintCache, job: Mapping[str, Any]) -> tuple[Blueprint, ActionEntry]:
    """Raises `NoBlueprint`; `ServerRefusal` or `Unreachable` if the blueprint must be fetched."""
    blueprint = blueprint_cache.find(job["service"]["serviceType"]["name"], job.get("blueprintDigest"))
    entry = blueprint.actions.get(job["action"])
    if entry is None:
        raise NoBlueprint(f"blueprint {blueprint.name} {blueprint.version} has no manifest for {job['action']}")
    return blueprint, entry


class PlannedJobMarker:
    """Records on disk that a planned job has started to change the host.

    When the job is resumed, differences from its plan are its own changes, so the plan is not checked again."""

    def __init__(self, work_area: WorkArea, job: Mapping[str, Any]) -> None:
        self._state = StateDirectory(work_area.state_directory)
        self._identity = job_documents.run_identity(job["serviceId"])
        self._job_id = job["id"]
        self._is_planned = job.get("planDigest") is not None

    def must_check_plan(self) -> bool:
        return self._is_planned and read_text(f"{self._state.identity_path(self._identity)}/planned") != self._job_id

    def write(self) -> None:
        """Must be on disk before the first change."""
        if self.must_check_plan():
            path = f"{self._state.identity_directory(self._identity)}/planned"
            self._state.write(path, self._job_id.encode(), durable=True)


def open_secrets(
    client: Client, properties: dict[str, Any], blueprint: Blueprint, new_secrets: Collection[Place] = ()
) -> Any:
    """The properties with decrypted secrets as tainted values. Raises `ServerRefusal` or `Unreachable`."""
    paths = blueprint.secret_paths
    references = (
        {reference for _, reference in job_documents.secret_references(properties, paths)} if paths else set()
    )
    addresses = {each: f"/vault/secrets/{each.removeprefix(VAULT_PREFIX)}" for each in sorted(references)}
    opened = {each: require_shape(client.get(address), SECRET)["value"] for each, address in addresses.items()}
    return job_documents.insert_secrets(properties, paths, opened, new_secrets)


@contextmanager
def time_limit(seconds: float | None, stop: StopFlag) -> Iterator[None]:
    """Stops the runs inside after this time. None: no limit."""
    if seconds is None:
        yield
        return
    timer = threading.Timer(seconds, lambda: stop.request(TIMED_OUT, at_once=True))
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


def _outcome_of(
    session: Session, report: Report, blueprint: Blueprint, stop: StopFlag, timeout_seconds: float | None
) -> Outcome:
    if stop.reason == LOST:
        return Outcome(None)
    stopped_by = report.stopped_by
    if stopped_by is not None and stopped_by not in (CANCELLED, TIMED_OUT):
        return Outcome("release")
    report.complete(session.host.files)
    kept = stored_report(session, report, blueprint)
    done, total = job_documents.count_reached(report)
    if stopped_by == CANCELLED:
        return failed(f"cancelled after {done} of {total}", kept)
    if stopped_by == TIMED_OUT:
        return failed(f"timed out after {timeout_seconds:g}s\n{done} of {total} resources were done", kept)
    if report.failed:
        return failed(job_documents.failure_message(report, blueprint.directory), kept)
    try:
        body = job_documents.completion_body(report, blueprint.secret_paths)
    except job_documents.BadOutputs as problem:
        return failed(str(problem), kept)
    return Outcome("complete", {**body, "report": kept})


def stored_report(session: Session, report: Report, blueprint: Blueprint) -> dict[str, Any]:
    document = job_documents.mark_own_files(report, session.host.written_files)
    return job_documents.report_document(document, blueprint.directory)


def failed(message: str, report: dict[str, Any] | None = None) -> Outcome:
    return Outcome("fail", {"errorMessage": message, "report": report})
