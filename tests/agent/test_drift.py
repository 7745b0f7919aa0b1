"""What is looked at between jobs: whether the host still is as the blueprint says, and what is done about it."""

from __future__ import annotations

import shutil
import time
from pathlib import Path
from typing import Any

import pytest

from bridge import Bridge, wait_until
from fault_lab import NAME, ROOT, FaultLab, file, run_script

OFTEN = ("--drift-interval", "300ms")
SECRET = "canary-Pk47-drift"
SCHEMA = {
    "size": {"type": "integer"},
    "password": {"type": "string", "secret": {"type": "persistent"}},
}
CONFIG = file(f"{ROOT}/{NAME}.conf", "size {{ lookup('properties.size', 0) }}\n")
KEYS = file(f"{ROOT}/{NAME}.key", "{{ lookup('properties.password') }}\n")


@pytest.fixture
def trial(bridge: Bridge, root: Path) -> FaultLab:
    return FaultLab(bridge, root)


def make(trial: FaultLab, *resources: dict[str, Any], **more: Any) -> Any:
    kept = [CONFIG, KEYS, *resources]
    manifests = {"create": [CONFIG, KEYS], "start": kept, "stop": [CONFIG], "update": kept}
    trial.make(manifests, property_schema=SCHEMA, keeps={"Started": "manifests/start.yaml"}, **more)
    return trial.order({"size": 1, "password": SECRET})


def bring_up(trial: FaultLab, service: Any) -> Any:
    trial.bridge.wait_for(service, "Stopped")
    trial.bridge.world.do(service, "start")
    return trial.bridge.wait_for(service, "Started")


def condition(trial: FaultLab, service: Any) -> dict[str, Any] | None:
    found = trial.bridge.world.service(service["id"])["conditions"]
    return next((each for each in found if each["type"] == "InSync"), None)


def wait_for_condition(trial: FaultLab, service: Any, status: str, reason: str) -> dict[str, Any]:
    def is_so() -> bool:
        found = condition(trial, service)
        return found is not None and (found["status"], found["reason"]) == (status, reason)

    wait_until(is_so, reason, lambda: f"{condition(trial, service)}\n{trial.bridge.logs()}")
    return condition(trial, service) or {}


def versions(trial: FaultLab, service: Any) -> int:
    return int(trial.bridge.world.service(service["id"])["version"])


def test_drift_is_told_once_with_its_difference_and_without_secrets(trial: FaultLab) -> None:
    always = run_script("always", "true")
    guarded = run_script("guarded", "false", creates=f"{ROOT}/marker")
    service = make(trial, always, guarded)
    (trial.root / "marker").touch()
    trial.start(*OFTEN)
    service = bring_up(trial, service)
    name = service["name"]
    assert wait_for_condition(trial, service, "True", "InSync")["message"] == ""
    # A command that always runs is no drift, and what stays the same is no news.
    before = versions(trial, service)
    time.sleep(1.5)
    assert versions(trial, service) == before

    (trial.root / f"{name}.conf").write_text("by hand\n")
    (trial.root / f"{name}.key").write_text(f"{SECRET} and more\n")
    (trial.root / "marker").unlink()
    told = wait_for_condition(trial, service, "False", "Drifted")["message"]
    assert "-by hand\n+size 1\n" in told
    assert "exec#guarded" in told
    assert "exec#always" not in told
    assert SECRET not in told
    assert "[redacted]" in told
    before = versions(trial, service)
    time.sleep(1.5)
    assert versions(trial, service) == before
    assert (trial.root / f"{name}.conf").read_text() == "by hand\n"
    assert SECRET not in trial.bridge.logs()

    (trial.root / f"{name}.conf").write_text("size 1\n")
    (trial.root / f"{name}.key").write_text(f"{SECRET}\n")
    (trial.root / "marker").touch()
    wait_for_condition(trial, service, "True", "InSync")
    # In a state that nothing is kept for there is nothing to say.
    trial.bridge.world.do(service, "stop")
    trial.bridge.wait_for(service, "Stopped")
    wait_until(lambda: condition(trial, service) is None, "the condition is gone", trial.bridge.logs)


def test_what_cannot_be_told_is_unknown(trial: FaultLab) -> None:
    service = make(trial, file(f"{ROOT}/folder/config", "x"))
    (trial.root / "folder").mkdir()
    trial.start(*OFTEN)
    service = bring_up(trial, service)
    wait_for_condition(trial, service, "True", "InSync")
    shutil.rmtree(trial.root / "folder")
    (trial.root / "folder").write_text("no folder")
    assert "folder/config" in wait_for_condition(trial, service, "Unknown", "Unknown")["message"]
    # One service that cannot be looked at keeps no other from it.
    other = trial.order({"size": 1, "password": SECRET}, groupId=trial.new_group())
    trial.bridge.wait_for(other, "Stopped")
    manifest = trial.blueprint / "manifests" / "start.yaml"
    text = manifest.read_text()
    manifest.write_text("resources: [{file: [{/x: {ensur: present}}]}]")
    wait_until(lambda: "does not load" in (condition(trial, service) or {})["message"], "told", trial.bridge.logs)
    manifest.write_text(text)
    (trial.root / "folder").unlink()
    (trial.root / "folder").mkdir()
    (trial.root / "folder" / "config").write_text("x")
    (trial.root / "folder" / "config").chmod(0o600)
    wait_for_condition(trial, service, "True", "InSync")


def test_where_the_blueprint_says_so_drift_is_repaired(trial: FaultLab) -> None:
    restart = run_script("restart", trial.tell("restart"), refresh_only=True, subscribe=[f"file#{ROOT}/{NAME}.conf"])
    service = make(trial, restart, drift="repair")
    trial.start(*OFTEN)
    service = bring_up(trial, service)
    wait_for_condition(trial, service, "True", "InSync")
    config = trial.root / f"{service['name']}.conf"
    config.write_text("by hand\n")
    wait_until(lambda: config.read_text() == "size 1\n", "repaired", trial.bridge.logs)
    wait_until(lambda: trial.lines() == ["restart"], "restarted", trial.bridge.logs)
    wait_until(lambda: "found=Repaired" in trial.bridge.logs(), "told", trial.bridge.logs)
    wait_for_condition(trial, service, "True", "InSync")
    time.sleep(1)
    assert trial.lines() == ["restart"]


def test_a_job_that_comes_during_a_look_wins(trial: FaultLab) -> None:
    """The guard blocks the look until the job is there; the look then ends without a word, and changes nothing."""
    go = trial.root / "go"
    guard = f"sh -c '[ ! -e {trial.root}/block ] || {{ rm {trial.root}/block; echo looks >>{trial.told}; until [ -e {go} ]; do sleep 0.05; done; }}'"
    late = file(f"{ROOT}/late", "x")
    service = make(trial, run_script("guarded", "true", unless=guard), late, drift="repair")
    trial.start(*OFTEN)
    service = bring_up(trial, service)
    wait_for_condition(trial, service, "True", "InSync")
    (trial.root / "block").touch()
    trial.wait_for_line("looks")
    (trial.root / "late").write_text("by hand")
    trial.bridge.world.consumer.patch(f"/services/{service['id']}", {"properties": {"size": 2}})
    trial.wait_for_job(service, status="Completed")
    wait_until(lambda: trial.job(service, "update")["status"] == "Processing", "claimed", trial.bridge.logs)
    go.touch()
    trial.bridge.wait_for(service, "Started")
    assert (trial.root / f"{service['name']}.conf").read_text() == "size 2\n"
    assert (trial.root / "late").read_text() == "x"
    report = trial.bridge.admin.get(f"/jobs/{trial.job(service, 'update')['id']}/report")
    changed = [event["name"] for event in report["events"] if event["changed"]]
    assert changed == [str(trial.root / f"{service['name']}.conf"), str(trial.root / "late")]
    assert "drift is repaired" not in trial.bridge.logs()
