"""What consumers see of a host: nothing that others wrote there. Providers and admins see everything."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
import urllib3

from bridge import wait_until
from control_plane import Client
from planning_agent import ANSWER, with_agent
from scenario import Scenario

FOREIGN = "foreign-root-only-content"
OUTPUT = "output-of-a-command"
DIFF = f"--- /etc/x (actual)\n+++ /etc/x (desired)\n@@ -1,2 +1,2 @@\n same\n-{FOREIGN}\n+new"
STATE = {"ensure": "present", "name": "/etc/x", "checksum": f"sha256-{FOREIGN}", "size": 4711, "mode": "0600"}
FAILED = {
    "type": "exec",
    "name": "register",
    "outcome": "failed",
    "errors": [f"exit code is 3, expected 0\n{OUTPUT}"],
    "warnings": [f"first\n{OUTPUT}"],
    "output": f"line\n{OUTPUT}",
    "state": {"exit_code": 3},
}


def file_event(**more: Any) -> dict[str, Any]:
    return {"type": "file", "name": "/etc/x", "outcome": "changed", "diff": DIFF, "state": STATE, **more}


def report(**more: Any) -> dict[str, Any]:
    return {"run_id": "r", "noop": False, "events": [file_event(**more), FAILED], "summary": {"total": 2}}


@pytest.fixture
def service(scenario: Scenario) -> Any:
    return scenario.order(scenario.service_type({"text": {"type": "string"}}))


def completed_job(scenario: Scenario, service: Any, document: object) -> str:
    job = scenario.next_job(service)
    scenario.agent.post(f"/jobs/{job['id']}/complete", {"report": document}, expect=204)
    return f"/jobs/{job['id']}/report"


def trusted(scenario: Scenario) -> Iterator[Client]:
    yield from (scenario.provider, scenario.admin, scenario.agent)


def test_a_consumer_sees_the_old_content_of_files_only_if_the_service_wrote_it(
    scenario: Scenario, service: Any
) -> None:
    path = completed_job(scenario, service, report(own=True))
    seen = scenario.consumer.get(path)["events"][0]
    assert seen == file_event(own=True)


@pytest.mark.parametrize("more", [{}, {"own": False}, {"own": None}, {"own": "true"}])
def test_a_consumer_does_not_see_what_others_wrote(scenario: Scenario, service: Any, more: dict[str, Any]) -> None:
    document = report(**more)
    path = completed_job(scenario, service, document)
    seen = scenario.consumer.get(path)
    text = json.dumps(seen)
    assert FOREIGN not in text
    assert "4711" not in text
    event = seen["events"][0]
    assert "+new" in event["diff"]
    assert "-[redacted]" in event["diff"]
    assert event["state"] == {"ensure": "present", "name": "/etc/x", "mode": "0600"}
    for client in trusted(scenario):
        assert client.get(path) == document


def test_a_consumer_sees_the_exit_code_and_the_first_line_of_a_failed_command(
    scenario: Scenario, service: Any
) -> None:
    path = completed_job(scenario, service, report())
    event = scenario.consumer.get(path)["events"][1]
    assert event["errors"] == ["exit code is 3, expected 0"]
    assert event["warnings"] == ["first"]
    assert event["state"] == {"exit_code": 3}
    assert OUTPUT not in json.dumps(event)


@pytest.mark.parametrize(
    "document",
    [
        DIFF,
        [DIFF],
        {"files": [{"path": "/etc/x", "patch": DIFF, "size": 4711, "checksum": FOREIGN}], "stdout": OUTPUT},
        {"events": [{"deep": {"deeper": [{"text": DIFF, "output": OUTPUT}]}}]},
        {"events": {"a": {"diff": [DIFF]}}},
        {"text": f"heading\r\n-{FOREIGN}\r\n"},
        json.loads('{"a":' * 60 + f'{{"output": "{OUTPUT}"}}' + "}" * 60),
    ],
    ids=["text", "list", "other names", "deep", "lists of diffs", "carriage returns", "very deep"],
)
def test_reports_of_agents_of_other_makes_count_as_written_by_others(
    scenario: Scenario, service: Any, document: object
) -> None:
    path = completed_job(scenario, service, document)
    text = json.dumps(scenario.consumer.get(path))
    assert FOREIGN not in text
    assert OUTPUT not in text
    assert "4711" not in text
    assert scenario.provider.get(path) == document


def test_a_consumer_sees_the_first_line_of_the_error_message_of_a_job(scenario: Scenario, service: Any) -> None:
    scenario.fail(service, f"exec#register: exit code is 3\n  | {OUTPUT}\n1 failed")
    (job,) = scenario.jobs(service)
    assert job["errorMessage"] == "exec#register: exit code is 3"
    assert scenario.consumer.get(f"/jobs/{job['id']}")["errorMessage"] == "exec#register: exit code is 3"
    assert OUTPUT not in json.dumps(scenario.consumer.get("/events?pageSize=100"))
    for client in trusted(scenario):
        assert OUTPUT in client.get(f"/jobs/{job['id']}")["errorMessage"]
    assert OUTPUT in json.dumps(scenario.provider.get("/events?pageSize=100"))


def test_a_consumer_cannot_confirm_guesses_of_what_it_does_not_see(scenario: Scenario, service: Any) -> None:
    scenario.fail(service, f"exec#register: exit code is 3\n  | {OUTPUT}")
    consumer = scenario.consumer
    for query in ("errorMessage=x", "sort=errorMessage", "sort=-errorMessage", "sort=+errorMessage"):
        consumer.get(f"/jobs?{query}", expect=403)
        scenario.admin.get(f"/jobs?{query}")
    for query in (f"hash={'0' * 64}", "sort=hash", "after=&sort=-hash"):
        consumer.get(f"/events?{query}", expect=403)
        scenario.admin.get(f"/events?{query}")
    newest = "/events?sort=-sequenceNumber&pageSize=1"
    wait_until(lambda: scenario.admin.get(newest)["items"][0]["hash"] is not None, "events are hashed")
    assert not [event["hash"] for event in consumer.get("/events?pageSize=100")["items"] if event.get("hash")]


CONDITION = {"type": "InSync", "status": "False", "reason": "Drifted"}
WHOLE = f"file#/etc/x: Would have updated the file\n{DIFF}\n  | {OUTPUT}"


@pytest.mark.parametrize(
    ("more", "shown"),
    [
        ({"consumerMessage": "file#/etc/x: Would have updated the file"}, "file#/etc/x: Would have updated the file"),
        ({}, None),
    ],
    ids=["a message for consumers", "one message"],
)
def test_conditions_show_consumers_nothing_that_others_wrote(
    scenario: Scenario, service: Any, more: dict[str, Any], shown: str | None
) -> None:
    scenario.complete(service)
    condition = {**CONDITION, "message": WHOLE, **more}
    scenario.agent.call("PUT", f"/api/v1/services/{service['id']}/conditions", [condition], expect=200)
    scenario.do(service, "start")
    consumer, identity = scenario.consumer, service["id"]
    seen = [
        consumer.get(f"/services/{identity}"),
        consumer.get(f"/services?name={service['name']}"),
        consumer.get(f"/jobs?serviceId={identity}"),
        consumer.get("/events?pageSize=100"),
        consumer.patch(f"/services/{identity}", {"name": f"{service['name']}-renamed"}),
    ]
    for answer in seen:
        text = json.dumps(answer)
        assert "Drifted" in text
        assert FOREIGN not in text
        assert OUTPUT not in text
        assert "consumerMessage" not in text
    if shown is not None:
        assert seen[0]["conditions"][0]["message"] == shown
    else:
        assert "+new" in seen[0]["conditions"][0]["message"]
    for client in trusted(scenario):
        assert client.get(f"/services/{identity}")["conditions"][0]["message"] == WHOLE


def test_the_event_stream_shows_consumers_nothing_that_others_wrote(scenario: Scenario, service: Any) -> None:
    scenario.complete(service)
    condition = {**CONDITION, "message": WHOLE}
    scenario.agent.call("PUT", f"/api/v1/services/{service['id']}/conditions", [condition], expect=200)
    for client, sees in ((scenario.consumer, False), (scenario.provider, True)):
        headers = {"Authorization": f"Bearer {client.token}", "Last-Event-ID": "0"}
        address = f"{client.url}/api/v1/events/stream"
        stream = urllib3.PoolManager().request("GET", address, headers=headers, preload_content=False, timeout=20)
        text = ""
        while "Drifted" not in text:
            text += stream.read1(65536).decode()
        stream.close()
        assert (FOREIGN in text) == sees


def test_a_plan_shows_consumers_nothing_that_others_wrote(scenario: Scenario) -> None:
    kind = scenario.service_type({"text": {"type": "string"}})
    body = {
        "serviceTypeId": kind["id"],
        "name": "planned",
        "groupId": scenario.group_id,
        "agentId": scenario.agent_id,
    }
    answer = {**ANSWER, "events": [file_event(), FAILED, file_event(own=True)]}
    for client, sees in ((scenario.consumer, False), (scenario.admin, True)):
        reply, _ = with_agent(
            scenario.agent,
            lambda client=client: client.call("POST", "/api/v1/services?plan=true", body),  # type: ignore[misc]
            answer,
        )
        first, second, own = reply.body["host"]["events"]
        assert (FOREIGN in json.dumps(first)) == sees
        assert (OUTPUT in json.dumps(second)) == sees
        assert own == file_event(own=True)
    failed = {"error": f"the manifest does not load: x\n{OUTPUT}"}
    reply, _ = with_agent(
        scenario.agent, lambda: scenario.consumer.call("POST", "/api/v1/services?plan=true", body), failed
    )
    assert reply.status == 409
    assert "the manifest does not load: x" in json.dumps(reply.body)
    assert OUTPUT not in json.dumps(reply.body)


def test_a_participant_that_is_provider_and_consumer_sees_everything(scenario: Scenario) -> None:
    kind = scenario.service_type({"text": {"type": "string"}})
    group = scenario.admin.post("/service-groups", {"name": "own", "consumerId": scenario.provider_id})
    body = {
        "serviceTypeId": kind["id"],
        "name": "own",
        "groupId": group["id"],
        "agentId": scenario.agent_id,
    }
    service = scenario.provider.post("/services", body)
    document = report()
    path = completed_job(scenario, service, document)
    assert scenario.provider.get(path) == document
