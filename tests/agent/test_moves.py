"""Moves between two real agents: the target runs `create` and the manifest of the state, the old host is cleaned up."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from bridge import AgentProcess, Bridge, bridge_on, wait_until, write_blueprint
from control_plane import running, start
from fault_lab import file, run_script
from scenario import unique

ROOT = "{{ lookup('service.root') }}"
NAME = "{{ lookup('service.name') }}"
KEY = "{{ lookup('properties.key') }}"
SCHEMA: Any = {
    "key": {"type": "string", "secret": {"type": "persistent"}},
    "home": {"type": "string", "authorizers": [{"type": "actor", "config": {"actors": ["agent"]}}]},
}
MOVE_SECONDS = 60
CLEAN_UP_SECONDS = 30


class TwoHosts:
    """A movable type and two agents, each with a root of its own."""

    def __init__(self, bridge: Bridge) -> None:
        self.bridge = bridge
        self.roots = [bridge.folder / name for name in ("old", "new")]
        for root in self.roots:
            root.mkdir()
        self.agent_ids = [bridge.scenario.agent_id, bridge.scenario.new_agent()["id"]]
        self.pushed = bridge.push(self._write())

    def _write(self) -> Path:
        slow = run_script("slow", f"[ ! -e {ROOT}/wait ] || sleep 3")
        broken = run_script("broken", f"[ ! -e {ROOT}/broken ]")
        manifests: dict[str, Any] = {
            "create": {
                "resources": [file(f"{ROOT}/{NAME}", KEY), slow, broken],
                "outputs": {
                    "properties": {"home": ROOT},
                    "instance_id": NAME,
                    "instance_data": {"unit": f"unit-{NAME}"},
                },
            },
            # Sees what `create` has reported.
            "started": {
                "resources": [
                    file(
                        f"{ROOT}/{NAME}.started",
                        "{{ lookup('instance.unit') }} in {{ lookup('properties.home') }}",
                    )
                ]
            },
            "stopped": {"resources": [file(f"{ROOT}/{NAME}.started", "", ensure="absent")]},
            "removed": {
                "resources": [{"file": [{f"{ROOT}/{NAME}{end}": {"ensure": "absent"}} for end in ("", ".started")]}]
            },
        }
        del manifests["stopped"]["resources"][0]["file"][0][f"{ROOT}/{NAME}.started"]["content"]
        used = {"create": "create", "start": "started", "stop": "stopped", "update": "create", "delete": "removed"}
        return write_blueprint(
            self.bridge.folder / "blueprint",
            type_name=unique("type"),
            manifests={name: json.dumps(content) for name, content in manifests.items()},
            property_schema=SCHEMA,
            actions={name: f"manifests/{manifest}.yaml" for name, manifest in used.items()},
            keeps={"Started": "manifests/started.yaml", "Stopped": "manifests/stopped.yaml"},
            movable=True,
        )

    def start(self, number: int, *options: str) -> AgentProcess:
        bridge = self.bridge
        token = bridge.scenario.token("agent", self.agent_ids[number]).token
        bridge.config.touch(0o600)
        document = {"url": bridge.server.url, "agentId": self.agent_ids[number], "token": token}
        bridge.config.write_text(json.dumps(document))
        more = ("--root", str(self.roots[number]), "--drift-interval", "0s", "--lease", "10s", *options)
        return bridge.start_agent(*more, state=bridge.folder / f"state-{number}")

    def order(self) -> Any:
        service = self.bridge.scenario.order(self.pushed["serviceType"], {"key": "s3cret"})
        return self.bridge.wait_for(service, "Stopped")

    def move(self, service: Any, **body: Any) -> Any:
        wanted = {"agentId": self.agent_ids[1], **body}
        return self.bridge.scenario.consumer.put(f"/services/{service['id']}/agent", wanted)

    def files(self, number: int) -> dict[str, str]:
        return {path.name: path.read_text() for path in sorted(self.roots[number].iterdir()) if path.is_file()}

    def wait_until_moved(self, service: Any) -> Any:
        def is_there() -> bool:
            return bool(self.bridge.scenario.service(service["id"])["agentId"] == self.agent_ids[1])

        wait_until(is_there, "the service has moved", self.bridge.logs, MOVE_SECONDS)
        return self.bridge.scenario.service(service["id"])

    def wait_until_clean(self) -> None:
        """Sooner than the agents read their clean-ups by themselves: the server wakes them."""
        wait_until(lambda: not self.orphans(), "the hosts are clean", self.bridge.logs, CLEAN_UP_SECONDS)

    def orphans(self) -> list[Any]:
        found: list[Any] = self.bridge.admin.get("/orphans?pageSize=100")["items"]
        return [each for each in found if each["agentId"] in self.agent_ids]

    def opened(self) -> list[tuple[int, str]]:
        """(number of the host, reason) of each clean-up that was ever owed."""
        events = self.bridge.admin.get("/events?type=orphan.created&pageSize=100&sort=-createdAt")["items"]
        return [
            (self.agent_ids.index(each["agentId"]), part["value"])
            for each in events
            if each["agentId"] in self.agent_ids
            for part in each["properties"]["diff"]
            if part["path"] == "/reason"
        ]


@pytest.fixture
def hosts(bridge: Bridge) -> TwoHosts:
    return TwoHosts(bridge)


def test_a_started_service_moves_with_its_secret_and_leaves_nothing(hosts: TwoHosts) -> None:
    hosts.start(0), hosts.start(1)
    service = hosts.order()
    name = service["name"]
    hosts.bridge.scenario.do(service, "start")
    hosts.bridge.wait_for(service, "Started")
    assert hosts.files(0) == {name: "s3cret", f"{name}.started": f"unit-{name} in {hosts.roots[0]}"}
    hosts.move(service)
    after = hosts.wait_until_moved(service)
    assert (after["status"], after["properties"]["home"]) == ("Started", str(hosts.roots[1]))
    assert after["agentInstanceData"] == {"unit": f"unit-{name}"}
    assert hosts.files(1) == {name: "s3cret", f"{name}.started": f"unit-{name} in {hosts.roots[1]}"}
    report = hosts.bridge.admin.get(f"/jobs/{hosts.bridge.scenario.jobs(service)[-1]['id']}/report")
    assert report["summary"]["total"] == len(report["events"]) == 4
    hosts.wait_until_clean()
    assert hosts.files(0) == {}
    assert hosts.bridge.scenario.service(service["id"])["orphan"] is False


def test_a_stopped_service_is_stopped_on_the_target(hosts: TwoHosts) -> None:
    hosts.start(0), hosts.start(1)
    service = hosts.order()
    hosts.move(service)
    hosts.wait_until_moved(service)
    assert hosts.files(1) == {service["name"]: "s3cret"}


def test_a_planned_move_names_what_then_happens_on_both_hosts(hosts: TwoHosts) -> None:
    hosts.start(0), hosts.start(1)
    service = hosts.order()
    path = f"/services/{service['id']}/agent"
    plan = hosts.bridge.scenario.consumer.put(path, {"agentId": hosts.agent_ids[1]}, query={"plan": "true"})
    assert plan["path"] == ["Stopped"]
    assert f"{hosts.roots[1]}/{service['name']}" in [event["name"] for event in plan["host"]["events"]]
    assert hosts.files(1) == {}
    creation, clean_up = plan["steps"]
    assert plan["host"]["manifest"] == creation["manifests"][0]
    hosts.move(service, planDigest=plan["planDigest"])
    hosts.wait_until_moved(service)
    job = hosts.bridge.scenario.jobs(service)[-1]
    assert (creation["agent"]["id"], creation["action"]) == (job["agentId"], job["action"])
    events = hosts.bridge.admin.get(f"/jobs/{job['id']}/report")["events"]
    # Those of the first manifest are forecast; the others are of the second.
    forecast = [event["name"] for event in plan["host"]["events"]]
    assert [event["name"] for event in events[: len(forecast)]] == forecast
    assert len(events) > len(forecast)
    assert creation["manifests"] == ["manifests/create.yaml", "manifests/stopped.yaml"]
    assert hosts.opened() == [(0, "moved")]
    assert (clean_up["agent"]["id"], clean_up["action"]) == (hosts.agent_ids[0], "delete")
    assert clean_up["manifests"] == ["manifests/removed.yaml"]
    hosts.wait_until_clean()
    assert hosts.files(0) == {}


def test_a_failed_move_is_cleaned_up_on_the_target(hosts: TwoHosts) -> None:
    hosts.start(0), hosts.start(1)
    service = hosts.order()
    (hosts.roots[1] / "broken").touch()
    hosts.move(service)
    after = hosts.bridge.wait_for(service, "Stopped", MOVE_SECONDS)
    assert (after["agentId"], hosts.opened()) == (hosts.agent_ids[0], [(1, "move_failed")])
    hosts.wait_until_clean()
    assert hosts.files(1) == {"broken": ""}
    assert hosts.files(0) == {service["name"]: "s3cret"}


def test_a_target_that_is_killed_during_a_move_completes_it_after_its_restart(hosts: TwoHosts) -> None:
    hosts.start(0)
    target = hosts.start(1)
    service = hosts.order()
    (hosts.roots[1] / "wait").touch()
    hosts.move(service)
    wait_until(lambda: service["name"] in hosts.files(1), "the move has begun", hosts.bridge.logs, MOVE_SECONDS)
    target.kill()
    (hosts.roots[1] / "wait").unlink()
    hosts.start(1)
    hosts.wait_until_moved(service)
    assert hosts.files(1) == {service["name"]: "s3cret"}


@pytest.fixture
def own_bridge(tmp_path: Path) -> Iterator[Bridge]:
    """On a server of its own, which the test may kill."""
    with running(tmp_path / "data") as server, bridge_on(server, tmp_path / "bridge") as bridge:
        yield bridge
        if bridge.server is not server:
            bridge.server.process.kill()
            bridge.server.process.wait(timeout=30)


def test_a_server_that_is_killed_during_a_move_loses_nothing(own_bridge: Bridge) -> None:
    hosts = TwoHosts(own_bridge)
    hosts.start(0), hosts.start(1)
    service = hosts.order()
    (hosts.roots[1] / "wait").touch()
    hosts.move(service)
    wait_until(lambda: service["name"] in hosts.files(1), "the move has begun", own_bridge.logs, MOVE_SECONDS)
    server = own_bridge.server
    server.process.kill()
    server.process.wait(timeout=30)
    own_bridge.server = start(server.data_dir, port=int(server.url.rsplit(":", 1)[1]))
    hosts.wait_until_moved(service)
    assert hosts.files(1) == {service["name"]: "s3cret", "wait": ""}
    assert hosts.opened() == [(0, "moved")]
