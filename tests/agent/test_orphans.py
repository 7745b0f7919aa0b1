"""Clean-ups after a forced delete, with a real server, a real agent process and units that listen on real ports."""

from __future__ import annotations

import base64
import os
import shlex
import signal
import socket
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from bridge import AgentProcess, Bridge, bridge_on, wait_until
from control_plane import running, start
from fault_lab import NAME, ROOT, FaultLab, file, run_script
from ports import free_ports
from scenario import unique

PORT = "{{ lookup('properties.port') }}"
KEY = "{{ lookup('properties.key') }}"
SCHEMA: Any = {
    "port": {"type": "integer", "generator": {"type": "pool", "config": {"poolType": "port"}}},
    "key": {"type": "string", "secret": {"type": "persistent"}},
}
# The unit of a service: listens on its port, in a session of its own, so that it outlives the run that starts it.
UNIT = """
import os, socket, sys, time
listening = socket.create_server(("127.0.0.1", int(sys.argv[1])), reuse_port=False)
if os.fork():
    os._exit(0)
os.setsid()
with open(sys.argv[2], "w") as file:
    file.write(str(os.getpid()))
null = os.open(os.devnull, os.O_RDWR)
for number in (0, 1, 2):
    os.dup2(null, number)
time.sleep(300)
"""
# The agent with a shorter interval; its arguments are those of `mainstay agent run`.
IMPATIENT = """
import os, sys
from mainstay.agent.enrolment import read_enrolment
from mainstay.agent.context import AgentContext, AgentSettings, WorkArea
from mainstay.agent.log import Log
from mainstay.agent.loop import AgentLoop
from mainstay.converge.host.state import StateDirectory, state_path

config, blueprint, root = (sys.argv[sys.argv.index(name) + 1] for name in ("--config", "--blueprint", "--root"))
settings = AgentSettings(drift_seconds=0, orphan_seconds=0.3, blueprints=[blueprint])
state = StateDirectory(state_path(os.environ))
area = WorkArea(state.path, root, os.environ)
client = read_enrolment(config).client(connections=8)
AgentLoop(AgentContext(client, state, area, settings, Log(as_json=False))).run()
"""


def is_taken(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


class OrphanLab(FaultLab):
    """Services with a unit, a port from a pool and a secret. Files in `root` make the clean-up fail or wait."""

    def prepare(self, ports: int = 2) -> None:
        self.ports = free_ports(ports)
        scenario = self.bridge.scenario
        made = scenario.provider.post("/service-pool-sets", {"name": "s", "providerId": scenario.provider_id})
        pool = {"name": "p", "type": "port", "propertyType": "integer", "generatorType": "list"}
        pool = scenario.provider.post("/service-pools", {**pool, "servicePoolSetId": made["id"]})
        for port in self.ports:
            value = {"servicePoolId": pool["id"], "name": str(port), "value": port}
            scenario.provider.post("/service-pool-values", value)
        self.bridge.admin.patch(f"/agents/{scenario.agent_id}", {"servicePoolSetId": made["id"]})
        (self.bridge.folder / "unit.py").write_text(UNIT)
        unit = f"{shlex.quote(sys.executable)} {self.bridge.folder}/unit.py {PORT} {ROOT}/{NAME}.pid"
        self.make(
            {
                "create": [
                    file(f"{ROOT}/{NAME}.key", KEY),
                    run_script("start", unit, creates=f"{ROOT}/{NAME}.pid"),
                    run_script("note", self.echo("created", NAME)),
                ],
                "delete": [
                    run_script("check", f"{self.echo('cleans', NAME)}; test ! -e {ROOT}/broken"),
                    run_script("wait", f"while [ -e {ROOT}/wait ]; do sleep 0.05; done"),
                    run_script("stop", f"test ! -e {ROOT}/{NAME}.pid || kill $(cat {ROOT}/{NAME}.pid)"),
                    {"file": [{f"{ROOT}/{NAME}.pid": {"ensure": "absent"}}]},
                    {"file": [{f"{ROOT}/{NAME}.key": {"ensure": "absent"}}]},
                    # The secret is still readable.
                    file(f"{ROOT}/{NAME}.seen", KEY),
                ],
            },
            property_schema=SCHEMA,
        )

    def created(self, **more: Any) -> Any:
        return self.bridge.wait_for(self.order({"key": "canary"}, **more), "Stopped")

    def force_delete(self, service: Any) -> Any:
        self.bridge.admin.delete(f"/services/{service['id']}?force=true")
        (orphan,) = self.bridge.admin.get(f"/orphans?serviceId={service['id']}")["items"]
        return orphan

    def orphans(self) -> list[Any]:
        found: list[Any] = self.bridge.admin.get(f"/orphans?agentId={self.bridge.scenario.agent_id}")["items"]
        return found

    def wait_until_clean(self, seconds: float = 30) -> None:
        wait_until(lambda: not self.orphans(), "the clean-up is confirmed", self.bridge.logs, seconds)

    def end_units(self) -> None:
        for path in self.root.glob("*.pid"):
            with suppress(ProcessLookupError):
                os.kill(int(path.read_text()), signal.SIGKILL)

    def start_impatient(self) -> AgentProcess:
        """Reads the orphans several times a second."""
        return self.start(command=[sys.executable, "-c", IMPATIENT])


@pytest.fixture
def lab(bridge: Bridge, tmp_path: Path) -> Iterator[OrphanLab]:
    (tmp_path / "root").mkdir()
    lab = OrphanLab(bridge, tmp_path / "root")
    lab.prepare()
    yield lab
    lab.end_units()


def test_the_port_of_a_running_unit_goes_to_the_next_order_only_after_the_clean_up(lab: OrphanLab) -> None:
    agent = lab.start()
    service = lab.created()
    port = service["properties"]["port"]
    agent.stop()
    assert lab.force_delete(service)["attempts"] == 0
    assert is_taken(port)
    taken = lab.order({"key": "k"})
    assert taken["properties"]["port"] != port
    body = {"serviceTypeId": lab.kind["id"], "name": "x", "groupId": lab.bridge.scenario.group_id}
    body["agentId"] = lab.bridge.scenario.agent_id
    refused = lab.bridge.scenario.consumer.post("/services", body, expect=400)
    assert "failed to allocate from pool port" in str(refused)
    lab.start()
    lab.wait_until_clean()
    assert not is_taken(port)
    assert (lab.root / f"{service['name']}.seen").read_text() == "canary"
    # Tried before the job, which was ordered earlier than the agent started.
    lab.bridge.wait_for(taken, "Stopped")
    assert lab.lines()[-2:] == [f"cleans {service['name']}", f"created {taken['name']}"]
    successor = lab.created()
    assert successor["properties"]["port"] == port
    assert is_taken(port)


def test_clean_ups_begin_within_seconds_also_beside_one_that_takes_long(lab: OrphanLab) -> None:
    """The agent reads its clean-ups once a minute; the server wakes it."""
    lab.start()
    services = [lab.created(groupId=lab.new_group()) for _ in range(2)]
    (lab.root / "wait").touch()
    for service in services:
        lab.force_delete(service)
        lab.wait_for_line(f"cleans {service['name']}")
    (lab.root / "wait").unlink()
    lab.wait_until_clean()


def test_a_job_of_a_service_with_the_same_type_and_name_waits_for_the_clean_up(lab: OrphanLab) -> None:
    """In the other order the clean-up removes the files of the successor."""
    lab.start()
    name = unique("shop")
    service = lab.created(name=name)
    lab.force_delete(service)
    # The agent has just read the orphans; the pending job makes it read them again.
    successor = lab.created(name=name)
    assert lab.lines() == [f"created {name}", f"cleans {name}", f"created {name}"]
    assert (lab.root / f"{name}.key").read_text() == "canary"
    assert is_taken(successor["properties"]["port"])
    assert lab.orphans() == []


def test_a_failing_clean_up_is_retried_and_holds_back_only_jobs_with_its_name(lab: OrphanLab) -> None:
    lab.start_impatient()
    name = unique("shop")
    service = lab.created(name=name)
    (lab.root / "broken").touch()
    lab.force_delete(service)
    successor = lab.order({"key": "k"}, name=name, groupId=lab.new_group())
    wait_until(lambda: lab.orphans()[0]["attempts"] >= 2, "two attempts", lab.bridge.logs)
    assert lab.orphans()[0]["lastError"].startswith("exec#check: ")
    # The agent takes other jobs, and fails this one for want of a blueprint.
    other = lab.bridge.scenario.order(lab.bridge.service_type())
    lab.bridge.wait_for(other, "Broken")
    assert lab.job(successor)["status"] == "Pending"
    (lab.root / "broken").unlink()
    lab.wait_until_clean()
    lab.bridge.wait_for(successor, "Stopped")
    assert "canary" not in lab.bridge.logs()


def test_a_service_deleted_with_force_in_the_middle_of_a_job_is_cleaned_up_after_its_run(lab: OrphanLab) -> None:
    lab.start()
    service = lab.created()
    (lab.root / "wait").touch()
    lab.bridge.scenario.consumer.delete(f"/services/{service['id']}")
    lab.wait_for_line(f"cleans {service['name']}")
    lab.force_delete(service)
    wait_until(lambda: "lease lost" in lab.bridge.logs(), "the job notices", lab.bridge.logs)
    (lab.root / "wait").unlink()
    lab.wait_until_clean()
    assert not is_taken(service["properties"]["port"])


def test_a_clean_up_that_was_killed_in_the_middle_runs_again(lab: OrphanLab) -> None:
    agent = lab.start()
    service = lab.created()
    agent.stop()
    (lab.root / "wait").touch()
    lab.force_delete(service)
    agent = lab.start()
    lab.wait_for_line(f"cleans {service['name']}")
    agent.kill()
    assert len(lab.orphans()) == 1
    (lab.root / "wait").unlink()
    lab.start()
    lab.wait_until_clean()
    assert not is_taken(service["properties"]["port"])
    assert lab.lines().count(f"cleans {service['name']}") == 2


def test_a_clean_up_runs_only_a_signed_blueprint_on_an_agent_with_trusted_keys(lab: OrphanLab) -> None:
    agent = lab.start()
    service = lab.created()
    agent.stop()
    lab.force_delete(service)
    keys = lab.bridge.folder / "keys"
    keys.write_text(f"{base64.b64encode(bytes(32)).decode()}\n")
    lab.start("--trust", str(keys))
    wait_until(lambda: lab.orphans()[0]["attempts"] == 1, "the clean-up has failed", lab.bridge.logs)
    assert lab.orphans()[0]["lastError"].startswith("blueprint is not signed by a trusted key")
    assert is_taken(service["properties"]["port"])


def test_a_stopped_clean_up_counts_as_no_attempt(lab: OrphanLab) -> None:
    agent = lab.start()
    service = lab.created()
    agent.stop()
    (lab.root / "wait").touch()
    lab.force_delete(service)
    agent = lab.start()
    lab.wait_for_line(f"cleans {service['name']}")
    agent.process.terminate()
    wait_until(lambda: "agent stopping" in agent.text(), "the agent stops", agent.text)
    (lab.root / "wait").unlink()
    assert agent.process.wait(timeout=20) == 0
    (orphan,) = lab.orphans()
    assert (orphan["attempts"], orphan["lastError"]) == (0, None)


def test_a_confirmation_is_kept_until_the_server_is_back(tmp_path: Path) -> None:
    (tmp_path / "root").mkdir()
    with running(tmp_path / "own" / "data") as server, bridge_on(server, tmp_path / "bridge") as bridge:
        lab = OrphanLab(bridge, tmp_path / "root")
        lab.prepare()
        agent = lab.start()
        service = lab.created()
        agent.stop()
        (lab.root / "wait").touch()
        lab.force_delete(service)
        agent = lab.start()
        lab.wait_for_line(f"cleans {service['name']}")
        server.process.kill()
        server.process.wait(timeout=20)
        (lab.root / "wait").unlink()
        wait_until(lambda: "clean-up not reported, retrying" in agent.text(), "the result waits", agent.text)
        agent.kill()
        lab.start()
        restarted = start(server.data_dir, port=int(server.url.rpartition(":")[2]))
        try:
            lab.wait_until_clean()
            # The saved result was delivered; the clean-up did not run again.
            assert lab.lines().count(f"cleans {service['name']}") == 1
            assert not list((bridge.state / "agent" / "orphans").iterdir())
        finally:
            restarted.process.kill()
            restarted.process.wait(timeout=20)
