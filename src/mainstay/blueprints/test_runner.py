"""Tries a blueprint out: its example orders, against a server and an agent of its own, through their whole lifecycles."""

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
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from mainstay.agent.client import Client, ServerRefusal, Unreachable
from mainstay.blueprints.bundle import pack
from mainstay.control.domain.lifecycle import transitions
from mainstay.control.domain.service_types import parse_service_type
from mainstay.control.rulebook import installed_rulebook
from mainstay.foundation.private_files import write_private_file

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from mainstay.agent.blueprint import Blueprint
    from mainstay.blueprints.example_orders import ExampleOrder
    from mainstay.control.domain.lifecycle.schema import Action

START_SECONDS = 60.0
STOP_SECONDS = 15.0
LOOK_EVERY_SECONDS = 0.03
# Beyond the action's own timeout.
GRACE_SECONDS = 60.0
MOST_STEPS = 200
PROGRAM = "from mainstay.cli.main import program; program()"
HOME = pwd.getpwuid(0).pw_dir
# Where services put things; what is new there after the end of one was left behind.
WATCHED = ("/etc", "/home", "/opt", HOME, "/srv", "/usr/local", "/var/lib", "/var/log", "/var/spool", "/var/www")
# What the host itself writes there meanwhile.
OF_THE_HOST = ("/var/lib/systemd/", "/var/log/journal", "/var/lib/private", "/etc/.pwd.lock", f"{HOME}/.cache")
MOST_LEFT = 20


class CannotTest(Exception):
    """Nothing can be said about the blueprint; the text says what is in the way."""


@dataclass
class StepResult:
    """One job of the walk, and what was wrong with it. `again`: what a second run would have changed."""

    order: str
    action: str
    before: str
    after: str
    resources: int = 0
    changed: int = 0
    seconds: float = 0.0
    problems: list[str] = field(default_factory=list)
    again: list[str] = field(default_factory=list)
    # Said, but not counted as wrong.
    note: str = ""

    @property
    def failed(self) -> bool:
        return bool(self.problems or self.again)


@dataclass
class OrderUnderTest:
    """An example on its way."""

    example: ExampleOrder
    service: Any
    # The properties with which it began, defaults and pool values included.
    as_made: Mapping[str, Any]
    jobs_seen: set[str] = field(default_factory=set)
    # Whether the last update brought the example's change; the next one takes it back.
    is_changed: bool = False


def run_blueprint_test(
    blueprint: Blueprint, orders: list[ExampleOrder], root: str | None, tell: Callable[[StepResult], None]
) -> list[StepResult]:
    """`root` None is this very host. `tell` hears of each step as it is done."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(TemporaryDirectory(prefix="mainstay-trial-")))
        server = stack.enter_context(_running_server(folder))
        trial = BlueprintTest(blueprint, server, root, tell)
        trial.prepare()
        trial.agent = stack.enter_context(_running_agent(folder, server.url, trial.enrolment(), root or ""))
        for order in orders:
            trial.walk(order)
    return trial.steps


class BlueprintTest:
    def __init__(
        self, blueprint: Blueprint, client: Client, root: str | None, tell: Callable[[StepResult], None]
    ) -> None:
        self.blueprint = blueprint
        self.client = client
        self.root = root
        self.tell = tell
        self.steps: list[StepResult] = []
        self.agent: AgentProcess
        typed = blueprint.service_type
        self.lifecycle = parse_service_type(
            typed.get("propertySchema"), typed.get("lifecycleSchema"), installed_rulebook()
        ).lifecycle

    # ---- before ----
    def prepare(self) -> None:
        """Everybody who is needed for an order."""
        create = self._create
        pushed = self.client.call(
            "POST",
            "/blueprints",
            content=pack(self.blueprint.directory),
            headers={"Content-Type": "application/gzip"},
        )
        self.type_id = pushed["serviceType"]["id"]
        self.provider_id = create("/participants", {"name": "provider"})
        self.pool_set_id = create("/service-pool-sets", {"name": "pools", "providerId": self.provider_id})
        agent_type_id = create("/agent-types", {"name": "trial", "serviceTypeIds": [self.type_id]})
        self.agent_id = create(
            "/agents",
            {
                "name": "trial",
                "providerId": self.provider_id,
                "agentTypeId": agent_type_id,
                "servicePoolSetId": self.pool_set_id,
            },
        )
        consumer_id = create("/participants", {"name": "consumer"})
        self.group_id = create("/service-groups", {"name": "trial", "consumerId": consumer_id})
        self.pools: set[str] = set()
        self.options: set[str] = set()

    def _create(self, path: str, body: dict[str, Any]) -> str:
        return str(self.client.post(path, body)["id"])

    def enrolment(self) -> dict[str, Any]:
        token = self.client.post("/tokens", {"name": "trial", "role": "agent", "scopeId": self.agent_id})["value"]
        return {"url": self.client.url, "agentId": self.agent_id, "token": token, "caFile": None}

    def _offer(self, example: ExampleOrder) -> None:
        """What the provider has for the order: values in pools, and options."""
        for name, values in example.pools.items():
            if name in self.pools:
                continue
            self.pools.add(name)
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
        for name, values in example.options.items():
            if name in self.options:
                continue
            self.options.add(name)
            type_id = self._create("/service-option-types", {"name": name, "type": name})
            for value in values:
                body = {"providerId": self.provider_id, "serviceOptionTypeId": type_id, "name": str(value)}
                self._create("/service-options", {**body, "value": value})

    # ---- the walk ----
    def walk(self, example: ExampleOrder) -> None:
        """Created, through every action and state that can be reached, and deleted at last."""
        there_before = self._files()
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
            told = [f"{path}: {message}" for path, message in refusal.faults] or [str(refusal)]
            self._note(StepResult(example.name, "create", "", "", problems=told))
            return
        order = OrderUnderTest(example, service, service["properties"])
        going_well = self._settle(order, "create")
        if "update" in self.lifecycle.actions and not example.change:
            status = order.service["status"]
            self._note(
                StepResult(example.name, "update", status, status, note="the order has no `change` to try it with")
            )
        done: set[tuple[str, str]] = set()
        for _ in range(MOST_STEPS):
            way = self._way(order, lambda edge: edge not in done and not self._ends(*edge))
            if way is None or not going_well:
                break
            done.add((order.service["status"], way))
            going_well = self._act(order, way)
        for _ in range(len(self.lifecycle.states)):
            way = self._way(order, lambda edge: self._ends(*edge))
            if way is None or not self._act(order, way):
                break
        if order.service["status"] in self.lifecycle.terminal_states and self.steps:
            left = sorted(self._files() - there_before)
            if left:
                more = f" and {len(left) - MOST_LEFT} more" if len(left) > MOST_LEFT else ""
                self.steps[-1].note = f"left behind: {', '.join(left[:MOST_LEFT])}{more}"
                self.tell(self.steps[-1])

    def _ends(self, state: str, action: str) -> bool:
        return transitions.run_path(self.lifecycle, action, state)[-1] in self.lifecycle.terminal_states

    def _way(self, order: OrderUnderTest, wanted: Callable[[tuple[str, str]], bool]) -> str | None:
        """The first action on the shortest way to one that is wanted; `delete` before others."""
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
                to = transitions.run_path(self.lifecycle, action, state)[-1]
                if to not in seen:
                    seen.add(to)
                    queue.append((to, first or action))
        return None

    def _act(self, order: OrderUnderTest, name: str) -> bool:
        """Whether it went well."""
        action = self.lifecycle.actions[name]
        service_id, status = order.service["id"], order.service["status"]
        try:
            if name == "delete":
                self.client.call("DELETE", f"/services/{service_id}")
            elif name == "update":
                self.client.call("PATCH", f"/services/{service_id}", {"properties": self._turned(order)})
            else:
                body = {"properties": self._turned(order)} if action.takes_properties else None
                self.client.post(f"/services/{service_id}/{name}", body)
        except ServerRefusal as refusal:
            told = [f"{path}: {message}" for path, message in refusal.faults] or [str(refusal)]
            self._note(StepResult(order.example.name, name, status, status, problems=told))
            return False
        return self._settle(order, name)

    def _turned(self, order: OrderUnderTest) -> dict[str, Any]:
        """The example's change, or what it was before: an update must change something."""
        order.is_changed = not order.is_changed
        change = order.example.change
        if order.is_changed:
            return change
        # As ordered, or as it was filled in then; what is shown of a secret is not the secret.
        return {name: order.example.properties.get(name, order.as_made.get(name)) for name in change}

    def _settle(self, order: OrderUnderTest, name: str) -> bool:
        """Waits until nothing is active, and notes each job that was done. Whether all went well."""
        before, began = order.service["status"], time.monotonic()
        until = began + self._patience(self.lifecycle.actions.get(name))
        while True:
            order.service = self.client.get(f"/services/{order.service['id']}")
            if order.service["activeJob"] is None:
                break
            if self.agent.process.poll() is not None:
                raise CannotTest(f"the agent ended:\n{self.agent.tail()}")
            if time.monotonic() > until:
                raise CannotTest(f"{name} does not come to an end:\n{self.agent.tail()}")
            time.sleep(LOOK_EVERY_SECONDS)
        jobs = self.client.pages("/jobs", {"serviceId": order.service["id"]})
        fresh = [job for job in jobs if job["id"] not in order.jobs_seen]
        order.jobs_seen |= {job["id"] for job in fresh}
        path = (
            transitions.run_path(self.lifecycle, name, before)
            if before in self.lifecycle.actions[name].successes
            else ()
        )
        taken: list[StepResult] = []
        for index, job in enumerate(fresh):
            is_last = index == len(fresh) - 1
            after = order.service["status"] if is_last else path[index + 1]
            taken.append(self._step(order, job, path[index] if index < len(path) else before, after, is_last=is_last))
        for step in taken:
            step.seconds = (time.monotonic() - began) / len(taken)
            self._note(step)
        return not any(step.failed for step in taken)

    def _patience(self, action: Action | None) -> float:
        seconds = 300.0 if action is None else float(action.timeout_seconds)
        return seconds * len(self.lifecycle.states) + GRACE_SECONDS

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
        note = self.agent.note_of(job["id"])
        step.again = note["unstable"]
        if is_last:
            step.problems = list(self._missing(order, note["outputs"]))
        return step

    def _report(self, job: Mapping[str, Any]) -> dict[str, Any]:
        try:
            found: dict[str, Any] = self.client.get(f"/jobs/{job['id']}/report")
        except ServerRefusal:
            # A job that failed before its run has none.
            return {}
        return found or {}

    def _missing(self, order: OrderUnderTest, sent: Mapping[str, Any]) -> Iterator[str]:
        """Outputs that did not arrive."""
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

    def _note(self, step: StepResult) -> None:
        self.steps.append(step)
        self.tell(step)

    def _files(self) -> set[str]:
        folders = WATCHED if self.root is None else (self.root,)
        found = {
            os.path.join(folder, name)
            for top in folders
            for folder, folders_in, names in os.walk(top)
            for name in (*folders_in, *names)
        }
        return {path for path in found if not path.startswith(OF_THE_HOST)}


def _failed_differences(events: list[Mapping[str, Any]]) -> Iterator[str]:
    for event in events:
        if event["outcome"] == "failed" and event.get("diff"):
            yield f"{event['type']}#{event['name']}\n{event['diff']}"


def _json_type(values: list[Any]) -> str:
    """The type that all values of a pool have."""
    for kind, name in ((bool, "boolean"), (int, "integer"), (float, "number"), (str, "string")):
        if values and all(type(value) is kind for value in values):
            return name
    return "json"


# ---- the server and the agent ----
class AgentProcess:
    """An agent that looks twice, what it says, and what it found."""

    def __init__(self, process: subprocess.Popen[str], log: Path) -> None:
        self.process = process
        self._log = log
        self._notes: dict[str, dict[str, Any]] = {}
        self._told = threading.Condition()
        self._thread = threading.Thread(target=self._listen, daemon=True)
        self._thread.start()

    def _listen(self) -> None:
        for line in self.process.stdout or ():
            note = json.loads(line)
            with self._told:
                self._notes[note["jobId"]] = note
                self._told.notify_all()

    def note_of(self, job_id: str) -> dict[str, Any]:
        """It is told before the job is completed, so it is here, or about to be."""
        with self._told:
            if not self._told.wait_for(lambda: job_id in self._notes, START_SECONDS):
                raise CannotTest(f"the agent did not look a second time:\n{self.tail()}")
            return self._notes[job_id]

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
    """A control plane with its own database on a free port of the loopback, and a client for its admin."""
    data, log = folder / "server", folder / "server.log"
    command = [sys.executable, "-c", PROGRAM, "server", "--port", "0", "--data-dir", str(data)]
    with log.open("wb") as out:
        process = subprocess.Popen(command, stdout=out, stderr=subprocess.STDOUT, env=_clean_environment(folder))
    try:
        url = _wait_for(lambda: _address_in(log), process, log, "the server does not start")
        client = Client(url, (data / "admin.token").read_text().strip())
        _wait_for(lambda: _answers(client), process, log, "the server does not answer")
        yield client
    finally:
        _end(process)


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
        _wait_for(lambda: "agent started" in log.read_text(), process, log, f"the agent does not reach {url}")
        yield AgentProcess(process, log)
    finally:
        _end(process)


def _address_in(log: Path) -> str | None:
    _, found, rest = log.read_text(errors="replace").partition("listens on ")
    return rest.split()[0] if found and rest.split() else None


def _answers(client: Client) -> bool:
    try:
        client.get("/participants")
    except Unreachable:
        return False
    return True


def _wait_for(look: Callable[[], Any], process: subprocess.Popen[Any], log: Path, problem: str) -> Any:
    until = time.monotonic() + START_SECONDS
    while not (found := look()):
        if process.poll() is not None or time.monotonic() > until:
            raise CannotTest(f"{problem}:\n{_tail_of(log)}")
        time.sleep(LOOK_EVERY_SECONDS)
    return found


def _tail_of(log: Path, lines: int = 20) -> str:
    return "\n".join(log.read_text(errors="replace").splitlines()[-lines:])


def _end(process: subprocess.Popen[Any]) -> None:
    if process.poll() is None:
        process.send_signal(signal.SIGTERM)
    try:
        process.wait(STOP_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
    if process.stdout is not None:
        process.stdout.close()
