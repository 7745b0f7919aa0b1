"""Tests a blueprint: walks its example orders through their whole lifecycles, with its own server and agent."""

from __future__ import annotations

import json
import os
import pwd
import signal
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from mainstay.agent.blueprint import Blueprint
from mainstay.agent.client import Client, ServerRefusal, Unreachable
from mainstay.blueprints.bundle import pack
from mainstay.blueprints.example_orders import ExampleOrder
from mainstay.control.domain.lifecycle import transitions
from mainstay.control.domain.service_types import parse_service_type
from mainstay.control.rulebook import installed_rulebook
from mainstay.converge.host.throw_away_host import LAYER
from mainstay.foundation.private_files import write_private_file

START_SECONDS = 60.0
STOP_SECONDS = 15.0
POLL_SECONDS = 0.03
# Added to the timeout of the action.
GRACE_SECONDS = 60.0
MOST_STEPS = 200
PROGRAM = "from mainstay.cli.main import program; program()"
HOME = pwd.getpwuid(0).pw_dir
# Directories of services: new files there after a delete are reported as left behind.
WATCHED = ("/etc", "/home", "/opt", HOME, "/srv", "/usr/local", "/var/lib", "/var/log", "/var/spool", "/var/www")
# Files that the host itself writes there.
WRITTEN_BY_HOST = ("/var/lib/systemd/", "/var/log/journal", "/var/lib/private", "/etc/.pwd.lock", f"{HOME}/.cache")
MOST_LEFTOVERS = 20
TAIL_LINES = 20


class CannotTest(Exception):
    """The test could not run to its end; the message names the reason."""


@dataclass
class StepResult:
    """One job of the walk and its problems. `unstable`: what a second run would change."""

    order: str
    action: str
    before: str
    after: str
    resources: int = 0
    changed: int = 0
    seconds: float = 0.0
    problems: list[str] = field(default_factory=list)
    unstable: list[str] = field(default_factory=list)
    # Shown, but not a problem.
    note: str = ""

    @property
    def failed(self) -> bool:
        return bool(self.problems or self.unstable)


@dataclass
class OrderUnderTest:
    """An example order and its service."""

    example: ExampleOrder
    service: Any
    # The properties after the creation, with defaults and pool values.
    created_properties: Mapping[str, Any]
    jobs_seen: set[str] = field(default_factory=set)
    # Whether the last update applied the change of the example; the next one reverts it.
    is_changed: bool = False


def run_blueprint_test(
    blueprint: Blueprint, orders: list[ExampleOrder], root: str | None, on_step: Callable[[StepResult], None]
) -> list[StepResult]:
    """`root` None: runs on this host. `on_step` is called after each step."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(TemporaryDirectory(prefix="mainstay-blueprint-test-")))
        server = stack.enter_context(_running_server(folder))
        test = BlueprintTest(blueprint, server, root, on_step)
        test.prepare()
        test.agent = stack.enter_context(_running_agent(folder, server.url, test.enrolment(), root or ""))
        for order in orders:
            test.walk(order)
    return test.steps


class BlueprintTest:
    def __init__(
        self, blueprint: Blueprint, client: Client, root: str | None, on_step: Callable[[StepResult], None]
    ) -> None:
        self.blueprint = blueprint
        self.client = client
        self.root = root
        self.on_step = on_step
        self.steps: list[StepResult] = []
        self.agent: AgentProcess
        typed = blueprint.service_type
        self.lifecycle = parse_service_type(
            typed.get("propertySchema"), typed.get("lifecycleSchema"), installed_rulebook()
        ).lifecycle

    # ---- setup ----
    def prepare(self) -> None:
        """Pushes the blueprint and creates everything that an order needs."""
        create = self._create
        pushed = self.client.call(
            "POST",
            "/blueprints",
            pack(self.blueprint.directory),
            headers={"Content-Type": "application/gzip"},
        )
        self.type_id = pushed["serviceType"]["id"]
        self.provider_id = create("/participants", {"name": "provider"})
        self.pool_set_id = create("/service-pool-sets", {"name": "pools", "providerId": self.provider_id})
        agent_type_id = create("/agent-types", {"name": "test", "serviceTypeIds": [self.type_id]})
        self.agent_id = create(
            "/agents",
            {
                "name": "test",
                "providerId": self.provider_id,
                "agentTypeId": agent_type_id,
                "servicePoolSetId": self.pool_set_id,
            },
        )
        consumer_id = create("/participants", {"name": "consumer"})
        self.group_id = create("/service-groups", {"name": "test", "consumerId": consumer_id})
        self.pools: set[str] = set()
        self.options: set[str] = set()

    def _create(self, path: str, body: dict[str, Any]) -> str:
        return str(self.client.post(path, body)["id"])

    def enrolment(self) -> dict[str, Any]:
        token = self.client.post("/tokens", {"name": "test", "role": "agent", "scopeId": self.agent_id})["value"]
        return {"url": self.client.url, "agentId": self.agent_id, "token": token, "caFile": None}

    def _offer(self, example: ExampleOrder) -> None:
        """Creates the pool values and options of the example."""
        for name, values in _without(example.pools, self.pools):
            pool = {
                "name": name,
                "type": name,
                "propertyType": _json_type(values),
                "generatorType": "list",
                "servicePoolSetId": self.pool_set_id,
            }
            pool_id = self._create("/service-pools", pool)
            for value in values:
                self._create("/service-pool-values", {"name": str(value), "value": value, "servicePoolId": pool_id})
        for name, values in _without(example.options, self.options):
            type_id = self._create("/service-option-types", {"name": name, "type": name})
            for value in values:
                body = {"providerId": self.provider_id, "serviceOptionTypeId": type_id, "name": str(value)}
                self._create("/service-options", {**body, "value": value})

    # ---- the walk ----
    def walk(self, example: ExampleOrder) -> None:
        """Creates the service, runs every reachable action in every state, and deletes it."""
        layer = LAYER if self.root is None and os.path.isdir(LAYER) else ""
        # The layer also has names of files that the host removed at its boot.
        files_before = self._files() | self._files(layer)
        self._offer(example)
        body = {
            "serviceTypeId": self.type_id,
            "name": example.name,
            "properties": example.properties,
            "groupId": self.group_id,
            "agentId": self.agent_id,
        }
        try:
            service = self.client.post("/services", body)
        except ServerRefusal as refusal:
            self._add(StepResult(example.name, "create", "", "", problems=_problems_of(refusal)))
            return
        order = OrderUnderTest(example, service, service["properties"])
        is_going_well = self._settle(order, "create")
        if "update" in self.lifecycle.actions and not example.change:
            status = order.service["status"]
            self._add(
                StepResult(example.name, "update", status, status, note="the order has no `change` to test it with")
            )
        tested: set[tuple[str, str]] = set()
        for _ in range(MOST_STEPS):
            action = self._next_action(order, lambda edge: edge not in tested and not self._ends(*edge))
            if action is None or not is_going_well:
                break
            tested.add((order.service["status"], action))
            is_going_well = self._act(order, action)
        for _ in range(len(self.lifecycle.states)):
            action = self._next_action(order, lambda edge: self._ends(*edge))
            if action is None or not self._act(order, action):
                break
        if order.service["status"] in self.lifecycle.terminal_states and self.steps:
            leftovers = sorted(self._files(layer) - files_before)
            if leftovers:
                more = f" and {len(leftovers) - MOST_LEFTOVERS} more" if len(leftovers) > MOST_LEFTOVERS else ""
                self.steps[-1].note = f"left behind: {', '.join(leftovers[:MOST_LEFTOVERS])}{more}"
                self.on_step(self.steps[-1])

    def _ends(self, state: str, action: str) -> bool:
        return transitions.success_path(self.lifecycle, action, state)[-1] in self.lifecycle.terminal_states

    def _next_action(self, order: OrderUnderTest, wanted: Callable[[tuple[str, str]], bool]) -> str | None:
        """The first action on the shortest path to a wanted (state, action); prefers `delete`."""
        start = order.service["status"]
        queue: deque[tuple[str, str | None]] = deque([(start, None)])
        seen = {start}
        while queue:
            state, first = queue.popleft()
            actions = [
                name
                for name in transitions.available_actions(self.lifecycle, state)
                if name != "update" or order.example.change
            ]
            actions.sort(key=lambda name: name != "delete")
            for action in actions:
                if wanted((state, action)):
                    return first or action
            for action in actions:
                to = transitions.success_path(self.lifecycle, action, state)[-1]
                if to not in seen:
                    seen.add(to)
                    queue.append((to, first or action))
        return None

    def _act(self, order: OrderUnderTest, name: str) -> bool:
        """Runs an action. Whether it succeeded."""
        action = self.lifecycle.actions[name]
        service_id, status = order.service["id"], order.service["status"]
        try:
            if name == "delete":
                self.client.call("DELETE", f"/services/{service_id}")
            elif name == "update":
                self.client.call("PATCH", f"/services/{service_id}", {"properties": self._toggled_change(order)})
            else:
                body = {"properties": self._toggled_change(order)} if action.takes_properties else None
                self.client.post(f"/services/{service_id}/{name}", body)
        except ServerRefusal as refusal:
            self._add(StepResult(order.example.name, name, status, status, problems=_problems_of(refusal)))
            return False
        return self._settle(order, name)

    def _toggled_change(self, order: OrderUnderTest) -> dict[str, Any]:
        """The change of the example, or its reversal: every update must change something."""
        order.is_changed = not order.is_changed
        change = order.example.change
        if order.is_changed:
            return change
        # From the example first: the service shows only references for secrets.
        return {name: order.example.properties.get(name, order.created_properties.get(name)) for name in change}

    def _settle(self, order: OrderUnderTest, name: str) -> bool:
        """Waits until no job is active and adds a step per finished job. Whether all succeeded."""
        before, started = order.service["status"], time.monotonic()
        limit_seconds = self.lifecycle.actions[name].timeout_seconds * len(self.lifecycle.states) + GRACE_SECONDS
        while True:
            order.service = self.client.get(f"/services/{order.service['id']}")
            if order.service["activeJob"] is None:
                break
            if self.agent.process.poll() is not None:
                raise CannotTest(f"the agent ended:\n{self.agent.tail()}")
            if time.monotonic() > started + limit_seconds:
                raise CannotTest(f"{name} did not finish in time:\n{self.agent.tail()}")
            time.sleep(POLL_SECONDS)
        jobs = self.client.pages("/jobs", {"serviceId": order.service["id"]})
        fresh = [job for job in jobs if job["id"] not in order.jobs_seen]
        order.jobs_seen |= {job["id"] for job in fresh}
        path = (
            transitions.success_path(self.lifecycle, name, before)
            if before in self.lifecycle.actions[name].successes
            else ()
        )
        steps: list[StepResult] = []
        for index, job in enumerate(fresh):
            is_last = index == len(fresh) - 1
            after = order.service["status"] if is_last else path[index + 1]
            steps.append(self._step(order, job, path[index] if index < len(path) else before, after, is_last=is_last))
        for step in steps:
            step.seconds = (time.monotonic() - started) / len(steps)
            self._add(step)
        return not any(step.failed for step in steps)

    def _step(
        self, order: OrderUnderTest, job: Mapping[str, Any], before: str, after: str, *, is_last: bool
    ) -> StepResult:
        step = StepResult(order.example.name, job["action"], before, after)
        report = self._report(job)
        events = report.get("events", [])
        step.resources, step.changed = len(events), sum(1 for event in events if event["changed"])
        if job["status"] != "Completed":
            step.problems = [str(job["errorMessage"] or job["status"]), *_failed_differences(events)]
            return step
        result = self.agent.result_of(job["id"])
        step.unstable = result["unstable"]
        if is_last:
            step.problems = list(self._missing(order, result["outputs"]))
        return step

    def _report(self, job: Mapping[str, Any]) -> dict[str, Any]:
        try:
            found: dict[str, Any] = self.client.get(f"/jobs/{job['id']}/report")
        except ServerRefusal:
            # A job that failed before its run has no report.
            return {}
        return found or {}

    def _missing(self, order: OrderUnderTest, sent: Mapping[str, Any]) -> Iterator[str]:
        """Outputs of the manifest that the service does not have."""
        service = order.service
        if service["status"] in self.lifecycle.terminal_states:
            return
        for name in sent["properties"]:
            if name not in service["properties"]:
                yield f"outputs.properties.{name} did not arrive"
        if sent["instanceId"] and service["agentInstanceId"] is None:
            yield "outputs.instance_id did not arrive"
        if sent["instanceData"] and service["agentInstanceData"] is None:
            yield "outputs.instance_data did not arrive"

    def _add(self, step: StepResult) -> None:
        self.steps.append(step)
        self.on_step(step)

    def _files(self, layer: str = "") -> set[str]:
        """Paths of watched files. `layer`: only of those in a directory with what a throw-away host has written."""
        found = {
            os.path.join(folder, name).removeprefix(layer)
            for top in (WATCHED if self.root is None else (self.root,))
            for folder, folders_in, names in os.walk(f"{layer}{top}")
            for name in (*folders_in, *names)
        }
        # Programs in Python write compiled modules wherever they are installed.
        return {path for path in found if not path.startswith(WRITTEN_BY_HOST) and "/__pycache__" not in path}


def _without(given: Mapping[str, list[Any]], known: set[str]) -> list[tuple[str, list[Any]]]:
    """The entries whose names are not known yet; from now on they are."""
    fresh = [(name, values) for name, values in given.items() if name not in known]
    known.update(given)
    return fresh


def _problems_of(refusal: ServerRefusal) -> list[str]:
    return [f"{path}: {message}" for path, message in refusal.faults] or [str(refusal)]


def _failed_differences(events: list[Mapping[str, Any]]) -> Iterator[str]:
    for event in events:
        if event["outcome"] == "failed" and event.get("diff"):
            yield f"{event['type']}#{event['name']}\n{event['diff']}"


def _json_type(values: list[Any]) -> str:
    """The common type of the values of a pool."""
    for kind, name in ((bool, "boolean"), (int, "integer"), (float, "number"), (str, "string")):
        if values and all(type(value) is kind for value in values):
            return name
    return "json"


# ---- the server and the agent ----
class AgentProcess:
    """The process of an idempotency-checking agent, its log, and its results by job."""

    def __init__(self, process: subprocess.Popen[str], log: Path) -> None:
        self.process = process
        self._log = log
        self._results: dict[str, dict[str, Any]] = {}
        self._changed = threading.Condition()
        self._thread = threading.Thread(target=self._read_results, daemon=True)
        self._thread.start()

    def _read_results(self) -> None:
        for line in self.process.stdout or ():
            result = json.loads(line)
            with self._changed:
                self._results[result["jobId"]] = result
                self._changed.notify_all()

    def result_of(self, job_id: str) -> dict[str, Any]:
        """The agent prints it before it completes the job, so the wait is short."""
        with self._changed:
            if not self._changed.wait_for(lambda: job_id in self._results, START_SECONDS):
                raise CannotTest(f"the agent did not check the job for idempotency:\n{self.tail()}")
            return self._results[job_id]

    def tail(self) -> str:
        return _tail_of(self._log)


def _clean_environment(folder: Path) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("MAINSTAY_", "VAULT_"))}
    return {
        **kept,
        "MAINSTAY_STATE_DIR": str(folder / "state"),
        "MAINSTAY_CONFIG_DIR": str(folder / "config"),
        "PYTHONUNBUFFERED": "1",
    }


@contextmanager
def _running_server(folder: Path) -> Iterator[Client]:
    """Starts a control plane with its own database on a free loopback port. Yields a client of its admin."""
    data, log = folder / "server", folder / "server.log"
    command = [sys.executable, "-c", PROGRAM, "server", "--port", "0", "--data-dir", str(data)]
    with log.open("wb") as out:
        process = subprocess.Popen(command, stdout=out, stderr=subprocess.STDOUT, env=_clean_environment(folder))
    try:
        url = _wait_for(lambda: _address_in(log), process, log, "the server did not start")
        client = Client(url, (data / "admin.token").read_text().strip())
        _wait_for(lambda: _answers(client), process, log, "the server does not respond")
        yield client
    finally:
        _stop(process)


@contextmanager
def _running_agent(folder: Path, url: str, enrolment: Mapping[str, Any], root: str) -> Iterator[AgentProcess]:
    config, log = folder / "agent.json", folder / "agent.log"
    write_private_file(config, json.dumps(enrolment).encode())
    command = [sys.executable, "-m", "mainstay.blueprints.idempotency_check", str(config), root]
    with log.open("wb") as out:
        process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=out, text=True, env=_clean_environment(folder)
        )
    try:
        _wait_for(lambda: "agent started" in log.read_text(), process, log, f"the agent did not start for {url}")
        yield AgentProcess(process, log)
    finally:
        _stop(process)


def _address_in(log: Path) -> str | None:
    _, found, rest = log.read_text(errors="replace").partition("listens on ")
    return rest.split()[0] if found and rest.split() else None


def _answers(client: Client) -> bool:
    try:
        client.get("/participants")
    except Unreachable:
        return False
    return True


def _wait_for(condition: Callable[[], Any], process: subprocess.Popen[Any], log: Path, problem: str) -> Any:
    deadline = time.monotonic() + START_SECONDS
    while not (found := condition()):
        if process.poll() is not None or time.monotonic() > deadline:
            raise CannotTest(f"{problem}:\n{_tail_of(log)}")
        time.sleep(POLL_SECONDS)
    return found


def _tail_of(log: Path) -> str:
    return "\n".join(log.read_text(errors="replace").splitlines()[-TAIL_LINES:])


def _stop(process: subprocess.Popen[Any]) -> None:
    if process.poll() is None:
        process.send_signal(signal.SIGTERM)
    try:
        process.wait(STOP_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
    if process.stdout is not None:
        process.stdout.close()
