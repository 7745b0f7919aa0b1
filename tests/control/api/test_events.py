"""Events: leases, acknowledgements and streams. Also metrics, catalogue, idempotency, dry runs and forced deletion."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import urllib3

import seed_text
from control_plane import Client
from scenario import Scenario, unique

SIMPLE: Any = seed_text.block("Example 1: Simple VM Lifecycle")


def test_a_subscriber_gets_every_event_once_and_in_order(scenario: Scenario) -> None:
    subscriber = unique("subscriber")
    body = {"subscriberId": subscriber, "instanceId": "one", "limit": 1000, "leaseDurationSeconds": 5}
    last, seen = 0, []
    made = scenario.admin.post("/participants", {"name": "x"})["id"]
    while True:
        lease = scenario.admin.post("/events/lease", body, expect=200)
        assert lease["lastEventSequenceProcessed"] == last
        if not lease["events"]:
            break
        numbers = [event["sequenceNumber"] for event in lease["events"]]
        assert numbers == list(range(last + 1, last + 1 + len(numbers)))
        seen += [event["entityId"] for event in lease["events"]]
        last = numbers[-1]
        ack = {"subscriberId": subscriber, "instanceId": "one", "lastEventSequenceProcessed": last}
        assert scenario.admin.post("/events/ack", ack, expect=200) == {"lastEventSequenceProcessed": last}
    assert made in seen
    assert scenario.admin.post("/events/ack", ack, expect=409)["code"] == "not_acknowledged"
    scenario.admin.post("/events/ack", {**ack, "lastEventSequenceProcessed": last + 10_000}, expect=409)
    refused = scenario.admin.post("/events/lease", {**body, "instanceId": "two"}, expect=409)
    assert refused["code"] == "leased_by_another"
    scenario.admin.post(
        "/events/ack", {**ack, "instanceId": "two", "lastEventSequenceProcessed": last + 1}, expect=409
    )
    scenario.consumer.post("/events/lease", body, expect=403)
    scenario.admin.post("/events/lease", {"subscriberId": subscriber}, expect=400)


def test_exactly_one_instance_gets_the_lease(scenario: Scenario) -> None:
    subscriber = unique("subscriber")

    def lease(number: int) -> int:
        return scenario.admin.call(
            "POST", "/api/v1/events/lease", {"subscriberId": subscriber, "instanceId": f"i{number}"}
        ).status

    with ThreadPoolExecutor(8) as threads:
        assert sorted(threads.map(lease, range(8))) == [200] + [409] * 7


def open_stream(client: Client, last: int | None = None) -> Any:
    headers = {"Authorization": f"Bearer {client.token}"}
    if last is not None:
        headers["Last-Event-ID"] = str(last)
    return urllib3.PoolManager().request(
        "GET", f"{client.url}/api/v1/events/stream", headers=headers, preload_content=False, timeout=20
    )


def read_events(reply: Any, count: int) -> list[Any]:
    found: list[Any] = []
    text = b""
    while len(found) < count:
        text += reply.read1(65536)
        *parts, text = text.split(b"\n\n")
        for part in parts:
            fields = dict(line.split(": ", 1) for line in part.decode().splitlines() if not line.startswith(":"))
            if fields:
                event = json.loads(fields["data"])
                assert int(fields["id"]) == event["sequenceNumber"]
                found.append(event)
    return found


def test_a_stream_sends_events_and_resumes_after_the_last(scenario: Scenario) -> None:
    reply = open_stream(scenario.admin)
    assert reply.headers["content-type"].startswith("text/event-stream")
    assert reply.read1(100).startswith(b": connected")
    made = scenario.admin.post("/participants", {"name": "streamed"})["id"]
    (event,) = read_events(reply, 1)
    assert event["entityId"] == made
    reply.close()
    scenario.admin.patch(f"/participants/{made}", {"name": "again"})
    again = open_stream(scenario.admin, event["sequenceNumber"])
    assert read_events(again, 1)[0]["type"] == "participant.updated"
    again.close()


def test_a_stream_contains_only_events_of_the_caller(scenario: Scenario) -> None:
    reply = open_stream(scenario.consumer, 0)
    group = scenario.group_id
    scenario.admin.post("/participants", {"name": "foreign"})
    events = read_events(reply, 3)
    reply.close()
    for event in events:
        assert scenario.consumer_id in (event["participantId"], event["consumerId"], event["providerId"])
    assert group in [event["entityId"] for event in events]
    scenario.agent.get("/events/stream", expect=403)
    scenario.admin.get("/events/stream", expect=400, headers={"Last-Event-ID": "x"})


def test_agents_report_metrics_and_consumers_aggregate_them(scenario: Scenario) -> None:
    name = unique("cpu")
    metric = scenario.admin.post("/metric-types", {"name": name, "entityType": "Resource"})
    scenario.provider.post("/metric-types", {"name": unique("x"), "entityType": "Resource"}, expect=403)
    service = scenario.order(scenario.service_type(None, SIMPLE))
    scenario.complete(service, agentInstanceId=unique("i"))
    instance = scenario.service(service["id"])["agentInstanceId"]
    for value in (3, 1.5, 7):
        scenario.agent.post(
            "/metric-entries", {"serviceId": service["id"], "resourceId": "r1", "typeName": name, "value": value}
        )
    scenario.agent.post(
        "/metric-entries", {"agentInstanceId": instance, "resourceId": "r2", "typeName": name, "value": 1}
    )
    body = {"resourceId": "r", "typeName": name, "value": 1}
    scenario.agent.post("/metric-entries", body, expect=400)
    scenario.agent.post("/metric-entries", {**body, "agentInstanceId": "unknown"}, expect=400)
    scenario.agent.post("/metric-entries", {**body, "serviceId": scenario.group_id}, expect=403)
    scenario.agent.post("/metric-entries", {**body, "serviceId": service["id"], "typeName": "nothing"}, expect=400)
    scenario.consumer.post("/metric-entries", body, expect=403)
    query = f"serviceId={service['id']}"
    assert [each["value"] for each in scenario.consumer.get(f"/metric-entries?{query}&resourceId=r1")["items"]] == [
        3,
        1.5,
        7,
    ]
    assert scenario.stranger.get(f"/metric-entries?{query}")["items"] == []
    ids = scenario.consumer.get(f"/metric-entries/resource-ids?{query}")
    assert (ids["items"], ids["totalItems"], ids["hasNext"]) == (["r1", "r2"], 2, False)
    path = f"/metric-entries/aggregate/{service['id']}/r1/{metric['id']}"
    found = {
        kind: [value for _, value in scenario.consumer.get(f"{path}?aggregateType={kind}&bucket={bucket}")["data"]]
        for kind, bucket in (("min", "hour"), ("max", "day"), ("sum", "month"), ("avg", "day"), ("diff", "month"))
    }
    assert min(found["min"]) == 1.5
    assert found["max"] == [7]
    assert found["sum"] == [11.5]
    assert found["avg"] == [11.5 / 3]
    assert found["diff"] == [4]
    default = scenario.consumer.get(path)
    assert (default["aggregate"], default["bucket"]) == ("min", "hour")
    scenario.stranger.get(path, expect=404)
    for wrong in ("bucket=year", "aggregateType=p99", "start=x", "start=2020-01-01T00:00:00Z"):
        scenario.consumer.get(f"{path}?{wrong}", expect=400)
    assert scenario.admin.delete(f"/metric-types/{metric['id']}", expect=409)["code"] == "in_use"


def test_the_catalogue_lists_what_can_be_ordered(scenario: Scenario) -> None:
    kind = scenario.service_type(None, SIMPLE)
    option_type = unique("os").replace("-", "_")
    scenario.admin.post("/service-option-types", {"name": "OS", "type": option_type})
    option = {"providerId": scenario.provider_id, "serviceOptionType": option_type, "name": "U", "value": 1}
    scenario.provider.post("/service-options", option)
    scenario.provider.post("/service-options", {**option, "enabled": False, "value": 2})
    agent_id = scenario.agent_id
    (item,) = [
        each for each in scenario.stranger.get("/catalogue")["items"] if each["serviceType"]["id"] == kind["id"]
    ]
    (offer,) = item["offers"]
    assert offer["provider"]["id"] == scenario.provider_id
    assert [agent["id"] for agent in offer["agents"]] == [agent_id]
    assert offer["options"] == [{"optionType": option_type, "name": "U", "value": 1}]
    assert "configuration" not in offer["agents"][0]


def test_an_order_repeated_with_its_idempotency_key_is_placed_once(scenario: Scenario) -> None:
    kind = scenario.service_type(None, SIMPLE)
    body = {"serviceTypeId": kind["id"], "name": "x", "groupId": scenario.group_id, "agentId": scenario.agent_id}
    headers = {"Idempotency-Key": unique("key")}

    def order(_: int) -> Any:
        return scenario.consumer.call("POST", "/api/v1/services", body, headers=headers)

    _ = scenario.consumer
    with ThreadPoolExecutor(6) as threads:
        replies = list(threads.map(order, range(6)))
    assert {reply.status for reply in replies} == {201}
    assert len({reply.body["id"] for reply in replies}) == 1
    assert scenario.consumer.get("/services")["totalItems"] == 1
    refused = scenario.consumer.post("/services", {**body, "name": "y"}, expect=409, headers=headers)
    assert refused["code"] == "idempotency_mismatch"
    other = scenario.admin.post("/services", body, headers=headers)
    assert other["id"] != replies[0].body["id"]
    key = {"Idempotency-Key": unique("key")}
    scenario.consumer.post("/services", {**body, "properties": 5}, expect=400, headers=key)
    scenario.consumer.post("/services", body, headers=key)


def test_a_dry_run_of_an_order_changes_nothing(scenario: Scenario) -> None:
    made = scenario.provider.post("/service-pool-sets", {"name": "s", "providerId": scenario.provider_id})
    scenario.provider.patch(f"/agents/{scenario.agent_id}", {"servicePoolSetId": made["id"]})
    pool = scenario.provider.post(
        "/service-pools",
        {
            "name": "p",
            "type": "ip",
            "propertyType": "string",
            "generatorType": "subnet",
            "generatorConfig": {"cidr": "10.0.0.0/30"},
            "servicePoolSetId": made["id"],
        },
    )
    schema = {
        "ip": {"type": "string", "generator": {"type": "pool", "config": {"poolType": "ip"}}},
        "key": {"type": "string", "secret": {"type": "persistent"}},
        "n": {"type": "integer", "default": 1},
    }
    lifecycle = seed_text.block("Example 2: Advanced Lifecycle with Error Handling")
    kind = scenario.service_type(schema, lifecycle)
    body = {"serviceTypeId": kind["id"], "name": "x", "groupId": scenario.group_id, "agentId": scenario.agent_id}
    consumer = scenario.consumer
    events = scenario.admin.get("/events?pageSize=1")["totalItems"]
    forecast = consumer.post("/services?dryRun=true", {**body, "properties": {"key": "canary-dry"}}, expect=200)
    assert forecast == {
        "properties": {"ip": "10.0.0.0", "key": "vault://dry-run", "n": 1},
        "path": ["New", "Provisioning", "Stopped"],
        "poolValues": [{"path": "ip", "value": "10.0.0.0"}],
    }
    assert scenario.consumer.get("/services")["totalItems"] == 0
    assert scenario.provider.get(f"/service-pools/{pool['id']}/usage")["allocated"] == 0
    assert scenario.admin.get("/events?pageSize=1")["totalItems"] == events
    scenario.consumer.post("/services?dryRun=true", {**body, "properties": {"n": "x"}}, expect=400)
    service = scenario.order(kind, {"key": "canary-dry"})
    scenario.complete(service)
    scenario.complete(service)
    forecast = scenario.consumer.post(f"/services/{service['id']}/start?dryRun=true", expect=200)
    assert forecast["path"] == ["Stopped", "Starting", "Started"]
    forecast = scenario.consumer.delete(f"/services/{service['id']}?dryRun=true", expect=200)
    assert forecast["path"] == ["Stopped", "Deleted"]
    assert scenario.service(service["id"])["activeJob"] is None


def test_a_stuck_service_can_be_deleted_without_its_agent(scenario: Scenario) -> None:
    made = scenario.provider.post("/service-pool-sets", {"name": "s", "providerId": scenario.provider_id})
    scenario.provider.patch(f"/agents/{scenario.agent_id}", {"servicePoolSetId": made["id"]})
    pool = scenario.provider.post(
        "/service-pools",
        {
            "name": "p",
            "type": "ip",
            "propertyType": "string",
            "generatorType": "subnet",
            "generatorConfig": {"cidr": "10.0.0.0/30"},
            "servicePoolSetId": made["id"],
        },
    )
    schema = {
        "ip": {"type": "string", "generator": {"type": "pool", "config": {"poolType": "ip"}}},
        "key": {"type": "string", "secret": {"type": "persistent"}},
    }
    kind = scenario.service_type(schema, SIMPLE)
    service = scenario.order(kind, {"key": "canary-f"})
    job = scenario.next_job_seen(service)
    scenario.consumer.delete(f"/services/{service['id']}?force=true")
    ended = scenario.service(service["id"])
    assert (ended["status"], ended["activeJob"]) == ("Deleted", None)
    assert "key" not in ended["properties"]
    assert scenario.agent.get(f"/jobs/{job['id']}")["status"] == "Cancelled"
    scenario.agent.post(f"/jobs/{job['id']}/complete", expect=409)
    assert scenario.provider.get(f"/service-pools/{pool['id']}/usage")["allocated"] == 0
    events = scenario.admin.get(f"/events?entityId={service['id']}&type=transitioned")["items"]
    assert events[-1]["properties"]["forced"] is True
    worked = scenario.order(kind)
    scenario.complete(worked)
    scenario.consumer.delete(f"/services/{worked['id']}?force=true", expect=403)
    scenario.admin.delete(f"/services/{worked['id']}?force=true")
    assert scenario.admin.delete(f"/services/{worked['id']}?force=true", expect=409)["code"] == "terminal_state"
