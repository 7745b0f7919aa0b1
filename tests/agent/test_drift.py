"""Drift checks between jobs: drift is reported, or repaired if the blueprint asks for it."""

from __future__ import annotations

import os
import shutil
import time
from pathlib import Path
from typing import Any

import pytest

from bridge import Bridge, bridge_on, wait_until
from control_plane import running, start
from fault_lab import NAME, ROOT, FaultLab, file, run_script
from mainstay import __version__
from mainstay.agent.drift import DriftFinding, RepairCounts

OFTEN = ("--drift-interval", "300ms")
SECRET = "canary-Pk47-drift"
SCHEMA = {
    "size": {"type": "integer"},
    "password": {"type": "string", "secret": {"type": "persistent"}},
}
CONFIG = file(f"{ROOT}/{NAME}.conf", "size {{ lookup('properties.size', 0) }}\n")
KEYS = file(f"{ROOT}/{NAME}.key", "{{ lookup('properties.password') }}\n")


@pytest.fixture
def lab(bridge: Bridge, root: Path) -> FaultLab:
    return FaultLab(bridge, root)


def make(lab: FaultLab, *resources: dict[str, Any], **more: Any) -> Any:
    kept = [CONFIG, KEYS, *resources]
    manifests = {"create": [CONFIG, KEYS], "start": kept, "stop": [CONFIG], "update": kept}
    lab.make(manifests, property_schema=SCHEMA, keeps={"Started": "manifests/start.yaml"}, **more)
    return lab.order({"size": 1, "password": SECRET})


def start_service(lab: FaultLab, service: Any) -> Any:
    lab.bridge.wait_for(service, "Stopped")
    lab.bridge.scenario.do(service, "start")
    return lab.bridge.wait_for(service, "Started")


def condition(lab: FaultLab, service: Any) -> dict[str, Any] | None:
    found = lab.bridge.scenario.provider.get(f"/services/{service['id']}")["conditions"]
    return next((each for each in found if each["type"] == "InSync"), None)


def wait_for_condition(lab: FaultLab, service: Any, status: str, reason: str) -> dict[str, Any]:
    def reached() -> bool:
        found = condition(lab, service)
        return found is not None and (found["status"], found["reason"]) == (status, reason)

    wait_until(reached, reason, lambda: f"{condition(lab, service)}\n{lab.bridge.logs()}")
    return condition(lab, service) or {}


def version_of(lab: FaultLab, service: Any) -> int:
    return int(lab.bridge.scenario.service(service["id"])["version"])


def test_drift_is_reported_once_with_its_difference_and_without_secrets(lab: FaultLab) -> None:
    always = run_script("always", "true")
    guarded = run_script("guarded", "false", creates=f"{ROOT}/marker")
    link = {"file": [{f"{ROOT}/link": {"ensure": "link", "target": "wanted"}}]}
    service = make(lab, always, guarded, link)
    (lab.root / "marker").touch()
    lab.start(*OFTEN)
    service = start_service(lab, service)
    name = service["name"]
    assert wait_for_condition(lab, service, "True", "InSync")["message"] == ""
    # A command that always runs is not drift, and an unchanged condition is not sent again.
    before = version_of(lab, service)
    time.sleep(1.5)
    assert version_of(lab, service) == before

    (lab.root / f"{name}.conf").write_text("by hand\n")
    (lab.root / f"{name}.key").write_text(f"{SECRET} and more\n")
    (lab.root / "marker").unlink()
    (lab.root / "link").unlink()
    # Not UTF-8, which no JSON document can contain.
    (lab.root / "link").symlink_to(os.fsdecode(b"other\xff"))
    wait_for_condition(lab, service, "False", "Drifted")

    def message() -> str:
        return str((condition(lab, service) or {}).get("message"))

    # A check that ran during the three edits may have missed some; the next one finds all.
    for part in ("-by hand\n+size 1\n", "exec#guarded", "[redacted]", "leads to other\\udcff"):
        wait_until(lambda part=part: part in message(), part, message)  # type: ignore[misc]
    assert "exec#always" not in message()
    assert SECRET not in message()
    before = version_of(lab, service)
    time.sleep(1.5)
    assert version_of(lab, service) == before
    assert (lab.root / f"{name}.conf").read_text() == "by hand\n"
    assert SECRET not in lab.bridge.logs()

    (lab.root / f"{name}.conf").write_text("size 1\n")
    (lab.root / f"{name}.key").write_text(f"{SECRET}\n")
    (lab.root / "marker").touch()
    (lab.root / "link").unlink()
    (lab.root / "link").symlink_to("wanted")
    wait_for_condition(lab, service, "True", "InSync")
    # In a state without a `keeps` manifest the service has no condition.
    lab.bridge.scenario.do(service, "stop")
    lab.bridge.wait_for(service, "Stopped")
    wait_until(lambda: condition(lab, service) is None, "the condition is gone", lab.bridge.logs)


def test_a_failed_dry_run_is_reported_as_unknown(lab: FaultLab) -> None:
    service = make(lab, file(f"{ROOT}/folder/config", "x"))
    (lab.root / "folder").mkdir()
    lab.start(*OFTEN)
    service = start_service(lab, service)
    wait_for_condition(lab, service, "True", "InSync")
    shutil.rmtree(lab.root / "folder")
    (lab.root / "folder").write_text("not a folder")
    assert "folder/config" in wait_for_condition(lab, service, "Unknown", "Unknown")["message"]
    # A failed check of one service does not prevent the checks of others.
    other = lab.order({"size": 1, "password": SECRET}, groupId=lab.new_group())
    lab.bridge.wait_for(other, "Stopped")
    manifest = lab.blueprint / "manifests" / "start.yaml"
    text = manifest.read_text()
    manifest.write_text("resources: [{file: [{/x: {ensur: present}}]}]")
    wait_until(
        lambda: "does not load" in (condition(lab, service) or {})["message"],
        "the fault is reported",
        lab.bridge.logs,
    )
    manifest.write_text(text)
    (lab.root / "folder").unlink()
    (lab.root / "folder").mkdir()
    (lab.root / "folder" / "config").write_text("x")
    (lab.root / "folder" / "config").chmod(0o600)
    wait_for_condition(lab, service, "True", "InSync")


def test_drift_is_repaired_if_the_blueprint_asks_for_it(lab: FaultLab) -> None:
    restart = run_script("restart", lab.echo("restart"), refresh_only=True, subscribe=[f"file#{ROOT}/{NAME}.conf"])
    service = make(lab, restart, drift="repair")
    lab.start(*OFTEN)
    service = start_service(lab, service)
    wait_for_condition(lab, service, "True", "InSync")
    config = lab.root / f"{service['name']}.conf"
    config.write_text("by hand\n")
    wait_until(lambda: config.read_text() == "size 1\n", "repaired", lab.bridge.logs)
    wait_until(lambda: lab.lines() == ["restart"], "restarted", lab.bridge.logs)
    wait_until(lambda: "result=Repaired" in lab.bridge.logs(), "the repair is reported", lab.bridge.logs)
    wait_for_condition(lab, service, "True", "InSync")
    time.sleep(1)
    assert lab.lines() == ["restart"]


def test_a_repair_that_does_not_hold_is_reported_until_a_check_finds_the_resource_stable(lab: FaultLab) -> None:
    dying = run_script("dying", lab.echo("repaired"), unless=f"test -e {lab.root}/healthy")
    service = make(lab, dying, drift="repair")
    (lab.root / "healthy").touch()
    lab.start(*OFTEN)
    service = start_service(lab, service)
    wait_for_condition(lab, service, "True", "InSync")
    (lab.root / "healthy").unlink()
    wait_for_condition(lab, service, "True", "Repaired")
    found = wait_for_condition(lab, service, "False", "RepairDoesNotHold")
    assert found["message"].startswith("exec#dying: repaired in 3 consecutive checks")
    events, version = f"/events?entityId={service['id']}&pageSize=100", version_of(lab, service)
    before = lab.bridge.admin.get(events)["totalItems"]
    # The fourth repair comes later than the next check. The new number alone is no event.
    wait_until(lambda: "in 4 consecutive" in (condition(lab, service) or {})["message"], "fourth", lab.bridge.logs)
    assert len(lab.lines()) == 4
    assert (version_of(lab, service), lab.bridge.admin.get(events)["totalItems"]) == (version, before)
    (doctor,) = (
        each
        for each in lab.bridge.admin.get("/doctor")
        if each["subject"] == f"service {service['name']} ({service['id']})"
    )
    assert doctor["code"] == "repair_does_not_hold"
    assert "exec#dying" in doctor["message"]
    # A job begins anew.
    lab.bridge.scenario.consumer.patch(f"/services/{service['id']}", {"properties": {"size": 2}})
    wait_for_condition(lab, service, "True", "Repaired")
    (lab.root / "healthy").touch()
    wait_for_condition(lab, service, "True", "InSync")


@pytest.mark.parametrize("interval", ["1h", "0s"])
def test_a_requested_repair_runs_at_once_whatever_the_policy_says(lab: FaultLab, interval: str) -> None:
    service = make(lab, drift="report")
    lab.start("--drift-interval", interval)
    service = start_service(lab, service)
    config = lab.root / f"{service['name']}.conf"
    config.write_text("by hand\n")
    lab.bridge.scenario.provider.put(f"/services/{service['id']}/repair")
    wait_for_condition(lab, service, "True", "Repaired")
    assert config.read_text() == "size 1\n"
    path = f"/services/{service['id']}"
    lab.bridge.scenario.provider.wait_for(path, {"repairRequestedAt": None})
    assert len(lab.bridge.scenario.jobs(service)) == 2, "create and start, no other job"


def test_an_agent_reports_its_host(lab: FaultLab) -> None:
    make(lab)
    lab.start()
    path = f"/agents/{lab.bridge.scenario.agent_id}"
    wait_until(lambda: lab.bridge.admin.get(path).get("facts") is not None, "facts", lab.bridge.logs)
    agent = lab.bridge.admin.get(path)
    assert agent["version"] == __version__
    assert agent["facts"]["kernel"] == os.uname().release
    assert abs(agent["facts"]["clockOffsetSeconds"]) <= 2


def test_repairs_that_do_not_hold_wait_longer_and_longer() -> None:
    counts = RepairCounts()
    waits = []
    for number in range(1, 12):
        assert counts.worst[1] == number - 1
        waits.append(counts.wait_seconds(60.0))
        counts.count(DriftFinding("Drifted", "", "", ["service#web", *(["file#/x"] if number < 5 else [])]))
    assert waits == [0, 0, 0, 120, 240, 480, 960, 1920, 3600, 3600, 3600]
    # A check that finds the worst resource stable begins anew.
    counts.forget_stable(["file#/y"])
    assert counts.wait_seconds(60.0) == 0


def test_a_job_stops_a_running_drift_check(lab: FaultLab) -> None:
    """The guard blocks the check until the job is claimed; the check then ends, reports nothing and changes nothing."""
    go = lab.root / "go"
    guard = f"sh -c '[ ! -e {lab.root}/block ] || {{ rm {lab.root}/block; echo checking >>{lab.record}; until [ -e {go} ]; do sleep 0.05; done; }}'"
    late = file(f"{ROOT}/late", "x")
    service = make(lab, run_script("guarded", "true", unless=guard), late, drift="repair")
    lab.start(*OFTEN)
    service = start_service(lab, service)
    wait_for_condition(lab, service, "True", "InSync")
    (lab.root / "block").touch()
    lab.wait_for_line("checking")
    (lab.root / "late").write_text("by hand")
    lab.bridge.scenario.consumer.patch(f"/services/{service['id']}", {"properties": {"size": 2}})
    lab.wait_for_job(service, status="Completed")
    wait_until(lambda: lab.job(service, "update")["status"] == "Processing", "claimed", lab.bridge.logs)
    go.touch()
    lab.bridge.wait_for(service, "Started")
    assert (lab.root / f"{service['name']}.conf").read_text() == "size 2\n"
    assert (lab.root / "late").read_text() == "x"
    report = lab.bridge.admin.get(f"/jobs/{lab.job(service, 'update')['id']}/report")
    changed = [event["name"] for event in report["events"] if event["changed"]]
    assert changed == [str(lab.root / f"{service['name']}.conf"), str(lab.root / "late")]
    assert "repairing drift" not in lab.bridge.logs()


def test_drift_is_repaired_while_the_server_is_away_and_reported_later(tmp_path: Path, root: Path) -> None:
    with running(tmp_path / "own" / "data") as server, bridge_on(server, tmp_path / "bridge") as bridge:
        lab = FaultLab(bridge, root)
        service = make(lab, drift="repair")
        stopped = lab.order({"size": 1, "password": SECRET}, groupId=lab.new_group())
        lab.start(*OFTEN)
        bridge.wait_for(stopped, "Stopped")
        service = start_service(lab, service)
        wait_for_condition(lab, service, "True", "InSync")
        server.process.kill()
        server.process.wait(timeout=20)
        wait_until(lambda: "drift checks continue without the server" in bridge.logs(), "offline", bridge.logs)
        config, keys = lab.root / f"{service['name']}.conf", lab.root / f"{service['name']}.key"
        for _ in range(2):
            config.write_text("by hand\n")
            # Its content is a secret, which the agent remembers but does not store.
            keys.unlink()
            wait_until(lambda: config.read_text() == "size 1\n" and keys.exists(), "repaired", bridge.logs)
            assert keys.read_text() == f"{SECRET}\n"
        assert all(SECRET.encode() not in path.read_bytes() for path in bridge.state.rglob("*") if path.is_file())
        restarted = start(server.data_dir, port=int(server.url.rpartition(":")[2]))
        try:
            query = {"entityId": service["id"], "pageSize": 100}
            wait_until(
                lambda: "Repaired" in str(bridge.admin.get("/events", query=query)),
                "the repair is reported",
                bridge.logs,
            )
            wait_for_condition(lab, service, "True", "InSync")
        finally:
            restarted.process.kill()
            restarted.process.wait(timeout=20)


def test_a_service_whose_job_ran_since_the_last_list_is_not_repaired_while_the_server_is_away(
    tmp_path: Path, root: Path
) -> None:
    """The last known state is Started, but the agent has stopped the service since."""
    with running(tmp_path / "own" / "data") as server, bridge_on(server, tmp_path / "bridge") as bridge:
        lab = FaultLab(bridge, root)
        hold = run_script("hold", f"{lab.echo('stopping')}; until [ -e {root}/go ]; do sleep 0.05; done")
        lab.make(
            {"create": [CONFIG], "start": [CONFIG], "stop": [hold, file(f"{ROOT}/{NAME}.conf", "stopped\n")]},
            property_schema=SCHEMA,
            keeps={"Started": "manifests/start.yaml"},
            drift="repair",
        )
        service = lab.order({"size": 1, "password": SECRET})
        lab.start("--drift-interval", "1s")
        service = start_service(lab, service)
        wait_for_condition(lab, service, "True", "InSync")
        bridge.scenario.do(service, "stop")
        wait_until(lambda: lab.lines() == ["stopping"], "the job runs", bridge.logs)
        server.process.kill()
        server.process.wait(timeout=20)
        (root / "go").touch()
        config = root / f"{service['name']}.conf"
        wait_until(lambda: config.read_text() == "stopped\n", "stopped", bridge.logs)
        wait_until(lambda: "drift checks continue without the server" in bridge.logs(), "offline", bridge.logs)
        time.sleep(3)
        assert config.read_text() == "stopped\n"
