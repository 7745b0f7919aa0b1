"""Orphans: what a forced delete leaves on a host keeps its values until the agent confirms or an admin forgets."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any
from uuid import uuid4

import pytest

import seed_text
from scenario import Scenario, unique

SIMPLE: Any = seed_text.block("Example 1: Simple VM Lifecycle")
LIFECYCLE: Any = {
    **SIMPLE,
    "actions": [
        *[each for each in SIMPLE["actions"] if each["name"] != "update"],
        {
            "name": "update",
            "requestSchemaType": "properties",
            "transitions": [{"from": "Stopped", "to": "Stopped"}],
        },
    ],
}
SCHEMA: Any = {
    "port": {"type": "integer", "generator": {"type": "pool", "config": {"poolType": "port"}}},
    "key": {"type": "string", "secret": {"type": "persistent"}},
    "pin": {"type": "string", "secret": {"type": "ephemeral"}},
}


class Host:
    """A provider with one agent and a pool of ports."""

    def __init__(self, scenario: Scenario, ports: int = 2) -> None:
        self.scenario = scenario
        provider = scenario.provider
        self.pool_set = provider.post("/service-pool-sets", {"name": "s", "providerId": scenario.provider_id})
        self.pool = provider.post(
            "/service-pools",
            {
                "name": "p",
                "type": "port",
                "propertyType": "integer",
                "generatorType": "list",
                "servicePoolSetId": self.pool_set["id"],
            },
        )
        for number in range(ports):
            provider.post(
                "/service-pool-values",
                {"servicePoolId": self.pool["id"], "name": f"{8000 + number}", "value": 8000 + number},
            )
        scenario.admin.patch(f"/agents/{scenario.agent_id}", {"servicePoolSetId": self.pool_set["id"]})
        self.kind = scenario.service_type(SCHEMA, LIFECYCLE)

    def order(self, **more: Any) -> Any:
        return self.scenario.order(self.kind, {"key": "k"}, **more)

    def free(self) -> int:
        found: int = self.scenario.provider.get(f"/service-pools/{self.pool['id']}/usage")["free"]
        return found

    def force_delete(self, service: Any) -> None:
        self.scenario.admin.delete(f"/services/{service['id']}?force=true")

    def orphans(self) -> list[Any]:
        found: list[Any] = self.scenario.agent.get("/orphans")["items"]
        return found

    def orphan_of(self, service: Any) -> Any:
        (found,) = self.scenario.agent.get(f"/orphans?serviceId={service['id']}")["items"]
        return found

    def reveal(self, reference: str, *, expect: int = 200) -> Any:
        found = self.scenario.agent.get(f"/vault/secrets/{reference.removeprefix('vault://')}", expect=expect)
        return found.get("value")


@pytest.fixture
def host(scenario: Scenario) -> Host:
    return Host(scenario)


def test_a_forced_delete_of_a_running_service_keeps_its_values_until_the_agent_confirms(host: Host) -> None:
    scenario = host.scenario
    service = host.order()
    scenario.complete(service, agentInstanceId="unit-1")
    key = service["properties"]["key"]
    host.force_delete(service)
    ended = scenario.service(service["id"])
    assert (ended["status"], ended["orphan"], ended["agentInstanceId"]) == ("Deleted", True, "unit-1")
    # Neither the port nor the instance id goes to the next order.
    other = host.order()
    assert (service["properties"]["port"], other["properties"]["port"]) == (8000, 8001)
    job = scenario.next_job(other)
    scenario.agent.post(f"/jobs/{job['id']}/complete", {"agentInstanceId": "unit-1"}, expect=409)
    scenario.agent.post(f"/jobs/{job['id']}/complete", {"agentInstanceId": "unit-2"}, expect=204)
    orphan = host.orphan_of(service)
    assert host.reveal(key) == "k"
    scenario.agent.post(f"/orphans/{orphan['id']}/confirm", {"report": {"changed": 3}}, expect=204)
    ended = scenario.service(service["id"])
    assert (ended["orphan"], ended["agentInstanceId"], "key" in ended["properties"]) == (False, None, False)
    assert (host.free(), host.orphans()) == (1, [])
    host.reveal(key, expect=404)
    assert host.order()["properties"]["port"] == 8000
    assert scenario.provider.get(f"/orphans/{orphan['id']}/report") == {"changed": 3}


def test_an_orphan_has_the_documented_members(host: Host) -> None:
    scenario = host.scenario
    service = host.order()
    scenario.complete(service)
    host.force_delete(service)
    orphan = host.orphan_of(service)
    embedded = orphan.pop("service")
    assert embedded == scenario.agent.get(f"/services/{service['id']}")
    assert orphan == {
        "id": orphan["id"],
        "serviceId": service["id"],
        "serviceName": service["name"],
        "agentId": scenario.agent_id,
        "providerId": scenario.provider_id,
        "createdAt": orphan["createdAt"],
        "updatedAt": orphan["createdAt"],
        "reason": "forced_delete",
        "attempts": 0,
        "lastError": None,
    }
    # Only the agent gets the service.
    for reader in (scenario.admin, scenario.provider):
        assert reader.get(f"/orphans?serviceId={service['id']}")["items"] == [orphan]
    for other in (scenario.consumer, scenario.stranger, Scenario(scenario.admin).agent):
        assert other.get("/orphans")["totalItems"] == 0


def test_a_service_that_no_agent_claimed_leaves_no_orphan(host: Host) -> None:
    service = host.order()
    host.scenario.consumer.delete(f"/services/{service['id']}?force=true")
    ended = host.scenario.service(service["id"])
    assert (ended["orphan"], host.orphans(), host.free()) == (False, [], 2)
    host.reveal(service["properties"]["key"], expect=404)


def test_a_job_that_was_failed_without_a_claim_leaves_no_orphan(host: Host) -> None:
    service = host.order()
    job = host.scenario.next_job_seen(service)
    host.scenario.agent.post(f"/jobs/{job['id']}/fail", {"errorMessage": "no"}, expect=204)
    host.force_delete(service)
    assert (host.orphans(), host.free()) == ([], 2)


def test_a_released_claim_is_enough_for_an_orphan(host: Host) -> None:
    """The release removes every trace from the job, but the agent may have changed the host."""
    scenario = host.scenario
    service = host.order()
    job = scenario.next_job_seen(service)
    lease = scenario.agent.post(f"/jobs/{job['id']}/claim", {"leaseSeconds": 30}, expect=200)
    scenario.agent.post(f"/jobs/{job['id']}/release", {"leaseToken": lease["leaseToken"]}, expect=204)
    scenario.consumer.delete(f"/services/{service['id']}?force=true")
    assert host.orphan_of(service)["serviceId"] == service["id"]
    assert host.free() == 1


def test_an_orphan_keeps_the_values_of_the_cancelled_run_too(host: Host) -> None:
    """The agent may already have configured the new port when the delete is forced."""
    scenario = host.scenario
    service = host.order()
    scenario.complete(service)
    scenario.consumer.patch(f"/services/{service['id']}", {"properties": {"port": None, "key": "k2"}})
    job = scenario.next_job(service)
    assert (job["params"]["port"], host.free()) == (8001, 0)
    host.force_delete(service)
    assert host.free() == 0
    # The clean-up sees the properties from before the update.
    orphan = host.orphan_of(service)
    assert orphan["service"]["properties"]["port"] == 8000
    assert host.reveal(orphan["service"]["properties"]["key"]) == "k"
    host.reveal(job["params"]["key"], expect=404)
    scenario.agent.post(f"/jobs/{job['id']}/complete", expect=409)
    scenario.agent.post(f"/orphans/{orphan['id']}/confirm", expect=204)
    assert host.free() == 2


def test_an_ephemeral_secret_ends_with_the_run_and_not_with_the_orphan(host: Host) -> None:
    scenario = host.scenario
    service = scenario.order(host.kind, {"key": "k", "pin": "1234"})
    scenario.next_job(service)
    pin = service["properties"]["pin"]
    assert host.reveal(pin) == "1234"
    host.force_delete(service)
    assert "pin" not in host.orphan_of(service)["service"]["properties"]
    host.reveal(pin, expect=404)
    assert host.reveal(service["properties"]["key"]) == "k"


def test_a_failed_clean_up_is_counted_and_keeps_the_orphan_open(host: Host) -> None:
    scenario = host.scenario
    service = host.order()
    scenario.complete(service)
    host.force_delete(service)
    orphan = host.orphan_of(service)
    for number in (1, 2):
        body = {"errorMessage": f"exec#stop: try {number}", "report": {"try": number}}
        scenario.agent.post(f"/orphans/{orphan['id']}/fail", body, expect=204)
    found = host.orphan_of(service)
    assert (found["attempts"], found["lastError"], host.free()) == (2, "exec#stop: try 2", 1)
    assert scenario.agent.get(f"/orphans/{orphan['id']}/report") == {"try": 2}
    scenario.agent.post(f"/orphans/{orphan['id']}/fail", {"report": {}}, expect=400)
    scenario.agent.post(f"/orphans/{orphan['id']}/confirm", expect=204)
    types = [each["type"] for each in scenario.provider.get(f"/events?entityId={orphan['id']}")["items"]]
    assert types == ["orphan.created", "orphan.failed", "orphan.failed", "orphan.confirmed"]


def test_a_new_clean_up_ends_the_long_poll_for_plans_once(host: Host) -> None:
    service = host.order()
    host.scenario.complete(service)
    with ThreadPoolExecutor(1) as pool:
        poll = pool.submit(host.scenario.agent.call, "GET", "/api/v1/plans/pending?wait=30", expect=200)
        host.force_delete(service)
        woken = poll.result(timeout=20)
    assert (woken.body, woken.headers.get("mainstay-wake")) == ([], "orphans")
    # The orphan is still open; a poll that returned for it again would make agents poll without a pause.
    again = host.scenario.agent.call("GET", "/api/v1/plans/pending?wait=1", expect=200)
    assert (again.body, again.headers.get("mainstay-wake")) == ([], None)


def test_a_clean_up_that_came_between_two_polls_ends_the_next_one(host: Host) -> None:
    service = host.order()
    host.scenario.complete(service)
    host.force_delete(service)
    found = host.scenario.agent.call("GET", "/api/v1/plans/pending?wait=30", expect=200)
    assert found.headers.get("mainstay-wake") == "orphans"


def test_an_agent_may_wait_for_its_clean_ups(host: Host) -> None:
    service = host.order()
    host.scenario.complete(service)
    assert host.scenario.agent.get("/orphans?wait=1")["items"] == []
    with ThreadPoolExecutor(1) as pool:
        poll = pool.submit(host.scenario.agent.get, "/orphans?wait=30&pageSize=5")
        host.force_delete(service)
        assert [each["serviceId"] for each in poll.result(timeout=20)["items"]] == [service["id"]]
    for client in (host.scenario.admin, host.scenario.provider):
        assert client.get("/orphans?wait=1", expect=400)["code"] == "bad_query"


def test_only_an_admin_forgets_an_orphan(host: Host) -> None:
    scenario = host.scenario
    service = host.order()
    scenario.complete(service)
    host.force_delete(service)
    path = f"/orphans/{host.orphan_of(service)['id']}"
    for caller in (scenario.provider, scenario.consumer, scenario.agent):
        caller.post(f"{path}/forget", expect=403)
    for caller in (scenario.admin, scenario.provider):
        caller.post(f"{path}/confirm", expect=403)
        caller.post(f"{path}/fail", {"errorMessage": "x"}, expect=403)
    Scenario(scenario.admin).agent.post(f"{path}/confirm", expect=404)
    scenario.admin.post(f"{path}/forget", expect=204)
    assert (host.free(), host.orphans()) == (2, [])
    assert scenario.service(service["id"])["orphan"] is False
    scenario.admin.post(f"{path}/forget", expect=404)
    scenario.agent.post(f"{path}/fail", {"errorMessage": "late"}, expect=404)
    scenario.admin.post(f"/orphans/{uuid4()}/forget", expect=404)


def test_a_repeated_confirmation_changes_nothing(host: Host) -> None:
    """The agent repeats a confirmation whose answer it did not receive."""
    scenario = host.scenario
    service = host.order()
    scenario.complete(service)
    host.force_delete(service)
    path = f"/orphans/{host.orphan_of(service)['id']}/confirm"
    scenario.agent.post(path, expect=204)
    successor = host.order()
    assert successor["properties"]["port"] == 8000
    scenario.agent.post(path, expect=204)
    assert host.free() == 1


def test_an_open_orphan_refuses_the_delete_of_everything_it_depends_on(host: Host) -> None:
    scenario = host.scenario
    service = host.order()
    scenario.complete(service)
    host.force_delete(service)
    orphan_id = host.orphan_of(service)["id"]
    scenario.admin.patch(f"/agent-types/{scenario.agent_type_id}", {"serviceTypeIds": []})
    (value,) = [
        each
        for each in scenario.provider.get(f"/service-pool-values?servicePoolId={host.pool['id']}")["items"]
        if each["serviceId"] is not None
    ]
    paths = [
        f"/agents/{scenario.agent_id}",
        f"/service-pools/{host.pool['id']}",
        f"/service-pool-values/{value['id']}",
        f"/service-types/{host.kind['id']}",
        f"/service-groups/{scenario.group_id}",
        f"/participants/{scenario.consumer_id}",
        f"/participants/{scenario.provider_id}",
    ]
    for path in paths:
        refused = scenario.admin.delete(path, expect=409)
        assert refused["dependants"]["orphans"] == [orphan_id], path
        assert orphan_id in refused["error"]
        assert "an admin forgets it" in refused["error"]
    assert scenario.service(service["id"])["orphan"] is True
    scenario.agent.post(f"/orphans/{orphan_id}/confirm", expect=204)
    for path in (*paths[2:5], f"/participants/{scenario.consumer_id}", paths[1], paths[0]):
        scenario.admin.delete(path)


def test_a_pending_job_names_the_open_orphan_with_its_type_and_name(host: Host) -> None:
    scenario = host.scenario
    name = unique("shop")
    service = host.order(name=name)
    scenario.complete(service)
    host.force_delete(service)
    orphan_id = host.orphan_of(service)["id"]
    same = host.order(name=name)
    assert scenario.next_job_seen(same)["orphanId"] == orphan_id
    other_type = scenario.order(scenario.service_type(None, SIMPLE), name=name)
    assert "orphanId" not in scenario.next_job_seen(other_type)
    other_agent = scenario.new_agent()
    elsewhere = scenario.order(scenario.service_type(None, SIMPLE), name=name, agentId=other_agent["id"])
    (job,) = scenario.token("agent", other_agent["id"]).get(f"/jobs/pending?serviceId={elsewhere['id']}")
    assert "orphanId" not in job
    scenario.agent.post(f"/orphans/{orphan_id}/confirm", expect=204)
    assert "orphanId" not in scenario.next_job_seen(same)


def test_a_claim_and_a_forced_delete_at_the_same_time_never_free_the_values_of_a_claimed_job(host: Host) -> None:
    scenario = host.scenario
    for _ in range(10):
        service = host.order()
        job = scenario.next_job_seen(service)
        claim = f"/api/v1/jobs/{job['id']}/claim"
        delete = f"/api/v1/services/{service['id']}?force=true"
        with ThreadPoolExecutor(2) as threads:
            claimed = threads.submit(scenario.agent.call, "POST", claim)
            deleted = threads.submit(scenario.admin.call, "DELETE", delete, expect=204)
        deleted.result()
        found = scenario.agent.get(f"/orphans?serviceId={service['id']}")["items"]
        assert len(found) == (1 if claimed.result().status == 204 else 0)
        for orphan in found:
            scenario.agent.post(f"/orphans/{orphan['id']}/confirm", expect=204)
        assert host.free() == 2


def test_confirm_and_forget_at_the_same_time_release_the_values_once(host: Host) -> None:
    scenario = host.scenario
    for _ in range(5):
        service = host.order()
        scenario.complete(service)
        host.force_delete(service)
        path = f"/api/v1/orphans/{host.orphan_of(service)['id']}"
        with ThreadPoolExecutor(3) as threads:
            confirmed = [threads.submit(scenario.agent.call, "POST", f"{path}/confirm") for _ in range(2)]
            forgotten = threads.submit(scenario.admin.call, "POST", f"{path}/forget")
        assert {each.result().status for each in confirmed} == {204}
        assert forgotten.result().status in (204, 404)
        events = scenario.admin.get(f"/events?entityId={service['id']}&sort=-sequenceNumber&pageSize=1")["items"]
        assert events[0]["type"] == "service.updated"
        assert host.free() == 2
