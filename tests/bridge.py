"""Fixtures of the bridge tests: a real server, real agents and small blueprints."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from control_plane import Client, Server
from fork_server import PROGRAM, Process, start_program
from mainstay.blueprints.bundle import pack
from scenario import Scenario, unique

START_SECONDS = 20

# Create, start, stop, update and delete, each with one job.
LIFECYCLE: dict[str, Any] = {
    "states": [{"name": name} for name in ("New", "Stopped", "Started", "Broken", "Deleted")],
    "actions": [
        {
            "name": "create",
            "transitions": [{"from": "New", "to": "Stopped"}, {"from": "New", "to": "Broken", "onError": True}],
        },
        {"name": "start", "transitions": [{"from": "Stopped", "to": "Started"}]},
        {"name": "stop", "transitions": [{"from": "Started", "to": "Stopped"}]},
        {
            "name": "update",
            "requestSchemaType": "properties",
            "transitions": [{"from": "Stopped", "to": "Stopped"}, {"from": "Started", "to": "Started"}],
        },
        {
            "name": "delete",
            "transitions": [{"from": state, "to": "Deleted"} for state in ("New", "Stopped", "Started", "Broken")],
        },
    ],
    "initialState": "New",
    "terminalStates": ["Deleted"],
    "runningStates": ["Started"],
}


def write_blueprint(
    folder: Path,
    *,
    type_name: str,
    manifests: Mapping[str, str],
    property_schema: object = None,
    lifecycle_schema: object = None,
    actions: Mapping[str, Any] | None = None,
    keeps: Mapping[str, str] | None = None,
    **more: Any,
) -> Path:
    """Writes a blueprint. By default each action has the manifest of its name."""
    (folder / "manifests").mkdir(parents=True, exist_ok=True)
    for name, text in manifests.items():
        (folder / "manifests" / f"{name}.yaml").write_text(text)
    definition = {
        "name": type_name,
        "version": "1.0.0",
        "actions": {name: {"manifest": f"manifests/{name}.yaml"} for name in manifests}
        if actions is None
        else actions,
        "keeps": keeps or {},
        **more,
    }
    (folder / "blueprint.yaml").write_text(json.dumps(definition))
    service_type = {
        "name": type_name,
        "propertySchema": property_schema,
        "lifecycleSchema": lifecycle_schema or LIFECYCLE,
    }
    (folder / "service-type.yaml").write_text(json.dumps(service_type))
    return folder


@dataclass
class AgentProcess:
    process: Process
    log: Path

    def text(self) -> str:
        return self.log.read_text(errors="replace")

    def has_started(self) -> bool:
        return "agent started" in self.text()

    def stop(self, seconds: float = 20) -> int:
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(timeout=seconds)

    def kill(self) -> None:
        self.process.kill()
        self.process.wait(timeout=20)


@dataclass
class Bridge:
    """One server, one agent in its database, and a folder for the files of agent processes."""

    server: Server
    folder: Path
    scenario: Scenario = field(init=False)
    agents: list[AgentProcess] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.scenario = Scenario(self.server.admin)

    @property
    def admin(self) -> Client:
        return self.server.admin

    @property
    def state(self) -> Path:
        return self.folder / "agent-state"

    @property
    def config(self) -> Path:
        return self.folder / "agent.json"

    def enrol(self) -> None:
        """Writes the enrolment with an existing token: the server limits the rate of enrolments."""
        document = {"url": self.server.url, "agentId": self.scenario.agent_id, "token": self.scenario.agent.token}
        self.config.touch(0o600)
        self.config.write_text(json.dumps(document))

    def start_agent(
        self, *options: str, command: list[str] | None = None, state: Path | None = None, wait: bool = True
    ) -> AgentProcess:
        """`command` starts the installed program, not a fork, after these words."""
        if not self.config.exists():
            self.enrol()
        log = self.folder / f"agent-{len(self.agents)}.log"
        environment = {**os.environ, "MAINSTAY_STATE_DIR": str(state or self.state)}
        words = ["agent", "run", "--config", str(self.config), *options]
        with log.open("wb") as out:
            process = (
                start_program(words, stdout=out, stderr=out, environment=environment)
                if command is None
                else subprocess.Popen([*command, str(PROGRAM), *words], stdout=out, stderr=out, env=environment)
            )
        agent = AgentProcess(process, log)
        self.agents.append(agent)
        if wait:
            wait_until(
                lambda: agent.has_started() or agent.process.poll() is not None, "the agent is running", agent.text
            )
            assert agent.has_started(), agent.text()
        return agent

    def push(self, blueprint: Path, **query: Any) -> Any:
        """Pushes the blueprint and lets the agent serve its service type."""
        pushed = self.admin.post("/blueprints", raw=pack(str(blueprint)), query=query)
        path = f"/agent-types/{self.scenario.agent_type_id}"
        served = {*self.admin.get(path)["serviceTypeIds"], pushed["serviceType"]["id"]}
        self.admin.patch(path, {"serviceTypeIds": sorted(served)})
        return pushed

    def service_type(self, property_schema: object = None, lifecycle_schema: object = None) -> Any:
        return self.scenario.service_type(property_schema, lifecycle_schema or LIFECYCLE)

    def wait_for(self, service: Any, status: str, seconds: float = 20) -> Any:
        """Waits until the service has this status and no active job. Returns it."""
        found: Any = None

        def reached() -> bool:
            nonlocal found
            found = self.scenario.service(service["id"])
            return bool(found["status"] == status and found["activeJob"] is None)

        wait_until(reached, f"the service is {status}", lambda: f"{found}\n{self.logs()}", seconds)
        return found

    def logs(self) -> str:
        return "\n".join(agent.text() for agent in self.agents)

    def close(self) -> None:
        for agent in self.agents:
            if agent.process.poll() is None:
                agent.kill()


@contextmanager
def bridge_on(server: Server, folder: Path) -> Iterator[Bridge]:
    folder.mkdir(parents=True, exist_ok=True)
    bridge = Bridge(server, folder)
    try:
        yield bridge
    finally:
        bridge.close()


def wait_until(
    condition: Callable[[], bool],
    wanted: str,
    shown: Callable[[], object] = lambda: "",
    seconds: float = START_SECONDS,
) -> None:
    until = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < until, f"waited for: {wanted}\n{shown()}"
        time.sleep(0.02)


def new_type_name() -> str:
    return unique("type")
