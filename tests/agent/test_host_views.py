"""What reports, plans and drift conditions show of a host, to consumers and to others. Real server, real agent."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from bridge import Bridge, wait_until
from fault_lab import NAME, ROOT, FaultLab, file, run_script

OLD, NEW = "canary-Rk81-old", "canary-Rk81-new"
FOREIGN = "foreign-content-of-root"
SCHEMA = {"size": {"type": "integer"}, "password": {"type": "string", "secret": {"type": "persistent"}}}
KEY = f"{ROOT}/{NAME}.key"
CONFIG = file(f"{ROOT}/{NAME}.conf", "kept\nsize {{ lookup('properties.size', 0) }}\n")


@pytest.fixture
def lab(bridge: Bridge, root: Path) -> FaultLab:
    return FaultLab(bridge, root)


def make(lab: FaultLab, create: list[dict[str, Any]], update: list[dict[str, Any]], **more: Any) -> None:
    lab.make({"create": create, "update": update, "delete": update, "start": create}, property_schema=SCHEMA, **more)


def change(lab: FaultLab, service: Any, **properties: Any) -> Any:
    """Updates the service and returns the finished job."""
    lab.bridge.admin.patch(f"/services/{service['id']}", {"properties": properties})
    lab.bridge.wait_for(service, "Stopped")
    return lab.job(service, "update")


def reports(lab: FaultLab, job: Any) -> tuple[Any, Any]:
    """The report as the consumer and as the provider sees it."""
    path = f"/jobs/{job['id']}/report"
    return lab.bridge.scenario.consumer.get(path), lab.bridge.scenario.provider.get(path)


@pytest.mark.parametrize("ensure", ["present", "absent"])
def test_an_update_that_changes_a_secret_and_stops_writing_it_shows_no_old_value(lab: FaultLab, ensure: str) -> None:
    later = file(KEY, "no secret\n") if ensure == "present" else {"file": [{KEY: {"ensure": "absent"}}]}
    make(lab, [file(KEY, "{{ lookup('properties.password') }}\n")], [later])
    lab.start()
    service = lab.order({"password": OLD})
    lab.bridge.wait_for(service, "Stopped")
    assert OLD in (lab.root / f"{service['name']}.key").read_text()
    job = change(lab, service, password=NEW)
    assert job["status"] == "Completed"
    for seen in reports(lab, job):
        assert seen["events"][0]["changed"]
        assert OLD not in json.dumps(seen)
    assert OLD not in json.dumps(lab.bridge.admin.get("/events?pageSize=100"))
    kept = [path for path in lab.bridge.state.rglob("*") if path.is_file()]
    assert not [path for path in kept if OLD in path.read_text(errors="replace")]


def test_a_consumer_sees_the_diff_of_a_file_that_the_service_wrote_last_and_not_what_others_wrote(
    lab: FaultLab,
) -> None:
    fails = run_script("fails", "echo printed-line; exit 3", onlyif=f"test -e {ROOT}/fail")
    make(lab, [CONFIG], [CONFIG, fails])
    lab.start()
    service = lab.order({"size": 1})
    lab.bridge.wait_for(service, "Stopped")
    path = lab.root / f"{service['name']}.conf"

    own, whole = reports(lab, change(lab, service, size=2))
    assert own["events"][0] == whole["events"][0]
    assert own["events"][0]["own"] is True
    assert "-size 1" in own["events"][0]["diff"]

    path.write_text(f"kept\n{FOREIGN}\n")
    call = lab.bridge.scenario.consumer.call
    plan = call("PATCH", f"/api/v1/services/{service['id']}?plan=true", {"properties": {"size": 3}}, expect=200).body
    job = change(lab, service, size=3)
    seen, whole = reports(lab, job)
    assert f"-{FOREIGN}" in whole["events"][0]["diff"]
    for event in (plan["host"]["events"][0], seen["events"][0]):
        assert event["own"] is False
        assert FOREIGN not in json.dumps(event)
        assert not {"checksum", "size"} & event["state"].keys()
        # All lines are new to the consumer: an unchanged line would show that the old file has it too.
        assert "+kept\n+size 3" in event["diff"]

    (lab.root / "fail").touch()
    path.write_text("kept\nsize 3\n")
    job = change(lab, service, size=4)
    assert job["errorMessage"] == "exec#fails: exit code is 3, expected 0"
    seen, whole = reports(lab, job)
    # The content is the same as that of the last write, whichever program wrote it.
    assert "-size 3" in seen["events"][0]["diff"]
    assert "printed-line" in json.dumps(whole)
    assert "printed-line" not in json.dumps(seen)


def test_a_drift_condition_does_not_show_the_consumer_what_others_wrote(lab: FaultLab) -> None:
    make(lab, [CONFIG], [CONFIG], keeps={"Stopped": "manifests/create.yaml"})
    lab.start("--drift-interval", "300ms")
    service = lab.order({"size": 1})
    lab.bridge.wait_for(service, "Stopped")
    (lab.root / f"{service['name']}.conf").write_text(f"kept\n{FOREIGN}\n")

    def messages() -> list[str]:
        scenario = lab.bridge.scenario
        found = [client.get(f"/services/{service['id']}") for client in (scenario.consumer, scenario.provider)]
        return [each["message"] for shown in found for each in shown["conditions"] if each["reason"] == "Drifted"]

    wait_until(lambda: len(messages()) == 2, "drift is reported", lab.bridge.logs)
    consumer, provider = messages()
    assert f"-{FOREIGN}" in provider
    assert FOREIGN not in consumer
    assert "+size 1" in consumer
    assert FOREIGN not in json.dumps(lab.bridge.scenario.consumer.get("/events?pageSize=100"))
