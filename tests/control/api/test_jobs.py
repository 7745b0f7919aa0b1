"""The job queue: order, claims, leases, time-outs, and exactly one outcome for each job."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import seed_text
from scenario import Scenario

SIMPLE: Any = seed_text.block("Example 1: Simple VM Lifecycle")


def lifecycle(**create: Any) -> Any:
    """New → Stopped, with an error path to Failed, and Failed → Deleted."""
    return {
        "states": [{"name": name} for name in ("New", "Stopped", "Late", "Failed", "Deleted")],
        "actions": [
            {
                "name": "create",
                "requestSchemaType": "properties",
                "transitions": [
                    {"from": "New", "to": "Stopped"},
                    {"from": "New", "to": "Late", "onError": True, "onErrorRegexp": "timed out|not claimed|expired"},
                    {"from": "New", "to": "Failed", "onError": True},
                ],
                **create,
            },
            {
                "name": "delete",
                "transitions": [{"from": state, "to": "Deleted"} for state in ("Failed", "Late", "Stopped")],
            },
        ],
        "initialState": "New",
        "terminalStates": ["Deleted"],
    }


def pending(scenario: Scenario, query: str = "") -> list[Any]:
    found: list[Any] = scenario.agent.get(f"/jobs/pending{query}")
    return found


def test_a_failure_is_stored_whatever_its_length(scenario: Scenario) -> None:
    service = scenario.order(scenario.service_type())
    scenario.fail(service, "exec#make: exit code 2\n" + "noise \0\n" * 60_000 + "the cause")
    message = scenario.admin.get(f"/jobs/{scenario.jobs(service)[0]['id']}")["errorMessage"]
    assert message.startswith("exec#make: exit code 2\n…\n")
    assert message.endswith("noise \N{REPLACEMENT CHARACTER}\nthe cause")
    assert len(message) <= 100_000


def test_an_old_agent_claims_without_a_body_and_completes_with_nulls(scenario: Scenario) -> None:
    service = scenario.order(scenario.service_type(None, SIMPLE), {"a": 1})
    scenario.agent.put("/agents/me/status", {"status": "Connected"})
    (job,) = pending(scenario)
    assert job["service"]["id"] == service["id"]
    assert job["service"]["properties"] == {"a": 1}
    claimed = scenario.agent.call("POST", f"/api/v1/jobs/{job['id']}/claim", raw=b"")
    assert (claimed.status, claimed.body) == (204, b"")
    body = {"properties": None, "agentInstanceId": None, "agentInstanceData": None}
    scenario.agent.post(f"/jobs/{job['id']}/complete", body, expect=204)
    assert scenario.service(service["id"])["status"] == "Stopped"
    assert pending(scenario) == []


def test_pending_jobs_are_one_for_each_group_without_a_running_job(scenario: Scenario) -> None:
    kind = scenario.service_type(None, SIMPLE)
    first, second = scenario.order(kind), scenario.order(kind)
    other_group = scenario.consumer.post("/service-groups", {"name": "o", "consumerId": scenario.consumer_id})["id"]
    other = scenario.order(kind, groupId=other_group)
    assert [job["serviceId"] for job in pending(scenario)] == [first["id"], other["id"]]
    assert [job["serviceId"] for job in pending(scenario, "?limit=1")] == [first["id"]]
    job = scenario.next_job(first)
    assert [each["serviceId"] for each in pending(scenario)] == [other["id"]]
    scenario.agent.post(f"/jobs/{job['id']}/complete", expect=204)
    assert [each["serviceId"] for each in pending(scenario)] == [second["id"], other["id"]]
    scenario.agent.get("/jobs/pending?limit=0", expect=400)
    scenario.agent.get("/jobs/pending?wait=61", expect=400)
    scenario.consumer.get("/jobs/pending", expect=403)


def test_exactly_one_of_many_claimers_wins(scenario: Scenario) -> None:
    service = scenario.order(scenario.service_type(None, SIMPLE))
    (job,) = scenario.jobs(service)
    with ThreadPoolExecutor(16) as threads:
        replies = list(
            threads.map(
                lambda _: scenario.agent.call("POST", f"/api/v1/jobs/{job['id']}/claim", {"leaseSeconds": 60}),
                range(50),
            )
        )
    assert sorted(reply.status for reply in replies) == [200] + [409] * 49


def test_a_lease_is_renewed_and_lost(scenario: Scenario) -> None:
    service = scenario.order(scenario.service_type(None, SIMPLE))
    (job,) = pending(scenario)
    path = f"/jobs/{job['id']}"
    claim = {"leaseSeconds": 30, "claimId": "claim-0001"}
    lease = scenario.agent.post(f"{path}/claim", claim, expect=200)
    assert lease["job"]["status"] == "Processing"
    assert scenario.agent.post(f"{path}/claim", claim, expect=200)["leaseToken"] == lease["leaseToken"]
    scenario.agent.post(f"{path}/claim", {"leaseSeconds": 30, "claimId": "claim-0002"}, expect=409)
    progress = {"percent": 40, "text": "resource 2 of 5"}
    renewed = scenario.agent.post(
        f"{path}/renew", {"leaseToken": lease["leaseToken"], "progress": progress}, expect=200
    )
    assert renewed["cancelRequested"] is False
    assert renewed["leaseExpiresAt"] > lease["leaseExpiresAt"]
    assert scenario.agent.get(path)["progress"] == progress
    for verb, body in (("complete", {}), ("fail", {"errorMessage": "x"}), ("release", {})):
        assert scenario.agent.post(f"{path}/{verb}", body, expect=409)["code"] == "lease_lost"
    scenario.agent.post(f"{path}/renew", {"leaseToken": "wrong"}, expect=409)
    version = scenario.service(service["id"])["version"]
    scenario.agent.post(f"{path}/release", {"leaseToken": lease["leaseToken"]}, expect=204)
    released = scenario.agent.get(path)
    assert (released["status"], released["attempt"]) == ("Pending", 1)
    assert scenario.service(service["id"])["version"] == version
    again = scenario.agent.post(f"{path}/claim", {"leaseSeconds": 30}, expect=200)
    body = {"leaseToken": again["leaseToken"]}
    scenario.agent.post(f"{path}/complete", body, expect=204)
    scenario.agent.post(f"{path}/complete", body, expect=204)
    assert (
        scenario.agent.post(f"{path}/complete", {**body, "agentInstanceId": "other"}, expect=409)["code"]
        == "not_processing"
    )
    assert len([each for each in scenario.jobs(service) if each["status"] == "Completed"]) == 1


def test_a_claim_without_a_lease_times_out_and_fails(scenario: Scenario) -> None:
    service = scenario.order(scenario.service_type(None, lifecycle(timeoutSeconds=1)))
    job = scenario.next_job(service)
    done = scenario.consumer.wait_for(f"/services/{service['id']}", {"status": "Late"})
    assert done["activeJob"] is None
    assert scenario.agent.get(f"/jobs/{job['id']}")["errorMessage"] == "job timed out"
    assert scenario.agent.post(f"/jobs/{job['id']}/complete", expect=409)["code"] == "not_processing"


def test_an_unclaimed_job_times_out_if_its_action_sets_a_pending_timeout(scenario: Scenario) -> None:
    service = scenario.order(scenario.service_type(None, lifecycle(pendingTimeoutSeconds=1)))
    scenario.consumer.wait_for(f"/services/{service['id']}", {"status": "Late"})
    assert scenario.jobs(service)[0]["errorMessage"] == "job not claimed in time"


def test_a_pending_job_may_be_failed_without_a_claim(scenario: Scenario) -> None:
    service = scenario.order(scenario.service_type(None, lifecycle()))
    (job,) = pending(scenario)
    scenario.agent.post(f"/jobs/{job['id']}/complete", expect=409)
    scenario.agent.post(f"/jobs/{job['id']}/fail", {"errorMessage": "cannot"}, expect=204)
    scenario.agent.post(f"/jobs/{job['id']}/fail", {"errorMessage": "cannot"}, expect=204)
    scenario.agent.post(f"/jobs/{job['id']}/fail", {"errorMessage": "other"}, expect=409)
    assert scenario.service(service["id"])["status"] == "Failed"


def test_cancelling_a_pending_job_ends_it_and_keeps_the_state(scenario: Scenario) -> None:
    service = scenario.order(scenario.service_type(None, lifecycle()))
    (job,) = scenario.jobs(service)
    scenario.stranger.post(f"/jobs/{job['id']}/cancel", expect=404)
    scenario.consumer.post(f"/jobs/{job['id']}/cancel", expect=204)
    assert scenario.jobs(service)[0]["status"] == "Cancelled"
    assert scenario.service(service["id"])["status"] == "New"
    assert scenario.consumer.post(f"/jobs/{job['id']}/cancel", expect=409)["code"] == "not_processing"


def test_cancelling_a_running_job_notifies_its_agent(scenario: Scenario) -> None:
    service = scenario.order(scenario.service_type(None, lifecycle()))
    (job,) = pending(scenario)
    lease = scenario.agent.post(f"/jobs/{job['id']}/claim", {"leaseSeconds": 30}, expect=200)
    scenario.consumer.post(f"/jobs/{job['id']}/cancel", expect=204)
    token = {"leaseToken": lease["leaseToken"]}
    assert scenario.agent.post(f"/jobs/{job['id']}/renew", token, expect=200)["cancelRequested"] is True
    scenario.agent.post(f"/jobs/{job['id']}/fail", {**token, "errorMessage": "cancelled after 1 of 2"}, expect=204)
    ended = scenario.agent.get(f"/jobs/{job['id']}")
    assert (ended["status"], ended["errorMessage"]) == ("Cancelled", "cancelled after 1 of 2")
    assert scenario.service(service["id"])["status"] == "Failed"


def test_concurrent_complete_fail_and_cancel_have_exactly_one_outcome(scenario: Scenario) -> None:
    kind = scenario.service_type(None, lifecycle())
    for _ in range(5):
        service = scenario.order(kind)
        job = scenario.next_job(service)
        path = f"/api/v1/jobs/{job['id']}"
        with ThreadPoolExecutor(3) as threads:
            replies = list(
                threads.map(
                    lambda call: scenario.agent.call("POST", f"{path}/{call[0]}", call[1]).status,  # noqa: B023  # called within the same iteration
                    [("complete", {}), ("fail", {"errorMessage": "x"}), ("cancel", None)],
                )
            )
        ended = scenario.agent.get(f"/jobs/{job['id']}")["status"]
        state = scenario.service(service["id"])["status"]
        assert (ended, state) in {("Completed", "Stopped"), ("Failed", "Failed"), ("Cancelled", "Failed")}
        assert replies[:2].count(204) == 1


def test_a_long_poll_returns_as_soon_as_there_is_a_job(scenario: Scenario) -> None:
    kind = scenario.service_type(None, SIMPLE)
    _ = (scenario.agent.get("/agents/me"), scenario.consumer, scenario.group_id)
    with ThreadPoolExecutor(1) as threads:
        waiting = threads.submit(lambda: (scenario.agent.get("/jobs/pending?wait=20"), time.monotonic()))
        time.sleep(0.5)
        assert not waiting.done()
        scenario.order(kind)
        committed = time.monotonic()
        found, answered = waiting.result(timeout=15)
    assert len(found) == 1
    assert answered - committed < 1.0


def test_a_long_poll_without_a_job_ends_after_its_wait(scenario: Scenario) -> None:
    started = time.monotonic()
    assert pending(scenario, "?wait=1") == []
    assert 0.9 < time.monotonic() - started < 5


def test_the_report_is_stored_with_the_job(scenario: Scenario) -> None:
    service = scenario.order(scenario.service_type(None, SIMPLE))
    job = scenario.next_job(service)
    scenario.agent.get(f"/jobs/{job['id']}/report", expect=404)
    report = {"summary": {"changed": 2}, "events": [None, 1]}
    scenario.agent.post(f"/jobs/{job['id']}/complete", {"report": report}, expect=204)
    assert scenario.consumer.get(f"/jobs/{job['id']}/report") == report


def test_an_instance_id_belongs_to_one_living_service_of_an_agent(scenario: Scenario) -> None:
    kind = scenario.service_type(None, SIMPLE)
    first, second = scenario.order(kind), scenario.order(kind)
    scenario.complete(first, agentInstanceId="i-1")
    job = scenario.next_job(second)
    refused = scenario.agent.post(f"/jobs/{job['id']}/complete", {"agentInstanceId": "i-1"}, expect=409)
    assert refused["code"] == "duplicate"
    assert scenario.agent.get(f"/jobs/{job['id']}")["status"] == "Processing"
    scenario.consumer.delete(f"/services/{first['id']}")
    scenario.agent.post(f"/jobs/{job['id']}/complete", {"agentInstanceId": "i-2"}, expect=204)
    scenario.complete(first)
    third = scenario.order(kind)
    scenario.complete(third, agentInstanceId="i-1")


def test_a_job_is_accessible_to_its_own_agent_only(scenario: Scenario) -> None:
    service = scenario.order(scenario.service_type(None, SIMPLE))
    (job,) = scenario.jobs(service)
    other = scenario.token("agent", scenario.new_agent()["id"])
    for verb in ("claim", "complete", "fail", "release"):
        other.post(f"/jobs/{job['id']}/{verb}", expect=404)
        scenario.provider.post(f"/jobs/{job['id']}/{verb}", expect=403)
    assert other.get("/jobs")["items"] == []
    assert [each["id"] for each in scenario.provider.get(f"/jobs?serviceId={service['id']}")["items"]] == [job["id"]]
