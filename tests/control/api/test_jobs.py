"""The job queue: who gets a job, how it is kept, and how it ends exactly once."""

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


def pending(world: Scenario, query: str = "") -> list[Any]:
    found: list[Any] = world.agent.get(f"/jobs/pending{query}")
    return found


def test_an_old_agent_polls_claims_without_a_body_and_completes_with_nulls(world: Scenario) -> None:
    service = world.order(world.service_type(None, SIMPLE), {"a": 1})
    world.agent.put("/agents/me/status", {"status": "Connected"})
    (job,) = pending(world)
    assert job["service"]["id"] == service["id"]
    assert job["service"]["properties"] == {"a": 1}
    claimed = world.agent.call("POST", f"/api/v1/jobs/{job['id']}/claim", raw=b"")
    assert (claimed.status, claimed.body) == (204, b"")
    body = {"properties": None, "agentInstanceId": None, "agentInstanceData": None}
    world.agent.post(f"/jobs/{job['id']}/complete", body, expect=204)
    assert world.service(service["id"])["status"] == "Stopped"
    assert pending(world) == []


def test_one_job_of_each_group_and_none_of_a_busy_one(world: Scenario) -> None:
    kind = world.service_type(None, SIMPLE)
    first, second = world.order(kind), world.order(kind)
    other_group = world.consumer.post("/service-groups", {"name": "o", "consumerId": world.consumer_id})["id"]
    other = world.order(kind, groupId=other_group)
    assert [job["serviceId"] for job in pending(world)] == [first["id"], other["id"]]
    assert [job["serviceId"] for job in pending(world, "?limit=1")] == [first["id"]]
    job = world.next_job(first)
    assert [each["serviceId"] for each in pending(world)] == [other["id"]]
    world.agent.post(f"/jobs/{job['id']}/complete", expect=204)
    assert [each["serviceId"] for each in pending(world)] == [second["id"], other["id"]]
    world.agent.get("/jobs/pending?limit=0", expect=400)
    world.agent.get("/jobs/pending?wait=61", expect=400)
    world.consumer.get("/jobs/pending", expect=403)


def test_exactly_one_of_many_claimers_wins(world: Scenario) -> None:
    service = world.order(world.service_type(None, SIMPLE))
    (job,) = world.jobs(service)
    with ThreadPoolExecutor(16) as threads:
        replies = list(
            threads.map(
                lambda _: world.agent.call("POST", f"/api/v1/jobs/{job['id']}/claim", {"leaseSeconds": 60}), range(50)
            )
        )
    assert sorted(reply.status for reply in replies) == [200] + [409] * 49


def test_a_lease_is_renewed_and_lost(world: Scenario) -> None:
    service = world.order(world.service_type(None, SIMPLE))
    (job,) = pending(world)
    path = f"/jobs/{job['id']}"
    claim = {"leaseSeconds": 30, "claimId": "claim-0001"}
    lease = world.agent.post(f"{path}/claim", claim, expect=200)
    assert lease["job"]["status"] == "Processing"
    assert world.agent.post(f"{path}/claim", claim, expect=200)["leaseToken"] == lease["leaseToken"]
    world.agent.post(f"{path}/claim", {"leaseSeconds": 30, "claimId": "claim-0002"}, expect=409)
    progress = {"percent": 40, "text": "resource 2 of 5"}
    renewed = world.agent.post(f"{path}/renew", {"leaseToken": lease["leaseToken"], "progress": progress}, expect=200)
    assert renewed["cancelRequested"] is False
    assert renewed["leaseExpiresAt"] > lease["leaseExpiresAt"]
    assert world.agent.get(path)["progress"] == progress
    for verb in ("complete", "fail", "release"):
        assert world.agent.post(f"{path}/{verb}", {"errorMessage": "x"}, expect=409)["code"] == "lease_lost"
    world.agent.post(f"{path}/renew", {"leaseToken": "wrong"}, expect=409)
    version = world.service(service["id"])["version"]
    world.agent.post(f"{path}/release", {"leaseToken": lease["leaseToken"]}, expect=204)
    back = world.agent.get(path)
    assert (back["status"], back["attempt"]) == ("Pending", 1)
    assert world.service(service["id"])["version"] == version
    again = world.agent.post(f"{path}/claim", {"leaseSeconds": 30}, expect=200)
    body = {"leaseToken": again["leaseToken"]}
    world.agent.post(f"{path}/complete", body, expect=204)
    world.agent.post(f"{path}/complete", body, expect=204)
    assert (
        world.agent.post(f"{path}/complete", {**body, "agentInstanceId": "other"}, expect=409)["code"]
        == "not_processing"
    )
    assert len([each for each in world.jobs(service) if each["status"] == "Completed"]) == 1


def test_a_plain_claim_times_out_into_the_failure_path(world: Scenario) -> None:
    service = world.order(world.service_type(None, lifecycle(timeoutSeconds=1)))
    job = world.next_job(service)
    done = world.consumer.wait_for(f"/services/{service['id']}", {"status": "Late"})
    assert done["activeJob"] is None
    assert world.agent.get(f"/jobs/{job['id']}")["errorMessage"] == "job timed out"
    assert world.agent.post(f"/jobs/{job['id']}/complete", expect=409)["code"] == "not_processing"


def test_a_job_that_nobody_claims_times_out_where_the_action_says_so(world: Scenario) -> None:
    service = world.order(world.service_type(None, lifecycle(pendingTimeoutSeconds=1)))
    world.consumer.wait_for(f"/services/{service['id']}", {"status": "Late"})
    assert world.jobs(service)[0]["errorMessage"] == "job not claimed in time"


def test_a_job_never_claimed_may_be_failed_directly(world: Scenario) -> None:
    service = world.order(world.service_type(None, lifecycle()))
    (job,) = pending(world)
    world.agent.post(f"/jobs/{job['id']}/complete", expect=409)
    world.agent.post(f"/jobs/{job['id']}/fail", {"errorMessage": "cannot"}, expect=204)
    world.agent.post(f"/jobs/{job['id']}/fail", {"errorMessage": "cannot"}, expect=204)
    world.agent.post(f"/jobs/{job['id']}/fail", {"errorMessage": "other"}, expect=409)
    assert world.service(service["id"])["status"] == "Failed"


def test_cancelling_a_pending_job_ends_it_and_keeps_the_state(world: Scenario) -> None:
    service = world.order(world.service_type(None, lifecycle()))
    (job,) = world.jobs(service)
    world.stranger.post(f"/jobs/{job['id']}/cancel", expect=404)
    world.consumer.post(f"/jobs/{job['id']}/cancel", expect=204)
    assert world.jobs(service)[0]["status"] == "Cancelled"
    assert world.service(service["id"])["status"] == "New"
    assert world.consumer.post(f"/jobs/{job['id']}/cancel", expect=409)["code"] == "not_processing"


def test_cancelling_a_running_job_asks_its_agent(world: Scenario) -> None:
    service = world.order(world.service_type(None, lifecycle()))
    (job,) = pending(world)
    lease = world.agent.post(f"/jobs/{job['id']}/claim", {"leaseSeconds": 30}, expect=200)
    world.consumer.post(f"/jobs/{job['id']}/cancel", expect=204)
    token = {"leaseToken": lease["leaseToken"]}
    assert world.agent.post(f"/jobs/{job['id']}/renew", token, expect=200)["cancelRequested"] is True
    world.agent.post(f"/jobs/{job['id']}/fail", {**token, "errorMessage": "cancelled after 1 of 2"}, expect=204)
    ended = world.agent.get(f"/jobs/{job['id']}")
    assert (ended["status"], ended["errorMessage"]) == ("Cancelled", "cancelled after 1 of 2")
    assert world.service(service["id"])["status"] == "Failed"


def test_complete_against_cancel_has_exactly_one_outcome(world: Scenario) -> None:
    kind = world.service_type(None, lifecycle())
    for _ in range(5):
        service = world.order(kind)
        job = world.next_job(service)
        path = f"/api/v1/jobs/{job['id']}"
        with ThreadPoolExecutor(3) as threads:
            replies = list(
                threads.map(
                    lambda call: world.agent.call("POST", f"{path}/{call[0]}", call[1]).status,  # noqa: B023  # called before the loop goes on
                    [("complete", {}), ("fail", {"errorMessage": "x"}), ("cancel", None)],
                )
            )
        ended = world.agent.get(f"/jobs/{job['id']}")["status"]
        state = world.service(service["id"])["status"]
        assert (ended, state) in {("Completed", "Stopped"), ("Failed", "Failed"), ("Cancelled", "Failed")}
        assert replies[:2].count(204) == 1


def test_a_long_poll_answers_as_soon_as_there_is_a_job(world: Scenario) -> None:
    kind = world.service_type(None, SIMPLE)
    _ = (world.agent.get("/agents/me"), world.consumer, world.group_id)
    with ThreadPoolExecutor(1) as threads:
        waiting = threads.submit(lambda: (world.agent.get("/jobs/pending?wait=20"), time.monotonic()))
        time.sleep(0.5)
        assert not waiting.done()
        world.order(kind)
        committed = time.monotonic()
        found, answered = waiting.result(timeout=15)
    assert len(found) == 1
    assert answered - committed < 1.0


def test_a_long_poll_without_a_job_ends_in_time(world: Scenario) -> None:
    started = time.monotonic()
    assert pending(world, "?wait=1") == []
    assert 0.9 < time.monotonic() - started < 5


def test_the_report_is_kept_with_the_job(world: Scenario) -> None:
    service = world.order(world.service_type(None, SIMPLE))
    job = world.next_job(service)
    world.agent.get(f"/jobs/{job['id']}/report", expect=404)
    report = {"summary": {"changed": 2}, "events": [None, 1]}
    world.agent.post(f"/jobs/{job['id']}/complete", {"report": report}, expect=204)
    assert world.consumer.get(f"/jobs/{job['id']}/report") == report


def test_an_instance_id_belongs_to_one_living_service_of_an_agent(world: Scenario) -> None:
    kind = world.service_type(None, SIMPLE)
    first, second = world.order(kind), world.order(kind)
    world.complete(first, agentInstanceId="i-1")
    job = world.next_job(second)
    refused = world.agent.post(f"/jobs/{job['id']}/complete", {"agentInstanceId": "i-1"}, expect=409)
    assert refused["code"] == "duplicate"
    assert world.agent.get(f"/jobs/{job['id']}")["status"] == "Processing"
    world.consumer.delete(f"/services/{first['id']}")
    world.agent.post(f"/jobs/{job['id']}/complete", {"agentInstanceId": "i-2"}, expect=204)
    world.complete(first)
    third = world.order(kind)
    world.complete(third, agentInstanceId="i-1")


def test_jobs_belong_to_their_agent(world: Scenario) -> None:
    service = world.order(world.service_type(None, SIMPLE))
    (job,) = world.jobs(service)
    other = world.token("agent", world.new_agent()["id"])
    for verb in ("claim", "complete", "fail", "release"):
        other.post(f"/jobs/{job['id']}/{verb}", expect=404)
        world.provider.post(f"/jobs/{job['id']}/{verb}", expect=403)
    assert other.get("/jobs")["items"] == []
    assert [each["id"] for each in world.provider.get(f"/jobs?serviceId={service['id']}")["items"]] == [job["id"]]
