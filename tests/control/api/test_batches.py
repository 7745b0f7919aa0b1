"""Batches: several changes in one transaction, all or none."""

from __future__ import annotations

import base64
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from blueprint_samples import blueprint, bundle
from control_plane import running
from scenario import Scenario, unique


def part(method: str, path: str, body: object = None, **more: Any) -> dict[str, Any]:
    return {"method": method, "path": path, **({} if body is None else {"body": body}), **more}


def send(client: Any, *requests: dict[str, Any], dry_run: bool = False, expect: int = 200) -> Any:
    return client.post(f"/batch{'?dryRun=true' if dry_run else ''}", {"requests": requests}, expect=expect)


def chain(provider_id: str) -> list[dict[str, Any]]:
    """A pool set, a pool in it and a value in that."""
    pool = {"name": unique("pool"), "type": "port", "propertyType": "integer", "generatorType": "list"}
    return [
        part("POST", "/service-pool-sets", {"name": unique("set"), "providerId": provider_id}, key="set"),
        part("POST", "/service-pools", pool, key="pool", references={"/servicePoolSetId": "set"}),
        part("POST", "/service-pool-values", {"name": "1", "value": 1}, references={"/servicePoolId": "pool"}),
    ]


def test_a_request_refers_to_what_an_earlier_one_creates(scenario: Scenario) -> None:
    results = send(scenario.provider, *chain(scenario.provider_id))["results"]
    pool = scenario.provider.get(f"/service-pools/{results[1]['id']}")
    assert pool["servicePoolSetId"] == results[0]["id"]
    (value,) = scenario.provider.get(f"/service-pool-values?servicePoolId={pool['id']}")["items"]
    assert value["value"] == 1


def test_a_dry_run_changes_nothing_and_reports_every_refusal(scenario: Scenario) -> None:
    bad = part("POST", "/service-pool-values", {"name": "2", "value": "text"}, references={"/servicePoolId": "pool"})
    other = part("POST", "/service-types", {"name": unique("type")})
    lost = part("POST", "/service-groups", {"name": "x"}, references={"/consumerId": "nothing"})
    assert scenario.provider.get("/service-pool-sets")["items"] == []
    before = scenario.admin.get("/events?sort=-sequenceNumber&pageSize=1")["items"][0]["sequenceNumber"]
    requests = [*chain(scenario.provider_id), bad, other, lost]
    results = send(scenario.provider, *requests, dry_run=True)["results"]
    assert [each["status"] for each in results] == [200, 200, 200, 400, 403, 400]
    assert results[5]["error"]["code"] == "missing_reference"
    assert scenario.provider.get("/service-pool-sets")["items"] == []
    assert scenario.admin.get("/events?sort=-sequenceNumber&pageSize=1")["items"][0]["sequenceNumber"] == before


def test_a_refusal_undoes_the_requests_before_it(scenario: Scenario) -> None:
    bad = part("DELETE", f"/participants/{scenario.provider_id}")
    refused = send(scenario.provider, *chain(scenario.provider_id), bad, expect=409)
    assert (refused["code"], refused["number"], refused["refusal"]["code"]) == ("batch_refused", 4, "forbidden")
    assert "nothing was changed" in refused["error"]
    assert scenario.provider.get("/service-pool-sets")["items"] == []


def test_a_duplicate_does_not_spoil_the_rest_of_a_dry_run(scenario: Scenario) -> None:
    name = unique("type")
    requests = [part("POST", "/service-types", {"name": each}) for each in (name, name, unique("type"))]
    results = send(scenario.admin, *requests, dry_run=True)["results"]
    assert [each["status"] for each in results] == [200, 409, 200]


def test_a_blueprint_is_pushed_and_ordered_in_one_batch(scenario: Scenario) -> None:
    content = base64.b64encode(bundle(blueprint(unique("web")))).decode()
    agent_type = f"/agent-types/{scenario.agent_type_id}"
    order = {
        "name": unique("shop"),
        "groupId": scenario.group_id,
        "agentId": scenario.agent_id,
        "properties": {"size": 1},
    }
    requests = [
        part("POST", "/blueprints", content=content, key="web"),
        part("PATCH", agent_type, {"serviceTypeIds": [""]}, references={"/serviceTypeIds/0": "web"}),
        part("POST", "/services", order, references={"/serviceTypeId": "web"}),
    ]
    assert [each["status"] for each in send(scenario.admin, *requests, dry_run=True)["results"]] == [200, 200, 200]
    results = send(scenario.admin, *requests)["results"]
    service = scenario.service(results[2]["id"])
    # Its agent hears of the job.
    assert scenario.complete(service)["status"] == "Stopped"


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("POST", "/tokens"),
        ("POST", "/batch"),
        ("POST", "/enrol"),
        ("POST", "/enrolment-codes"),
        ("POST", "/nothing"),
        ("DELETE", "/tokens/00000000-0000-0000-0000-000000000000"),
        ("POST", "/jobs/00000000-0000-0000-0000-000000000000/cancel"),
        ("POST", "/agents/00000000-0000-0000-0000-000000000000/enrolment-codes"),
        ("POST", "/services/00000000-0000-0000-0000-000000000000/start"),
    ],
)
def test_other_requests_are_not_part_of_a_batch(scenario: Scenario, method: str, path: str) -> None:
    (result,) = send(scenario.admin, part(method, path, {}), dry_run=True)["results"]
    assert (result["status"], result["error"]["code"]) == (400, "not_in_batch")


def test_agents_and_read_only_tokens_send_no_batch(scenario: Scenario) -> None:
    request = part("POST", "/service-groups", {"name": "g", "consumerId": scenario.consumer_id})
    send(scenario.agent, request, expect=403)
    body = {"name": "r", "role": "participant", "scopeId": scenario.consumer_id, "readOnly": True}
    reader = scenario.admin.as_token(scenario.admin.post("/tokens", body)["value"])
    send(reader, request, dry_run=True, expect=403)


def test_a_batch_costs_a_participant_as_much_as_its_requests(tmp_path: Path) -> None:
    with running(tmp_path / "data") as limited:
        scenario = Scenario(limited.admin)
        request = part("POST", "/service-groups", {"name": "g", "consumerId": scenario.consumer_id})
        send(scenario.consumer, *[request] * 501, expect=400)
        # Refused at once: requests that take long would pay for themselves.
        send(scenario.consumer, *[part("POST", "/nothing", {})] * 500, dry_run=True)
        assert scenario.consumer.call("GET", "/api/v1/service-groups").status == 429
        # Others are not affected.
        scenario.provider.get("/service-pool-sets")


def test_two_batches_at_once_do_not_mix(scenario: Scenario) -> None:
    names = [unique("type") for _ in range(5)]
    requests = [part("POST", "/service-types", {"name": name}) for name in names]
    statuses: list[int] = []

    def run() -> None:
        statuses.append(scenario.admin.call("POST", "/api/v1/batch", {"requests": requests}).status)

    threads = [threading.Thread(target=run) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert sorted(statuses) == [200, 409, 409, 409]


def test_a_long_dry_run_gives_the_writer_up_and_sees_what_it_has_written(scenario: Scenario) -> None:
    twice = unique("type")
    requests = [part("POST", "/service-types", {"name": twice})]
    requests += [part("POST", "/service-types", {"name": unique("type")}) for _ in range(300)]
    requests += [part("POST", "/service-types", {"name": twice})]
    group = {"name": "g", "consumerId": scenario.consumer_id}
    with ThreadPoolExecutor(1) as threads:
        dry_run = threads.submit(send, scenario.admin, *requests, dry_run=True)
        written = 0
        while not dry_run.done():
            scenario.consumer.post("/service-groups", group)
            written += 1
    # The last one may have waited for the end.
    assert written > 3
    statuses = [result["status"] for result in dry_run.result()["results"]]
    assert statuses == [200] * 301 + [409]
    assert scenario.admin.get("/service-types", query={"name": twice})["items"] == []
