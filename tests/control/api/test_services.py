"""Services through their lifecycles: orders, updates, actions, jobs, access and deletion."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any
from urllib.parse import quote

import pytest

import seed_text
from scenario import Scenario, unique

SIMPLE: Any = seed_text.block("Example 1: Simple VM Lifecycle")
ADVANCED: Any = seed_text.block("Example 2: Advanced Lifecycle with Error Handling")
DATABASE: Any = seed_text.block("Example 3: Database Lifecycle with Maintenance States")
BLOCK: Any = seed_text.block("VM Service Type with Mixed Authorizers")
VM: Any = {name: rule for name, rule in BLOCK.items() if name != "publicIp"}
DISK: Any = seed_text.block("Disk Service Type")
GOOD = {"instanceName": "vm-1", "region": "us-east-1", "cpu": 4, "memory": 8, "diskSize": 50, "imageId": "i"}

SYNC = ("True", "False", "Unknown")


def test_an_order_creates_a_service_and_a_job(scenario: Scenario) -> None:
    kind = scenario.service_type(VM, SIMPLE)
    service = scenario.order(kind, GOOD)
    assert service["status"] == "New"
    assert service["properties"] == GOOD
    assert (service["providerId"], service["consumerId"]) == (scenario.provider_id, scenario.consumer_id)
    assert service["agent"]["id"] == scenario.agent_id
    assert service["serviceType"] == {"id": kind["id"], "name": kind["name"]}
    assert service["availableActions"] == ["create"]
    assert "configuration" not in service["agent"]
    (job,) = scenario.jobs(service)
    assert (job["action"], job["status"], job["params"], job["step"]) == ("create", "Pending", GOOD, 1)
    assert job["id"] == service["activeJob"]["id"]
    assert job["provider"]["id"] == scenario.provider_id
    done = scenario.complete(
        service, properties={"instanceId": "x-1", "ipAddress": "10.0.0.9"}, agentInstanceId="x-1"
    )
    assert done["status"] == "Stopped"
    assert done["properties"] == {**GOOD, "instanceId": "x-1", "ipAddress": "10.0.0.9"}
    assert done["agentInstanceId"] == "x-1"
    assert done["activeJob"] is None
    assert done["availableActions"] == ["start", "update", "delete"]
    types = [event["type"] for event in scenario.admin.get(f"/events?entityId={service['id']}")["items"]]
    assert types == ["service.created", "service.transitioned"]


def test_all_invalid_properties_are_reported_and_no_service_is_created(scenario: Scenario) -> None:
    kind = scenario.service_type(VM, SIMPLE)
    body = {"serviceTypeId": kind["id"], "name": "x", "groupId": scenario.group_id, "agentId": scenario.agent_id}
    refused = scenario.consumer.post("/services", {**body, "properties": {"cpu": "four", "x": 1}}, expect=400)
    assert refused["status"] == "Validation failed"
    paths = [fault["path"] for fault in refused["errors"]]
    assert paths == ["x", "instanceName", "region", "cpu", "memory", "diskSize", "imageId"]
    assert scenario.consumer.get("/services")["totalItems"] == 0


def test_an_update_applies_when_its_run_completes(scenario: Scenario) -> None:
    service = scenario.order(scenario.service_type(VM, SIMPLE), GOOD)
    scenario.complete(service)
    asked = scenario.consumer.patch(f"/services/{service['id']}", {"properties": {"cpu": 8}})
    assert asked["properties"]["cpu"] == 4
    assert asked["activeJob"]["action"] == "update"
    assert scenario.jobs(service)[-1]["params"] == {**GOOD, "cpu": 8}
    done = scenario.complete(service)
    assert done["properties"]["cpu"] == 8
    same = scenario.consumer.patch(f"/services/{service['id']}", {"properties": {"cpu": 8}})
    assert same["activeJob"] is None
    scenario.consumer.patch(f"/services/{service['id']}", {"properties": {"cpu": 16}})
    assert scenario.fail(service, "out of memory")["properties"]["cpu"] == 8


def test_rules_about_states_and_actors_are_applied(scenario: Scenario) -> None:
    service = scenario.order(scenario.service_type(VM, SIMPLE), GOOD)
    scenario.complete(service)
    scenario.do(service, "start")
    scenario.complete(service)
    refused = scenario.consumer.patch(
        f"/services/{service['id']}", {"properties": {"cpu": 8, "region": "us-west-2", "hostname": "h"}}, expect=400
    )
    assert [fault["message"] for fault in refused["errors"]] == [
        "region: property is immutable and cannot be changed",
        "cpu: property cannot be updated in state 'Started'",
        "hostname: property can only be set by: [agent]",
    ]


def test_required_properties_of_the_agent_are_checked_when_create_completes(scenario: Scenario) -> None:
    schema = {
        "address": {
            "type": "string",
            "required": True,
            "authorizers": [{"type": "actor", "config": {"actors": ["agent"]}}],
        }
    }
    service = scenario.order(scenario.service_type(schema, SIMPLE))
    job = scenario.next_job(service)
    refused = scenario.agent.post(f"/jobs/{job['id']}/complete", {}, expect=400)
    assert refused["errors"] == [{"path": "address", "message": "required field is missing"}]
    assert scenario.agent.get(f"/jobs/{job['id']}")["status"] == "Processing"
    scenario.agent.post(f"/jobs/{job['id']}/complete", {"properties": {"address": "a"}}, expect=204)
    assert scenario.service(service["id"])["properties"] == {"address": "a"}


def test_an_action_may_consist_of_several_jobs(scenario: Scenario) -> None:
    service = scenario.order(scenario.service_type(None, ADVANCED))
    assert scenario.complete(service)["status"] == "Provisioning"
    assert scenario.complete(service)["status"] == "Stopped"
    scenario.do(service, "start")
    assert scenario.complete(service)["status"] == "Starting"
    assert scenario.complete(service)["status"] == "Started"
    scenario.do(service, "restart")
    states = [scenario.complete(service)["status"] for _ in range(3)]
    assert states == ["Stopping", "Starting", "Started"]
    assert scenario.service(service["id"])["activeJob"] is None
    jobs = scenario.jobs(service)
    assert [job["step"] for job in jobs] == [1, 2, 1, 2, 1, 2, 3]
    assert len({job["runId"] for job in jobs}) == 3


def test_an_action_may_have_a_slash_in_its_name(scenario: Scenario) -> None:
    names = ("a/b", "/", "a%2Fb", "a%2fb/c", "50%", "what?x=1&y", "größer/写")
    actions = [{"name": name, "transitions": [{"from": "Stopped", "to": "Stopped"}]} for name in names]
    create = [each for each in SIMPLE["actions"] if each["name"] == "create"]
    kind = scenario.service_type(None, {**SIMPLE, "actions": [*create, *actions]})
    service = scenario.complete(scenario.order(kind))
    for name in names:
        path = f"/services/{service['id']}/{quote(name, safe='')}"
        assert scenario.consumer.post(path, expect=200)["activeJob"]["action"] == name
        scenario.complete(service)
    # Only as a part of a name.
    scenario.consumer.post(f"/services/{service['id']}/a/b", expect=404)
    assert scenario.consumer.post(f"/services/{service['id']}/a%2Fc", expect=400)["code"] == "unknown_action"
    scenario.consumer.post("/services/a%2Fb/start", expect=404)
    scenario.consumer.post(f"/services/{service['id']}/a%2Fb/c", expect=404)


def test_failures_follow_the_first_error_transition_that_matches(scenario: Scenario) -> None:
    service = scenario.order(scenario.service_type(None, ADVANCED))
    scenario.complete(service)
    assert scenario.fail(service, "quota was exceeded")["status"] == "Failed"
    scenario.consumer.delete(f"/services/{service['id']}")
    done = scenario.complete(service)
    assert done["status"] == "Deleted"
    assert done["availableActions"] == []


def test_a_failure_without_a_transition_keeps_the_state(scenario: Scenario) -> None:
    service = scenario.order(scenario.service_type(None, SIMPLE))
    failed = scenario.fail(service, "boom")
    assert failed["status"] == "New"
    (job,) = scenario.jobs(service)
    assert (job["status"], job["errorMessage"]) == ("Failed", "boom")
    scenario.do(service, "create", {"properties": {"a": 1}})
    assert scenario.complete(service)["properties"] == {"a": 1}


def test_a_lifecycle_may_return_to_an_earlier_state(scenario: Scenario) -> None:
    service = scenario.order(scenario.service_type(None, DATABASE))
    scenario.complete(service)
    scenario.do(service, "start")
    scenario.complete(service)
    scenario.do(service, "backup")
    assert scenario.complete(service)["status"] == "Backup"
    assert scenario.complete(service)["status"] == "Started"


def test_requests_are_checked_in_the_order_of_the_contract(scenario: Scenario) -> None:
    kind = scenario.service_type(VM, SIMPLE)
    service = scenario.order(kind, GOOD)
    path = f"/services/{service['id']}"
    assert scenario.do(service, "fly", expect=400)["code"] == "unknown_action"
    active = scenario.consumer.patch(path, {"properties": {"instanceName": "other"}}, expect=409)
    assert active["code"] == "wrong_state"
    scenario.complete(service)
    assert scenario.do(service, "stop", expect=409)["code"] == "wrong_state"
    assert scenario.do(service, "start", {"properties": {"cpu": 1}}, expect=400)["code"] == "bad_input"
    scenario.do(service, "start", {"properties": {}})
    again = scenario.do(service, "start")
    assert again["activeJob"]["action"] == "start"
    assert len(scenario.jobs(service)) == 2
    refused = scenario.consumer.delete(path, expect=409)
    assert (refused["code"], refused["jobId"]) == ("active_job", again["activeJob"]["id"])
    scenario.complete(service)
    scenario.consumer.delete(path)
    scenario.consumer.delete(path)
    done = scenario.complete(service)
    assert done["status"] == "Deleted"
    refused = scenario.do(service, "start", expect=409)
    assert refused["error"] == "cannot perform action on service in terminal state: Deleted"
    assert scenario.consumer.patch(path, {"name": "x"}, expect=409)["code"] == "terminal_state"


def test_an_update_to_the_stored_values_is_refused_while_another_update_runs(scenario: Scenario) -> None:
    service = scenario.order(scenario.service_type(VM, SIMPLE), GOOD)
    scenario.complete(service)
    path = f"/services/{service['id']}"
    active = scenario.consumer.patch(path, {"properties": {"cpu": 8}})["activeJob"]
    refused = scenario.consumer.patch(path, {"properties": {"cpu": 4}}, expect=409)
    assert (refused["code"], refused["jobId"]) == ("active_job", active["id"])
    scenario.complete(service)
    scenario.do(service, "start")
    # A job that does not change properties is no obstacle.
    assert scenario.consumer.patch(path, {"properties": {"cpu": 8}})["properties"]["cpu"] == 8


def test_an_outdated_version_is_refused(scenario: Scenario) -> None:
    service = scenario.order(scenario.service_type(VM, SIMPLE), GOOD)
    scenario.complete(service)
    path = f"/api/v1/services/{service['id']}"
    seen = scenario.consumer.call("GET", path).headers["etag"]
    renamed = scenario.consumer.call("PATCH", path, {"name": "a"}, headers={"If-Match": seen}, expect=200)
    assert renamed.headers["etag"] != seen
    stale = scenario.consumer.call("PATCH", path, {"name": "b"}, headers={"If-Match": seen}, expect=412)
    assert stale.body["code"] == "precondition_failed"
    scenario.consumer.call("PATCH", path, {"properties": {"cpu": 3}}, headers={"If-Match": seen}, expect=400)
    scenario.consumer.call("POST", f"{path}/stop", headers={"If-Match": seen}, expect=412)
    assert scenario.service(service["id"])["name"] == "a"


def test_concurrent_changes_of_one_version_are_refused_but_one(scenario: Scenario) -> None:
    service = scenario.order(scenario.service_type(VM, SIMPLE), GOOD)
    scenario.complete(service)
    path = f"/api/v1/services/{service['id']}"
    seen = scenario.consumer.call("GET", path).headers["etag"]

    def rename(number: int) -> int:
        return scenario.consumer.call("PATCH", path, {"name": f"n{number}"}, headers={"If-Match": seen}).status

    with ThreadPoolExecutor(8) as threads:
        statuses = list(threads.map(rename, range(16)))
    assert sorted(statuses) == [200] + [412] * 15


def test_only_one_of_many_concurrent_updates_is_queued(scenario: Scenario) -> None:
    service = scenario.order(scenario.service_type(VM, SIMPLE), GOOD)
    scenario.complete(service)

    def order(number: int) -> int:
        body = {"properties": {"instanceName": f"vm-{number}"}}
        return scenario.consumer.call("PATCH", f"/api/v1/services/{service['id']}", body).status

    with ThreadPoolExecutor(8) as threads:
        statuses = list(threads.map(order, range(100, 116)))
    assert sorted(statuses) == [200] + [409] * 15
    assert len(scenario.jobs(service)) == 2


def test_a_service_is_visible_to_consumer_provider_and_agent_only(scenario: Scenario) -> None:
    service = scenario.order(scenario.service_type(None, SIMPLE))
    for client in (scenario.admin, scenario.provider, scenario.consumer, scenario.agent):
        assert client.get(f"/services/{service['id']}")["id"] == service["id"]
        assert service["id"] in [each["id"] for each in client.get(f"/services?id={service['id']}")["items"]]
    scenario.stranger.get(f"/services/{service['id']}", expect=404)
    assert scenario.stranger.get("/services?currentStatus=New")["items"] == []
    scenario.provider.patch(f"/services/{service['id']}", {"name": "x"}, expect=403)
    scenario.agent.patch(f"/services/{service['id']}", {"name": "x"}, expect=403)
    other = scenario.token("agent", scenario.new_agent()["id"])
    other.get(f"/services/{service['id']}", expect=404)


def test_an_admin_orders_for_a_consumer_into_its_default_group(scenario: Scenario) -> None:
    kind = scenario.service_type()
    body = {"serviceTypeId": kind["id"], "name": "a", "agentId": scenario.agent_id}
    assert "groupId or consumerId" in scenario.admin.post("/services", body, expect=400)["error"]
    made = scenario.admin.post("/services", {**body, "consumerId": scenario.consumer_id})
    assert made["consumerId"] == scenario.consumer_id
    assert scenario.consumer.get(f"/service-groups/{made['groupId']}")["name"] == "default"
    scenario.stranger.post("/services", {**body, "consumerId": scenario.consumer_id}, expect=403)
    wrong = {**body, "consumerId": scenario.provider_id, "groupId": made["groupId"]}
    scenario.admin.post("/services", wrong, expect=400)
    scenario.admin.post("/services", {**body, "consumerId": kind["id"]}, expect=400)


def test_an_order_without_a_group_uses_the_default_group(scenario: Scenario) -> None:
    kind = scenario.service_type(None, SIMPLE)

    def order(number: int) -> Any:
        body = {"serviceTypeId": kind["id"], "name": f"n{number}", "agentId": scenario.agent_id}
        return scenario.consumer.post("/services", body)["groupId"]

    _ = (scenario.consumer, scenario.agent_id)
    with ThreadPoolExecutor(4) as threads:
        groups = set(threads.map(order, range(4)))
    assert len(groups) == 1
    assert scenario.consumer.get(f"/service-groups/{groups.pop()}")["name"] == "default"
    scenario.admin.post(
        "/services", {"serviceTypeId": kind["id"], "name": "x", "agentId": scenario.agent_id}, expect=400
    )


def test_an_agent_is_chosen_by_its_tags(scenario: Scenario) -> None:
    kind = scenario.service_type(None, SIMPLE)
    mark = unique("tag")
    busy, idle = (scenario.new_agent(tags=[mark, "b"])["id"] for _ in range(2))
    body = {"serviceTypeId": kind["id"], "name": "x", "groupId": scenario.group_id}
    scenario.consumer.post("/services", {**body, "agentId": busy})
    assert scenario.consumer.post("/services", {**body, "agentTags": [mark]})["agentId"] == idle
    connected = scenario.new_agent(tags=[mark])["id"]
    scenario.token("agent", connected).get("/agents/me")
    assert scenario.consumer.post("/services", {**body, "agentTags": [mark]})["agentId"] == connected
    refused = scenario.consumer.post("/services", {**body, "agentTags": ["missing"]}, expect=400)
    assert refused["error"] == f"no agent found for service type {kind['name']} with tags [missing]"
    other = scenario.admin.post("/service-types", {"name": unique("unserved")})
    refused = scenario.consumer.post("/services", {**body, "serviceTypeId": other["id"], "agentId": busy}, expect=400)
    assert refused["error"].endswith(f"does not support service type {other['name']}")


def test_a_reference_of_another_participant_does_not_keep_a_service_alive(scenario: Scenario) -> None:
    """A provider may read the services of its consumers, and so refer to them."""
    plain = scenario.service_type(None, SIMPLE)
    kind = scenario.service_type({"disk": {"type": "reference"}}, SIMPLE)
    disk = scenario.order(plain)
    scenario.complete(disk)
    vm = {"serviceTypeId": kind["id"], "name": "vm", "agentId": scenario.agent_id, "properties": {"disk": disk["id"]}}
    scenario.provider.post("/services", vm)
    scenario.consumer.delete(f"/services/{disk['id']}")
    assert "deleted" in str(scenario.complete(disk)["status"]).lower()


def test_a_referenced_service_cannot_be_deleted(scenario: Scenario) -> None:
    plain = scenario.service_type(None, SIMPLE)
    rule = {"type": "reference", "validators": [{"type": "serviceType", "config": {"value": plain["name"]}}]}
    kind = scenario.service_type({"disk": rule}, SIMPLE)
    disk = scenario.order(plain)
    vm = scenario.order(kind, {"disk": disk["id"]})
    scenario.complete(disk)
    refused = scenario.consumer.delete(f"/services/{disk['id']}", expect=409)
    assert refused["dependants"] == {"services": [vm["id"]]}
    foreign = {
        "serviceTypeId": kind["id"],
        "name": "x",
        "properties": {"disk": disk["id"]},
        "agentId": scenario.agent_id,
    }
    refused = scenario.stranger.post("/services", foreign, expect=400)
    assert refused["errors"] == [{"path": "disk", "message": "referenced service does not exist"}]
    scenario.complete(vm)
    scenario.consumer.delete(f"/services/{vm['id']}")
    scenario.complete(vm)
    scenario.consumer.delete(f"/services/{disk['id']}")


def test_a_stopped_disk_can_be_resized(scenario: Scenario) -> None:
    service = scenario.order(scenario.service_type(DISK, SIMPLE), {"name": "d", "sizeGb": 20, "type": "ssd"})
    scenario.complete(service, properties={"diskId": "d-1", "actualSizeGb": 20, "devicePath": "/dev/x"})
    scenario.consumer.patch(f"/services/{service['id']}", {"properties": {"sizeGb": 40}})
    done = scenario.complete(service, properties={"actualSizeGb": 40})
    assert (done["properties"]["sizeGb"], done["properties"]["actualSizeGb"]) == (40, 40)


def test_provenance_names_the_actor_of_each_property(scenario: Scenario) -> None:
    service = scenario.order(scenario.service_type(VM, SIMPLE), GOOD)
    job = scenario.next_job(service)
    scenario.agent.post(f"/jobs/{job['id']}/complete", {"properties": {"hostname": "h"}}, expect=204)
    scenario.consumer.patch(f"/services/{service['id']}", {"properties": {"cpu": 8}})
    scenario.complete(service)
    found = scenario.consumer.get(f"/services/{service['id']}/provenance")["properties"]
    assert (found["cpu"]["actor"], found["cpu"]["how"]) == ("user", "given")
    assert (found["hostname"]["actor"], found["hostname"]["jobId"]) == ("agent", job["id"])
    assert found["cpu"]["at"] > found["memory"]["at"]


def test_uptime_counts_running_states(scenario: Scenario) -> None:
    service = scenario.order(scenario.service_type(None, SIMPLE))
    scenario.complete(service)
    scenario.do(service, "start")
    scenario.complete(service)
    found = scenario.consumer.get(f"/services/{service['id']}/uptime")
    assert 0 < found["share"] < 1
    assert found["runningSeconds"] < found["totalSeconds"]
    empty = scenario.consumer.get(
        f"/services/{service['id']}/uptime?end=2001-01-01T00:00:00Z&start=2000-01-01T00:00:00Z"
    )
    assert empty["totalSeconds"] == 0
    scenario.consumer.get(f"/services/{service['id']}/uptime?start=yesterday", expect=400)


def test_an_agent_reports_conditions(scenario: Scenario) -> None:
    service = scenario.order(scenario.service_type(None, SIMPLE))
    path = f"/services/{service['id']}/conditions"
    reported = scenario.agent.put(path, [{"type": "InSync", "status": "False", "reason": "Drifted", "message": "x"}])
    assert reported["conditions"][0]["reason"] == "Drifted"
    since = reported["conditions"][0]["since"]
    again = scenario.agent.put(path, [{"type": "InSync", "status": "False", "reason": "Other"}])
    assert again["conditions"][0]["since"] == since
    scenario.agent.put(path, [{"type": "InSync"}], expect=400)
    scenario.consumer.put(path, [], expect=403)


@pytest.mark.parametrize("status", ["Disconnected", "Disabled"])
def test_what_an_offline_agent_reported_is_shown_as_unknown(scenario: Scenario, status: str) -> None:
    service = scenario.order(scenario.service_type(None, SIMPLE))
    path = f"/services/{service['id']}"
    found = [{"type": "InSync", "status": "True", "reason": "Repaired"}, {"type": "Backup", "status": "False"}]
    stored = scenario.agent.put(f"{path}/conditions", found)
    scenario.provider.patch(f"/agents/{scenario.agent_id}", {"status": status})
    last_seen = scenario.provider.get(f"/agents/{scenario.agent_id}")["lastStatusUpdate"]
    for client in (scenario.admin, scenario.provider, scenario.consumer):
        shown = client.get(path)
        assert (shown["version"], shown["updatedAt"]) == (stored["version"], stored["updatedAt"])
        assert [
            [each[name] for name in ("type", "status", "reason", "lastStatus", "lastReason", "lastReportedAt")]
            for each in shown["conditions"]
        ] == [
            ["InSync", "Unknown", "AgentOffline", "True", "Repaired", last_seen],
            ["Backup", "Unknown", "AgentOffline", "False", "", last_seen],
        ]
        listed = {each: client.get(f"/services?inSync={each}&agentId={scenario.agent_id}")["items"] for each in SYNC}
        assert {each: len(items) for each, items in listed.items()} == {"True": 0, "False": 0, "Unknown": 1}
        assert listed["Unknown"][0]["conditions"] == shown["conditions"]
    scenario.admin.patch(f"/agents/{scenario.agent_id}", {"status": "Connected"})
    assert scenario.consumer.get(path)["conditions"] == stored["conditions"]
    # An agent may send back what it has read; members of the server are ignored.
    again = scenario.agent.put(f"{path}/conditions", shown["conditions"])
    assert "lastStatus" not in again["conditions"][0]


def test_an_agent_reads_its_conditions_as_it_reported_them(scenario: Scenario) -> None:
    service = scenario.order(scenario.service_type(None, SIMPLE))
    path = f"/services/{service['id']}"
    stored = scenario.agent.put(f"{path}/conditions", [{"type": "InSync", "status": "True", "reason": "InSync"}])
    # Its next request would connect it again.
    scenario.agent.put("/agents/me/status", {"status": "Disconnected"})
    assert scenario.consumer.get(path)["conditions"][0]["status"] == "Unknown"
    scenario.agent.put("/agents/me/status", {"status": "Disconnected"})
    assert scenario.agent.get(path)["conditions"] == stored["conditions"]


def test_a_provider_requests_a_repair_and_the_agent_ends_it(scenario: Scenario) -> None:
    service = scenario.order(scenario.service_type(None, SIMPLE))
    path = f"/services/{service['id']}"
    assert "no blueprints" in scenario.provider.put(f"{path}/repair", expect=400)["error"]
    scenario.agent.get("/plans/pending")
    scenario.consumer.put(f"{path}/repair", expect=403)
    scenario.stranger.put(f"{path}/repair", expect=404)
    requested = scenario.provider.put(f"{path}/repair")
    assert requested["version"] == service["version"]
    at = requested["repairRequestedAt"]
    assert scenario.jobs(service)[0]["id"] == service["activeJob"]["id"], "there is no job"
    (event,) = scenario.admin.get(f"/events?entityId={service['id']}&type=service.repair_requested")["items"]
    assert event["initiatorRole"] == "participant"
    # The long poll for plans returns once for it.
    polled = scenario.agent.call("GET", "/api/v1/plans/pending?wait=20")
    assert polled.headers["Mainstay-Wake"] == "repairs"
    assert "Mainstay-Wake" not in scenario.agent.call("GET", "/api/v1/plans/pending").headers
    assert scenario.agent.get(path)["repairRequestedAt"] == at
    again = scenario.admin.put(f"{path}/repair")["repairRequestedAt"]
    # The end of the first repair does not end the second request.
    scenario.agent.delete(f"{path}/repair?requestedAt={at}")
    assert scenario.provider.get(path)["repairRequestedAt"] == again
    scenario.provider.delete(f"{path}/repair", expect=403)
    scenario.agent.delete(f"{path}/repair?requestedAt={again}")
    assert scenario.provider.get(path)["repairRequestedAt"] is None


def test_services_are_filtered_by_whether_they_are_in_sync(scenario: Scenario) -> None:
    kind = scenario.service_type(None, SIMPLE)
    services = {status: scenario.order(kind)["id"] for status in (*SYNC, "not reported")}
    for status in SYNC:
        message = 'a message with "type":"InSync","status":"True" in it'
        condition = {"type": "InSync", "status": status, "reason": "x", "message": message}
        scenario.agent.put(f"/services/{services[status]}/conditions", [{"type": "A", "status": "True"}, condition])
    for status in SYNC:
        found = scenario.consumer.get(f"/services?inSync={status}")["items"]
        assert [each["id"] for each in found] == [services[status]]
    assert len(scenario.consumer.get("/services?inSync=")["items"]) == len(services)
    assert "True, False, Unknown" in scenario.consumer.get("/services?inSync=true", expect=400)["error"]


def test_a_change_of_a_type_is_refused_if_living_services_do_not_fit(scenario: Scenario) -> None:
    kind = scenario.service_type({"a": {"type": "integer"}}, SIMPLE)
    service = scenario.order(kind, {"a": 5})
    path = f"/service-types/{kind['id']}"
    stricter = {"propertySchema": {"a": {"type": "integer", "validators": [{"type": "max", "value": 3}]}}}
    refused = scenario.admin.patch(path, stricter, expect=409)
    assert [each["serviceId"] for each in refused["services"]] == [service["id"]]
    forecast = scenario.admin.patch(f"{path}?dryRun=true", stricter)
    assert forecast["misfits"] == refused["services"]
    scenario.admin.patch(f"{path}?force=true", stricter)
    gone = {
        "lifecycleSchema": {
            **SIMPLE,
            "states": [{"name": "Other"}],
            "actions": [],
            "initialState": "Other",
            "terminalStates": [],
            "runningStates": [],
        }
    }
    refused = scenario.admin.patch(f"{path}?force=true", gone, expect=400)
    renamed = {
        "states": [{"name": "Fresh"}, {"name": "Gone"}],
        "actions": [
            {"name": "create", "requestSchemaType": "properties", "transitions": [{"from": "Fresh", "to": "Gone"}]}
        ],
        "initialState": "Fresh",
        "terminalStates": ["Gone"],
    }
    assert (
        scenario.admin.patch(f"{path}?force=true", {"lifecycleSchema": renamed}, expect=409)["code"]
        == "services_do_not_fit"
    )


def test_terminal_services_are_deleted_with_their_owner(scenario: Scenario) -> None:
    service = scenario.order(scenario.service_type(None, SIMPLE))
    assert scenario.consumer.delete(f"/service-groups/{scenario.group_id}", expect=409)["dependants"] == {
        "services": [service["id"]]
    }
    assert scenario.admin.delete(f"/agents/{scenario.agent_id}", expect=409)["code"] == "in_use"
    scenario.complete(service)
    scenario.consumer.delete(f"/services/{service['id']}")
    scenario.complete(service)
    scenario.admin.delete(f"/participants/{scenario.consumer_id}")
    scenario.admin.get(f"/services/{service['id']}", expect=404)
    scenario.admin.delete(f"/agents/{scenario.agent_id}")
    assert scenario.admin.get(f"/events?entityId={service['id']}")["items"]


def test_a_list_of_living_services_excludes_terminal_ones(scenario: Scenario) -> None:
    kind = scenario.service_type(None, SIMPLE)
    ended, living = scenario.order(kind), scenario.order(kind)
    scenario.admin.delete(f"/services/{ended['id']}?force=true")
    for query in ("living=true", "living=true&after="):
        assert [each["id"] for each in scenario.agent.get(f"/services?{query}")["items"]] == [living["id"]]
    assert len(scenario.agent.get("/services?living=false")["items"]) == 2
