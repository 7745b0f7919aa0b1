"""Services through their lifecycles, as a consumer and an agent see them."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import seed_text
from scenario import Scenario, unique

SIMPLE: Any = seed_text.block("Example 1: Simple VM Lifecycle")
ADVANCED: Any = seed_text.block("Example 2: Advanced Lifecycle with Error Handling")
DATABASE: Any = seed_text.block("Example 3: Database Lifecycle with Maintenance States")
BLOCK: Any = seed_text.block("VM Service Type with Mixed Authorizers")
VM: Any = {name: rule for name, rule in BLOCK.items() if name != "publicIp"}
DISK: Any = seed_text.block("Disk Service Type")
GOOD = {"instanceName": "vm-1", "region": "us-east-1", "cpu": 4, "memory": 8, "diskSize": 50, "imageId": "i"}


def test_an_order_becomes_a_service_and_a_job(world: Scenario) -> None:
    kind = world.service_type(VM, SIMPLE)
    service = world.order(kind, GOOD)
    assert service["status"] == "New"
    assert service["properties"] == GOOD
    assert (service["providerId"], service["consumerId"]) == (world.provider_id, world.consumer_id)
    assert service["agent"]["id"] == world.agent_id
    assert service["serviceType"] == {"id": kind["id"], "name": kind["name"]}
    assert service["availableActions"] == ["create"]
    assert "configuration" not in service["agent"]
    (job,) = world.jobs(service)
    assert (job["action"], job["status"], job["params"], job["step"]) == ("create", "Pending", GOOD, 1)
    assert job["id"] == service["activeJob"]["id"]
    assert job["provider"]["id"] == world.provider_id
    done = world.complete(service, properties={"instanceId": "x-1", "ipAddress": "10.0.0.9"}, agentInstanceId="x-1")
    assert done["status"] == "Stopped"
    assert done["properties"] == {**GOOD, "instanceId": "x-1", "ipAddress": "10.0.0.9"}
    assert done["agentInstanceId"] == "x-1"
    assert done["activeJob"] is None
    assert done["availableActions"] == ["start", "update", "delete"]
    types = [event["type"] for event in world.admin.get(f"/events?entityId={service['id']}")["items"]]
    assert types == ["service.created", "service.transitioned"]


def test_bad_properties_are_refused_all_at_once_and_leave_nothing(world: Scenario) -> None:
    kind = world.service_type(VM, SIMPLE)
    body = {"serviceTypeId": kind["id"], "name": "x", "groupId": world.group_id, "agentId": world.agent_id}
    refused = world.consumer.post("/services", {**body, "properties": {"cpu": "four", "x": 1}}, expect=400)
    assert refused["status"] == "Validation failed"
    paths = [fault["path"] for fault in refused["errors"]]
    assert paths == ["x", "instanceName", "region", "cpu", "memory", "diskSize", "imageId"]
    assert world.consumer.get("/services")["totalItems"] == 0


def test_an_update_applies_when_its_run_completes(world: Scenario) -> None:
    service = world.order(world.service_type(VM, SIMPLE), GOOD)
    world.complete(service)
    asked = world.consumer.patch(f"/services/{service['id']}", {"properties": {"cpu": 8}})
    assert asked["properties"]["cpu"] == 4
    assert asked["activeJob"]["action"] == "update"
    assert world.jobs(service)[-1]["params"] == {**GOOD, "cpu": 8}
    done = world.complete(service)
    assert done["properties"]["cpu"] == 8
    same = world.consumer.patch(f"/services/{service['id']}", {"properties": {"cpu": 8}})
    assert same["activeJob"] is None
    world.consumer.patch(f"/services/{service['id']}", {"properties": {"cpu": 16}})
    assert world.fail(service, "no room")["properties"]["cpu"] == 8


def test_rules_about_states_and_actors_hold_over_http(world: Scenario) -> None:
    service = world.order(world.service_type(VM, SIMPLE), GOOD)
    world.complete(service)
    world.do(service, "start")
    world.complete(service)
    refused = world.consumer.patch(
        f"/services/{service['id']}", {"properties": {"cpu": 8, "region": "us-west-2", "hostname": "h"}}, expect=400
    )
    assert [fault["message"] for fault in refused["errors"]] == [
        "region: property is immutable and cannot be changed",
        "cpu: property cannot be updated in state 'Started'",
        "hostname: property can only be set by: [agent]",
    ]


def test_what_the_agent_owes_is_demanded_at_the_end_of_the_create_run(world: Scenario) -> None:
    schema = {
        "address": {
            "type": "string",
            "required": True,
            "authorizers": [{"type": "actor", "config": {"actors": ["agent"]}}],
        }
    }
    service = world.order(world.service_type(schema, SIMPLE))
    job = world.next_job(service)
    refused = world.agent.post(f"/jobs/{job['id']}/complete", {}, expect=400)
    assert refused["errors"] == [{"path": "address", "message": "required field is missing"}]
    assert world.agent.get(f"/jobs/{job['id']}")["status"] == "Processing"
    world.agent.post(f"/jobs/{job['id']}/complete", {"properties": {"address": "a"}}, expect=204)
    assert world.service(service["id"])["properties"] == {"address": "a"}


def test_one_request_may_be_several_jobs(world: Scenario) -> None:
    service = world.order(world.service_type(None, ADVANCED))
    assert world.complete(service)["status"] == "Provisioning"
    assert world.complete(service)["status"] == "Stopped"
    world.do(service, "start")
    assert world.complete(service)["status"] == "Starting"
    assert world.complete(service)["status"] == "Started"
    world.do(service, "restart")
    states = [world.complete(service)["status"] for _ in range(3)]
    assert states == ["Stopping", "Starting", "Started"]
    assert world.service(service["id"])["activeJob"] is None
    jobs = world.jobs(service)
    assert [job["step"] for job in jobs] == [1, 2, 1, 2, 1, 2, 3]
    assert len({job["runId"] for job in jobs}) == 3


def test_failures_follow_the_first_error_transition_that_matches(world: Scenario) -> None:
    service = world.order(world.service_type(None, ADVANCED))
    world.complete(service)
    assert world.fail(service, "quota was exceeded")["status"] == "Failed"
    world.consumer.delete(f"/services/{service['id']}")
    done = world.complete(service)
    assert done["status"] == "Deleted"
    assert done["availableActions"] == []


def test_a_failure_without_a_transition_keeps_the_state(world: Scenario) -> None:
    service = world.order(world.service_type(None, SIMPLE))
    failed = world.fail(service, "boom")
    assert failed["status"] == "New"
    (job,) = world.jobs(service)
    assert (job["status"], job["errorMessage"]) == ("Failed", "boom")
    world.do(service, "create", {"properties": {"a": 1}})
    assert world.complete(service)["properties"] == {"a": 1}


def test_the_database_lifecycle_goes_round(world: Scenario) -> None:
    service = world.order(world.service_type(None, DATABASE))
    world.complete(service)
    world.do(service, "start")
    world.complete(service)
    world.do(service, "backup")
    assert world.complete(service)["status"] == "Backup"
    assert world.complete(service)["status"] == "Started"


def test_checks_come_in_the_order_of_the_contract(world: Scenario) -> None:
    kind = world.service_type(VM, SIMPLE)
    service = world.order(kind, GOOD)
    path = f"/services/{service['id']}"
    assert world.do(service, "fly", expect=400)["code"] == "unknown_action"
    active = world.consumer.patch(path, {"properties": {"instanceName": "other"}}, expect=409)
    assert active["code"] == "wrong_state"
    world.complete(service)
    assert world.do(service, "stop", expect=409)["code"] == "wrong_state"
    assert world.do(service, "start", {"properties": {"cpu": 1}}, expect=400)["code"] == "bad_input"
    world.do(service, "start", {"properties": {}})
    again = world.do(service, "start")
    assert again["activeJob"]["action"] == "start"
    assert len(world.jobs(service)) == 2
    refused = world.consumer.delete(path, expect=409)
    assert (refused["code"], refused["jobId"]) == ("active_job", again["activeJob"]["id"])
    world.complete(service)
    world.consumer.delete(path)
    world.consumer.delete(path)
    done = world.complete(service)
    assert done["status"] == "Deleted"
    refused = world.do(service, "start", expect=409)
    assert refused["error"] == "cannot perform action on service in terminal state: Deleted"
    assert world.consumer.patch(path, {"name": "x"}, expect=409)["code"] == "terminal_state"


def test_an_update_back_to_what_is_stored_is_refused_while_another_update_runs(world: Scenario) -> None:
    service = world.order(world.service_type(VM, SIMPLE), GOOD)
    world.complete(service)
    path = f"/services/{service['id']}"
    active = world.consumer.patch(path, {"properties": {"cpu": 8}})["activeJob"]
    refused = world.consumer.patch(path, {"properties": {"cpu": 4}}, expect=409)
    assert (refused["code"], refused["jobId"]) == ("active_job", active["id"])
    world.complete(service)
    world.do(service, "start")
    # A job that leaves the properties alone stands in nobody's way.
    assert world.consumer.patch(path, {"properties": {"cpu": 8}})["properties"]["cpu"] == 8


def test_a_version_that_is_no_longer_there_is_refused(world: Scenario) -> None:
    service = world.order(world.service_type(VM, SIMPLE), GOOD)
    world.complete(service)
    path = f"/api/v1/services/{service['id']}"
    seen = world.consumer.call("GET", path).headers["etag"]
    renamed = world.consumer.call("PATCH", path, {"name": "a"}, headers={"If-Match": seen}, expect=200)
    assert renamed.headers["etag"] != seen
    stale = world.consumer.call("PATCH", path, {"name": "b"}, headers={"If-Match": seen}, expect=412)
    assert stale.body["code"] == "precondition_failed"
    world.consumer.call("PATCH", path, {"properties": {"cpu": 3}}, headers={"If-Match": seen}, expect=400)
    world.consumer.call("POST", f"{path}/stop", headers={"If-Match": seen}, expect=412)
    assert world.service(service["id"])["name"] == "a"


def test_patches_at_once_lose_nothing(world: Scenario) -> None:
    service = world.order(world.service_type(VM, SIMPLE), GOOD)
    world.complete(service)
    path = f"/api/v1/services/{service['id']}"
    seen = world.consumer.call("GET", path).headers["etag"]

    def rename(number: int) -> int:
        return world.consumer.call("PATCH", path, {"name": f"n{number}"}, headers={"If-Match": seen}).status

    with ThreadPoolExecutor(8) as threads:
        statuses = list(threads.map(rename, range(16)))
    assert sorted(statuses) == [200] + [412] * 15


def test_only_one_of_many_actions_at_once_is_queued(world: Scenario) -> None:
    service = world.order(world.service_type(VM, SIMPLE), GOOD)
    world.complete(service)

    def order(number: int) -> int:
        body = {"properties": {"instanceName": f"vm-{number}"}}
        return world.consumer.call("PATCH", f"/api/v1/services/{service['id']}", body).status

    with ThreadPoolExecutor(8) as threads:
        statuses = list(threads.map(order, range(100, 116)))
    assert sorted(statuses) == [200] + [409] * 15
    assert len(world.jobs(service)) == 2


def test_services_are_seen_by_their_three_parties_only(world: Scenario) -> None:
    service = world.order(world.service_type(None, SIMPLE))
    for client in (world.admin, world.provider, world.consumer, world.agent):
        assert client.get(f"/services/{service['id']}")["id"] == service["id"]
        assert service["id"] in [each["id"] for each in client.get(f"/services?id={service['id']}")["items"]]
    world.stranger.get(f"/services/{service['id']}", expect=404)
    assert world.stranger.get("/services?currentStatus=New")["items"] == []
    world.provider.patch(f"/services/{service['id']}", {"name": "x"}, expect=404)
    world.agent.patch(f"/services/{service['id']}", {"name": "x"}, expect=403)
    other = world.token("agent", world.new_agent()["id"])
    other.get(f"/services/{service['id']}", expect=404)


def test_an_admin_orders_for_a_consumer_into_its_default_group(world: Scenario) -> None:
    kind = world.service_type()
    body = {"serviceTypeId": kind["id"], "name": "a", "agentId": world.agent_id}
    assert "groupId or consumerId" in world.admin.post("/services", body, expect=400)["error"]
    made = world.admin.post("/services", {**body, "consumerId": world.consumer_id})
    assert made["consumerId"] == world.consumer_id
    assert world.consumer.get(f"/service-groups/{made['groupId']}")["name"] == "default"
    world.stranger.post("/services", {**body, "consumerId": world.consumer_id}, expect=403)
    wrong = {**body, "consumerId": world.provider_id, "groupId": made["groupId"]}
    world.admin.post("/services", wrong, expect=400)
    world.admin.post("/services", {**body, "consumerId": kind["id"]}, expect=400)


def test_an_order_without_a_group_lands_in_the_default_group(world: Scenario) -> None:
    kind = world.service_type(None, SIMPLE)

    def order(number: int) -> Any:
        body = {"serviceTypeId": kind["id"], "name": f"n{number}", "agentId": world.agent_id}
        return world.consumer.post("/services", body)["groupId"]

    _ = (world.consumer, world.agent_id)
    with ThreadPoolExecutor(4) as threads:
        groups = set(threads.map(order, range(4)))
    assert len(groups) == 1
    assert world.consumer.get(f"/service-groups/{groups.pop()}")["name"] == "default"
    world.admin.post("/services", {"serviceTypeId": kind["id"], "name": "x", "agentId": world.agent_id}, expect=400)


def test_an_agent_is_found_by_its_tags(world: Scenario) -> None:
    kind = world.service_type(None, SIMPLE)
    mark = unique("tag")
    busy, idle = (world.new_agent(tags=[mark, "b"])["id"] for _ in range(2))
    body = {"serviceTypeId": kind["id"], "name": "x", "groupId": world.group_id}
    world.consumer.post("/services", {**body, "agentId": busy})
    assert world.consumer.post("/services", {**body, "agentTags": [mark]})["agentId"] == idle
    connected = world.new_agent(tags=[mark])["id"]
    world.token("agent", connected).get("/agents/me")
    assert world.consumer.post("/services", {**body, "agentTags": [mark]})["agentId"] == connected
    refused = world.consumer.post("/services", {**body, "agentTags": ["nobody"]}, expect=400)
    assert refused["error"] == f"no agent found for service type {kind['name']} with tags [nobody]"
    other = world.admin.post("/service-types", {"name": unique("unserved")})
    refused = world.consumer.post("/services", {**body, "serviceTypeId": other["id"], "agentId": busy}, expect=400)
    assert refused["error"].endswith(f"does not support service type {other['name']}")


def test_references_hold_what_they_refer_to(world: Scenario) -> None:
    plain = world.service_type(None, SIMPLE)
    rule = {"type": "reference", "validators": [{"type": "serviceType", "config": {"value": plain["name"]}}]}
    kind = world.service_type({"disk": rule}, SIMPLE)
    disk = world.order(plain)
    vm = world.order(kind, {"disk": disk["id"]})
    world.complete(disk)
    refused = world.consumer.delete(f"/services/{disk['id']}", expect=409)
    assert refused["dependants"] == {"services": [vm["id"]]}
    foreign = {
        "serviceTypeId": kind["id"],
        "name": "x",
        "properties": {"disk": disk["id"]},
        "agentId": world.agent_id,
    }
    refused = world.stranger.post("/services", foreign, expect=400)
    assert refused["errors"] == [{"path": "disk", "message": "referenced service does not exist"}]
    world.complete(vm)
    world.consumer.delete(f"/services/{vm['id']}")
    world.complete(vm)
    world.consumer.delete(f"/services/{disk['id']}")


def test_the_disk_grows_when_stopped(world: Scenario) -> None:
    service = world.order(world.service_type(DISK, SIMPLE), {"name": "d", "sizeGb": 20, "type": "ssd"})
    world.complete(service, properties={"diskId": "d-1", "actualSizeGb": 20, "devicePath": "/dev/x"})
    world.consumer.patch(f"/services/{service['id']}", {"properties": {"sizeGb": 40}})
    done = world.complete(service, properties={"actualSizeGb": 40})
    assert (done["properties"]["sizeGb"], done["properties"]["actualSizeGb"]) == (40, 40)


def test_provenance_tells_who_set_what(world: Scenario) -> None:
    service = world.order(world.service_type(VM, SIMPLE), GOOD)
    job = world.next_job(service)
    world.agent.post(f"/jobs/{job['id']}/complete", {"properties": {"hostname": "h"}}, expect=204)
    world.consumer.patch(f"/services/{service['id']}", {"properties": {"cpu": 8}})
    world.complete(service)
    found = world.consumer.get(f"/services/{service['id']}/provenance")["properties"]
    assert (found["cpu"]["actor"], found["cpu"]["how"]) == ("user", "given")
    assert (found["hostname"]["actor"], found["hostname"]["jobId"]) == ("agent", job["id"])
    assert found["cpu"]["at"] > found["memory"]["at"]


def test_uptime_counts_running_states(world: Scenario) -> None:
    service = world.order(world.service_type(None, SIMPLE))
    world.complete(service)
    world.do(service, "start")
    world.complete(service)
    found = world.consumer.get(f"/services/{service['id']}/uptime")
    assert 0 < found["share"] < 1
    assert found["runningSeconds"] < found["totalSeconds"]
    empty = world.consumer.get(
        f"/services/{service['id']}/uptime?end=2001-01-01T00:00:00Z&start=2000-01-01T00:00:00Z"
    )
    assert empty["totalSeconds"] == 0
    world.consumer.get(f"/services/{service['id']}/uptime?start=yesterday", expect=400)


def test_an_agent_tells_conditions(world: Scenario) -> None:
    service = world.order(world.service_type(None, SIMPLE))
    path = f"/services/{service['id']}/conditions"
    told = world.agent.put(path, [{"type": "InSync", "status": "False", "reason": "Drifted", "message": "x"}])
    assert told["conditions"][0]["reason"] == "Drifted"
    since = told["conditions"][0]["since"]
    again = world.agent.put(path, [{"type": "InSync", "status": "False", "reason": "Other"}])
    assert again["conditions"][0]["since"] == since
    world.agent.put(path, [{"type": "InSync"}], expect=400)
    world.consumer.put(path, [], expect=403)


def test_a_type_cannot_be_changed_under_living_services(world: Scenario) -> None:
    kind = world.service_type({"a": {"type": "integer"}}, SIMPLE)
    service = world.order(kind, {"a": 5})
    path = f"/service-types/{kind['id']}"
    stricter = {"propertySchema": {"a": {"type": "integer", "validators": [{"type": "max", "value": 3}]}}}
    refused = world.admin.patch(path, stricter, expect=409)
    assert [each["serviceId"] for each in refused["services"]] == [service["id"]]
    forecast = world.admin.patch(f"{path}?dryRun=true", stricter)
    assert forecast["misfits"] == refused["services"]
    world.admin.patch(f"{path}?force=true", stricter)
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
    refused = world.admin.patch(f"{path}?force=true", gone, expect=400)
    renamed = {
        "states": [{"name": "Fresh"}, {"name": "Gone"}],
        "actions": [
            {"name": "create", "requestSchemaType": "properties", "transitions": [{"from": "Fresh", "to": "Gone"}]}
        ],
        "initialState": "Fresh",
        "terminalStates": ["Gone"],
    }
    assert (
        world.admin.patch(f"{path}?force=true", {"lifecycleSchema": renamed}, expect=409)["code"]
        == "services_do_not_fit"
    )


def test_terminal_services_go_with_what_they_belonged_to(world: Scenario) -> None:
    service = world.order(world.service_type(None, SIMPLE))
    assert world.consumer.delete(f"/service-groups/{world.group_id}", expect=409)["dependants"] == {
        "services": [service["id"]]
    }
    assert world.admin.delete(f"/agents/{world.agent_id}", expect=409)["code"] == "in_use"
    world.complete(service)
    world.consumer.delete(f"/services/{service['id']}")
    world.complete(service)
    world.admin.delete(f"/participants/{world.consumer_id}")
    world.admin.get(f"/services/{service['id']}", expect=404)
    world.admin.delete(f"/agents/{world.agent_id}")
    assert world.admin.get(f"/events?entityId={service['id']}")["items"]


def test_a_list_of_living_services_leaves_out_those_at_their_end(world: Scenario) -> None:
    kind = world.service_type(None, SIMPLE)
    ended, living = world.order(kind), world.order(kind)
    world.admin.delete(f"/services/{ended['id']}?force=true")
    for query in ("living=true", "living=true&after="):
        assert [each["id"] for each in world.agent.get(f"/services?{query}")["items"]] == [living["id"]]
    assert len(world.agent.get("/services?living=false")["items"]) == 2
