"""Roll-outs: waves, skipped and failed items, stop, pause, resume and abort, on both databases."""

from __future__ import annotations

import time
from typing import Any

import pytest

from blueprint_samples import blueprint, push, serve_type
from scenario import Scenario, unique

SECONDS = 60


@pytest.fixture
def kind(scenario: Scenario) -> Any:
    """A type on version 1.0.0, of which 1.1.0 is the latest."""
    name = unique("web")
    push(scenario.admin, blueprint(name, "1.0.0"))
    return serve_type(scenario, push(scenario.admin, blueprint(name, "1.1.0")))


def ordered(scenario: Scenario, kind: Any, count: int) -> list[Any]:
    """Created services, in the order of their ids, on the old version; each has its own group."""
    services = []
    for _ in range(count):
        group = scenario.consumer.post("/service-groups", {"name": "g", "consumerId": scenario.consumer_id})
        service = scenario.complete(scenario.order(kind, {"size": 1}, groupId=group["id"]))
        scenario.consumer.patch(f"/services/{service['id']}", {"blueprintVersion": "1.0.0"})
        services.append(scenario.complete(service))
    return sorted(services, key=lambda each: str(each["id"]))


def roll_out(scenario: Scenario, kind: Any, *, expect: int = 201, **more: Any) -> Any:
    body = {"serviceTypeId": kind["id"], "action": "update", "batch": 2, "maxFailures": 1, **more}
    return scenario.admin.post("/rollouts", body, expect=expect)


def items(scenario: Scenario, rollout: Any) -> list[Any]:
    found: list[Any] = scenario.admin.get(f"/rollouts/{rollout['id']}/items?pageSize=100")["items"]
    return found


def wait_for(scenario: Scenario, rollout: Any, *statuses: str) -> list[Any]:
    """Waits until the items, by id of the service, have these states."""
    until = time.monotonic() + SECONDS
    while True:
        found = items(scenario, rollout)
        if tuple(each["status"] for each in found) == statuses:
            return found
        assert time.monotonic() < until, f"items are {found}, wanted {statuses}"
        time.sleep(0.1)


def wait_until(scenario: Scenario, rollout: Any, status: str) -> Any:
    return scenario.admin.wait_for(f"/rollouts/{rollout['id']}", {"status": status}, SECONDS)


def test_waves_follow_each_other_to_the_end(scenario: Scenario, kind: Any) -> None:
    services = ordered(scenario, kind, 5)
    rollout = roll_out(scenario, kind)
    assert (rollout["total"], rollout["batchSize"], rollout["blueprintVersion"]) == (5, 2, "1.1.0")
    found = wait_for(scenario, rollout, "Running", "Running", "Waiting", "Waiting", "Waiting")
    assert [each["serviceId"] for each in found] == [each["id"] for each in services]
    assert [each["wave"] for each in found] == [1, 1, 2, 2, 3]
    scenario.complete(services[0])
    wait_for(scenario, rollout, "Done", "Running", "Waiting", "Waiting", "Waiting")
    time.sleep(1.5)
    # The wave has not ended.
    wait_for(scenario, rollout, "Done", "Running", "Waiting", "Waiting", "Waiting")
    scenario.complete(services[1])
    wait_for(scenario, rollout, "Done", "Done", "Running", "Running", "Waiting")
    for service in services[2:4]:
        scenario.complete(service)
    wait_for(scenario, rollout, "Done", "Done", "Done", "Done", "Running")
    scenario.complete(services[4])
    ended = wait_until(scenario, rollout, "Completed")
    assert ended["items"] == {"waiting": 0, "running": 0, "done": 5, "failed": 0, "skipped": 0}
    assert {scenario.service(each["id"])["blueprintDigest"] for each in services} == {kind["blueprintDigest"]}
    types = [each["type"] for each in scenario.admin.get(f"/events?entityId={rollout['id']}")["items"]]
    assert types == ["rollout.created", "rollout.completed"]


@pytest.mark.parametrize(("batch", "size"), [("50%", 2), ("1%", 1), ("100%", 3), (7, 7), ("2", 2)])
def test_a_percentage_is_of_the_members_and_rounded_up(scenario: Scenario, kind: Any, batch: Any, size: int) -> None:
    ordered(scenario, kind, 3)
    assert roll_out(scenario, kind, batch=batch, status="Paused")["batchSize"] == size


@pytest.mark.parametrize("batch", ["0", 0, -1, "101%", "0%", "x", "", "1.5%", True])
def test_a_bad_batch_is_refused(scenario: Scenario, kind: Any, batch: Any) -> None:
    roll_out(scenario, kind, batch=batch, expect=400)


def test_busy_services_and_other_states_are_skipped(scenario: Scenario, kind: Any) -> None:
    services = ordered(scenario, kind, 3)
    scenario.do(services[0], "start")
    scenario.do(services[1], "start")
    scenario.complete(services[1])
    rollout = roll_out(scenario, kind, action="start", batch=3)
    found = wait_for(scenario, rollout, "Skipped", "Skipped", "Running")
    assert [each.get("reason") for each in found] == [
        "busy: start was active",
        "no action start in state Started",
        None,
    ]
    scenario.complete(services[2])
    assert wait_until(scenario, rollout, "Completed")["items"]["skipped"] == 2


def test_a_service_on_the_version_needs_no_job(scenario: Scenario, kind: Any) -> None:
    (service,) = ordered(scenario, kind, 1)
    scenario.consumer.patch(f"/services/{service['id']}", {"blueprintVersion": "latest"})
    scenario.complete(service)
    rollout = roll_out(scenario, kind)
    wait_until(scenario, rollout, "Completed")
    (item,) = items(scenario, rollout)
    assert (item["status"], item["reason"], item.get("jobId")) == ("Done", "nothing to do", None)


@pytest.mark.test_all
def test_it_stops_at_the_last_allowed_failure_and_running_items_end(scenario: Scenario, kind: Any) -> None:
    services = ordered(scenario, kind, 5)
    rollout = roll_out(scenario, kind, batch=3, maxFailures=2)
    wait_for(scenario, rollout, "Running", "Running", "Running", "Waiting", "Waiting")
    scenario.fail(services[0], "no disk\nmore")
    found = wait_for(scenario, rollout, "Failed", "Running", "Running", "Waiting", "Waiting")
    assert found[0]["reason"] == "no disk"
    assert scenario.admin.get(f"/rollouts/{rollout['id']}")["status"] == "Running"
    scenario.fail(services[1], "no disk")
    stopped = wait_until(scenario, rollout, "Stopped")
    assert stopped["failures"] == 2
    scenario.complete(services[2])
    wait_for(scenario, rollout, "Failed", "Failed", "Done", "Waiting", "Waiting")
    time.sleep(1.5)
    wait_for(scenario, rollout, "Failed", "Failed", "Done", "Waiting", "Waiting")


@pytest.mark.test_all
def test_resume_counts_anew_and_starts_with_the_failed_ones(scenario: Scenario, kind: Any) -> None:
    services = ordered(scenario, kind, 4)
    rollout = roll_out(scenario, kind, batch=2)
    wait_for(scenario, rollout, "Running", "Running", "Waiting", "Waiting")
    scenario.complete(services[0])
    scenario.fail(services[1], "no")
    wait_until(scenario, rollout, "Stopped")
    resumed = scenario.admin.post(f"/rollouts/{rollout['id']}/resume", expect=200)
    assert (resumed["status"], resumed["failures"]) == ("Running", 0)
    found = wait_for(scenario, rollout, "Done", "Running", "Running", "Waiting")
    assert [each["wave"] for each in found] == [1, 2, 2, 3]
    for service in services[1:3]:
        scenario.complete(service)
    wait_for(scenario, rollout, "Done", "Done", "Done", "Running")
    scenario.complete(services[3])
    wait_until(scenario, rollout, "Completed")


@pytest.mark.test_all
def test_a_paused_roll_out_starts_nothing_and_goes_on(scenario: Scenario, kind: Any) -> None:
    services = ordered(scenario, kind, 2)
    rollout = roll_out(scenario, kind, batch=1, status="Paused")
    time.sleep(1.5)
    wait_for(scenario, rollout, "Waiting", "Waiting")
    path = f"/rollouts/{rollout['id']}"
    scenario.admin.post(f"{path}/resume", expect=200)
    wait_for(scenario, rollout, "Running", "Waiting")
    scenario.admin.post(f"{path}/pause", expect=200)
    scenario.complete(services[0])
    wait_for(scenario, rollout, "Done", "Waiting")
    time.sleep(1.5)
    wait_for(scenario, rollout, "Done", "Waiting")
    scenario.admin.post(f"{path}/resume", expect=200)
    wait_for(scenario, rollout, "Done", "Running")
    scenario.complete(services[1])
    wait_until(scenario, rollout, "Completed")


def test_abort_undoes_nothing(scenario: Scenario, kind: Any) -> None:
    services = ordered(scenario, kind, 3)
    rollout = roll_out(scenario, kind, batch=1)
    wait_for(scenario, rollout, "Running", "Waiting", "Waiting")
    aborted = scenario.admin.post(f"/rollouts/{rollout['id']}/abort", expect=200)
    assert aborted["status"] == "Aborted"
    found = wait_for(scenario, rollout, "Running", "Skipped", "Skipped")
    assert found[1]["reason"] == "the roll-out was aborted"
    scenario.complete(services[0])
    wait_for(scenario, rollout, "Done", "Skipped", "Skipped")
    for verb in ("pause", "resume", "abort"):
        refused = scenario.admin.post(f"/rollouts/{rollout['id']}/{verb}", expect=409)
        assert refused["code"] == "wrong_state"


def test_a_type_has_one_open_roll_out(scenario: Scenario, kind: Any) -> None:
    ordered(scenario, kind, 1)
    rollout = roll_out(scenario, kind, status="Paused")
    refused = roll_out(scenario, kind, expect=409)
    assert (refused["code"], refused["rolloutId"]) == ("open_rollout", rollout["id"])
    scenario.admin.post(f"/rollouts/{rollout['id']}/abort", expect=200)
    roll_out(scenario, kind, status="Paused")


def test_members_are_those_at_the_start(scenario: Scenario, kind: Any) -> None:
    services = ordered(scenario, kind, 1)
    rollout = roll_out(scenario, kind, status="Paused")
    ordered(scenario, kind, 1)
    assert [each["serviceId"] for each in items(scenario, rollout)] == [services[0]["id"]]
    scenario.admin.delete(f"/services/{services[0]['id']}?force=true")
    scenario.admin.post(f"/rollouts/{rollout['id']}/resume", expect=200)
    (item,) = wait_for(scenario, rollout, "Skipped")
    assert item["reason"] == "no action update in state Deleted"


def test_a_roll_out_without_members_is_complete(scenario: Scenario, kind: Any) -> None:
    rollout = roll_out(scenario, kind)
    assert wait_until(scenario, rollout, "Completed")["total"] == 0


def test_an_action_is_rolled_out_with_a_version(scenario: Scenario, kind: Any) -> None:
    (service,) = ordered(scenario, kind, 1)
    rollout = roll_out(scenario, kind, action="start", blueprintVersion="1.1.0")
    wait_for(scenario, rollout, "Running")
    after = scenario.complete(service)
    assert (after["status"], after["blueprintDigest"]) == ("Started", kind["blueprintDigest"])


def test_a_push_does_not_split_a_roll_out(scenario: Scenario, kind: Any) -> None:
    (service,) = ordered(scenario, kind, 1)
    rollout = roll_out(scenario, kind, status="Paused", blueprintVersion="latest")
    push(scenario.admin, blueprint(kind["name"], "1.2.0"))
    scenario.admin.post(f"/rollouts/{rollout['id']}/resume", expect=200)
    wait_for(scenario, rollout, "Running")
    assert scenario.next_job_seen(service)["blueprintDigest"] == kind["blueprintDigest"]


def test_bad_requests_are_refused(scenario: Scenario, kind: Any) -> None:
    assert roll_out(scenario, kind, action="fly", expect=400)["code"] == "unknown_action"
    assert roll_out(scenario, kind, blueprintVersion="9.9.9", expect=400)["code"] == "unknown_version"
    roll_out(scenario, kind, maxFailures=0, expect=400)
    roll_out(scenario, kind, serviceTypeId=scenario.provider_id, expect=400)
    plain = scenario.service_type(lifecycle_schema=kind["lifecycleSchema"])
    assert roll_out(scenario, plain, expect=400)["code"] == "no_blueprint"


def test_a_service_that_refuses_the_action_counts_as_failed(scenario: Scenario, kind: Any) -> None:
    """A service that another one refers to cannot be deleted; the other one can."""
    schema = {"other": {"type": "reference"}}
    linked = scenario.service_type(schema, kind["lifecycleSchema"])
    target = scenario.complete(scenario.order(linked))
    group = scenario.consumer.post("/service-groups", {"name": "g", "consumerId": scenario.consumer_id})
    referrer = scenario.complete(scenario.order(linked, {"other": target["id"]}, groupId=group["id"]))
    rollout = roll_out(scenario, linked, action="delete", batch=2, maxFailures=5)
    until = time.monotonic() + SECONDS
    while {each["serviceId"]: each["status"] for each in items(scenario, rollout)} != {
        target["id"]: "Failed",
        referrer["id"]: "Running",
    }:
        assert time.monotonic() < until, items(scenario, rollout)
        time.sleep(0.1)
    (failed,) = [each for each in items(scenario, rollout) if each["status"] == "Failed"]
    assert "is in use by services" in failed["reason"]
    scenario.complete(referrer)
    ended = wait_until(scenario, rollout, "Completed")
    assert (ended["failures"], ended["items"]["failed"]) == (1, 1)


def test_the_admin_who_rolls_out_is_named_by_the_events(scenario: Scenario, kind: Any) -> None:
    (service,) = ordered(scenario, kind, 1)
    rollout = roll_out(scenario, kind)
    (item,) = wait_for(scenario, rollout, "Running")
    (event,) = scenario.admin.get(f"/events?entityId={item['jobId']}&type=job.created")["items"]
    (started,) = scenario.admin.get(f"/events?entityId={rollout['id']}&type=rollout.created")["items"]
    assert event["initiatorId"] == started["initiatorId"]
    assert event["initiatorRole"] == "admin"
    scenario.complete(service)


def test_only_admins_see_and_change_roll_outs(scenario: Scenario, kind: Any) -> None:
    ordered(scenario, kind, 1)
    rollout = roll_out(scenario, kind, status="Paused")
    for client in (scenario.consumer, scenario.provider, scenario.stranger, scenario.agent):
        client.get("/rollouts", expect=403)
        client.get(f"/rollouts/{rollout['id']}", expect=403)
        client.get(f"/rollouts/{rollout['id']}/items", expect=403)
        client.post(f"/rollouts/{rollout['id']}/resume", expect=403)
        client.post("/rollouts", {}, expect=403)
    events = scenario.consumer.get("/events?type=rollout&pageSize=100")["items"]
    assert events == []
