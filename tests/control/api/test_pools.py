"""Pools: a value has one owner, the lowest free address is allocated, and values are released."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

import seed_text
from scenario import Scenario, unique

SIMPLE: Any = seed_text.block("Example 1: Simple VM Lifecycle")
SYSTEM = [{"type": "actor", "config": {"actors": ["system"]}}]


def pooled(pool_type: str, kind: str = "string", **more: Any) -> dict[str, Any]:
    generator = {"type": "pool", "config": {"poolType": pool_type}}
    return {"type": kind, "authorizers": SYSTEM, "generator": generator, "immutable": True, **more}


def pool_set(scenario: Scenario) -> str:
    made = scenario.provider.post("/service-pool-sets", {"name": unique("set"), "providerId": scenario.provider_id})
    scenario.provider.patch(f"/agents/{scenario.agent_id}", {"servicePoolSetId": made["id"]})
    return str(made["id"])


def list_pool(scenario: Scenario, set_id: str, kind: str, values: list[Any], property_type: str = "string") -> Any:
    body = {"name": kind, "type": kind, "propertyType": property_type, "generatorType": "list"}
    pool = scenario.provider.post("/service-pools", {**body, "servicePoolSetId": set_id})
    for number, value in enumerate(values):
        scenario.provider.post(
            "/service-pool-values", {"servicePoolId": pool["id"], "name": f"v{number}", "value": value}
        )
    return pool


def subnet_pool(scenario: Scenario, set_id: str, kind: str, cidr: str, expect: int = 201, **config: Any) -> Any:
    body = {"name": kind, "type": kind, "propertyType": "string", "generatorType": "subnet"}
    config = {"cidr": cidr, **config}
    return scenario.provider.post(
        "/service-pools", {**body, "generatorConfig": config, "servicePoolSetId": set_id}, expect=expect
    )


def usage(scenario: Scenario, pool: Any) -> tuple[int, int, int]:
    found = scenario.provider.get(f"/service-pools/{pool['id']}/usage")
    return found["total"], found["allocated"], found["free"]


def remove(scenario: Scenario, service: Any) -> Any:
    scenario.consumer.delete(f"/services/{service['id']}")
    return scenario.complete(service)


def test_an_order_allocates_from_the_three_pools_of_the_seed(scenario: Scenario) -> None:
    set_id = pool_set(scenario)
    public = list_pool(scenario, set_id, "public_ip", ["185.123.45.10", "185.123.45.11"])
    private = subnet_pool(scenario, set_id, "private_ip", "192.168.1.0/24", excludeFirst=1, excludeLast=1)
    document = {"hostname": "web01.example.com", "internalDns": "web01.internal", "zone": "us-east-1a"}
    list_pool(scenario, set_id, "hostname", [document], "json")
    kind = scenario.service_type(
        {"publicIp": pooled("public_ip"), "privateIp": pooled("private_ip"), "hostname": pooled("hostname", "json")},
        SIMPLE,
    )
    service = scenario.order(kind)
    assert service["properties"] == {
        "publicIp": "185.123.45.10",
        "privateIp": "192.168.1.1",
        "hostname": document,
    }
    values = scenario.provider.get(f"/service-pool-values?servicePoolId={public['id']}")["items"]
    taken = {value["value"]: (value["serviceId"], value["propertyName"]) for value in values}
    assert taken == {"185.123.45.10": (service["id"], "publicIp"), "185.123.45.11": (None, None)}
    assert usage(scenario, private) == (254, 1, 253)
    refused = scenario.provider.delete(f"/service-pool-values/{values[0]['id']}", expect=409)
    assert refused["dependants"] == {"services": [service["id"]]}
    exhausted = scenario.consumer.post(
        "/services",
        {"serviceTypeId": kind["id"], "name": "x", "groupId": scenario.group_id, "agentId": scenario.agent_id},
        expect=400,
    )
    assert exhausted["errors"] == [{"path": "hostname", "message": "failed to allocate from pool hostname"}]
    assert usage(scenario, public) == (2, 1, 1)
    scenario.complete(service)
    done = remove(scenario, service)
    assert done["status"] == "Deleted"
    assert usage(scenario, public) == (2, 0, 2)
    assert usage(scenario, private) == (254, 0, 254)


def test_the_lowest_free_address_is_allocated_and_released_addresses_are_reused(scenario: Scenario) -> None:
    set_id = pool_set(scenario)
    pool = subnet_pool(scenario, set_id, "ip", "10.0.0.0/29")
    kind = scenario.service_type({"ip": pooled("ip")}, SIMPLE)
    services = [scenario.order(kind) for _ in range(8)]
    assert [service["properties"]["ip"] for service in services] == [f"10.0.0.{number}" for number in range(8)]
    assert usage(scenario, pool) == (8, 8, 0)
    for number in (2, 5, 3):
        scenario.complete(services[number])
        remove(scenario, services[number])
    assert [scenario.order(kind)["properties"]["ip"] for _ in range(3)] == ["10.0.0.2", "10.0.0.3", "10.0.0.5"]


def test_networks_of_any_size_are_supported(scenario: Scenario) -> None:
    set_id = pool_set(scenario)
    pool = subnet_pool(scenario, set_id, "six", "2001:db8::/32", excludeFirst=16)
    whole = subnet_pool(scenario, set_id, "all", "0.0.0.0/0")
    service = scenario.order(scenario.service_type({"six": pooled("six"), "four": pooled("all")}, SIMPLE))
    assert service["properties"] == {"six": "2001:db8::10", "four": "0.0.0.0"}
    assert usage(scenario, pool) == (2**96 - 16, 1, 2**96 - 17)
    assert usage(scenario, whole)[0] == 2**32


def test_a_user_may_request_a_value_of_a_property_that_users_may_set(scenario: Scenario) -> None:
    set_id = pool_set(scenario)
    subnet_pool(scenario, set_id, "ip", "10.1.0.0/24", excludeFirst=1)
    list_pool(scenario, set_id, "port", [8080, 8081], "integer")
    schema = {
        "ip": {"type": "string", "generator": {"type": "pool", "config": {"poolType": "ip"}}},
        "port": {"type": "integer", "generator": {"type": "pool", "config": {"poolType": "port"}}},
    }
    kind = scenario.service_type(schema, SIMPLE)
    service = scenario.order(kind, {"ip": "10.1.0.77", "port": 8081})
    assert service["properties"] == {"ip": "10.1.0.77", "port": 8081}
    body = {"serviceTypeId": kind["id"], "name": "x", "groupId": scenario.group_id, "agentId": scenario.agent_id}
    for wrong in ("10.1.0.77", "10.1.0.0", "10.2.0.1", "rubbish"):
        refused = scenario.consumer.post("/services", {**body, "properties": {"ip": wrong}}, expect=400)
        assert refused["errors"] == [{"path": "ip", "message": "failed to allocate from pool ip"}]
    assert scenario.order(kind)["properties"] == {"ip": "10.1.0.1", "port": 8080}


def test_an_update_allocates_at_the_request_and_releases_by_its_outcome(scenario: Scenario) -> None:
    set_id = pool_set(scenario)
    pool = subnet_pool(scenario, set_id, "ip", "10.2.0.0/29")
    schema = {"ip": {"type": "string", "generator": {"type": "pool", "config": {"poolType": "ip"}}}}
    service = scenario.order(scenario.service_type(schema, SIMPLE))
    scenario.complete(service)
    path = f"/services/{service['id']}"
    scenario.consumer.patch(path, {"properties": {"ip": "10.2.0.5"}})
    assert usage(scenario, pool)[1] == 2
    assert scenario.fail(service, "no")["properties"]["ip"] == "10.2.0.0"
    assert usage(scenario, pool)[1] == 1
    scenario.consumer.patch(path, {"properties": {"ip": "10.2.0.5"}})
    assert scenario.complete(service)["properties"]["ip"] == "10.2.0.5"
    assert usage(scenario, pool)[1] == 1
    scenario.consumer.patch(path, {"properties": {"ip": None}})
    assert scenario.complete(service)["properties"]["ip"] == "10.2.0.0"
    scenario.consumer.patch(path, {"properties": {"ip": "10.2.0.6"}})
    (job,) = [job for job in scenario.jobs(service) if job["status"] == "Pending"]
    scenario.consumer.post(f"/jobs/{job['id']}/cancel", expect=204)
    values = scenario.provider.get(f"/service-pool-values?servicePoolId={pool['id']}")["items"]
    assert [value["value"] for value in values] == ["10.2.0.0"]


def test_a_missing_pool_is_reported_with_the_messages_of_the_seed(scenario: Scenario) -> None:
    kind = scenario.service_type({"ip": pooled("ip")}, SIMPLE)
    body = {"serviceTypeId": kind["id"], "name": "x", "groupId": scenario.group_id, "agentId": scenario.agent_id}

    def message() -> str:
        return str(scenario.consumer.post("/services", body, expect=400)["errors"][0]["message"])

    assert message() == "agent does not have a pool set configured"
    set_id = pool_set(scenario)
    assert message() == "no pool found with type ip in pool set"
    list_pool(scenario, set_id, "ip", [1], "integer")
    assert message() == "property ip has type string but pool ip provides type integer"


def test_a_network_cannot_shrink_below_its_allocated_addresses(scenario: Scenario) -> None:
    set_id = pool_set(scenario)
    pool = subnet_pool(scenario, set_id, "ip", "10.3.0.0/24", excludeFirst=10)
    kind = scenario.service_type({"ip": pooled("ip")}, SIMPLE)
    scenario.order(kind)
    path = f"/service-pools/{pool['id']}"
    scenario.provider.patch(path, {"generatorConfig": {"cidr": "10.3.0.0/29"}}, expect=409)
    scenario.provider.patch(path, {"generatorConfig": {"cidr": "10.3.0.0/28", "excludeFirst": 9}})
    assert [scenario.order(kind)["properties"]["ip"] for _ in range(2)] == ["10.3.0.9", "10.3.0.11"]
    assert scenario.provider.delete(path, expect=409)["code"] == "in_use"


@pytest.mark.parametrize(
    "config",
    [
        {"cidr": "10.0.0.1/24"},
        {"cidr": "nothing"},
        {"cidr": 5},
        {},
        {"cidr": "10.0.0.0/30", "excludeFirst": 4},
        {"cidr": "10.0.0.0/30", "excludeFirst": -1},
        {"cidr": "10.0.0.0/30", "colour": "blue"},
    ],
)
def test_an_invalid_network_is_refused(scenario: Scenario, config: Any) -> None:
    made = scenario.provider.post("/service-pool-sets", {"name": "s", "providerId": scenario.provider_id})
    body = {"name": "p", "type": "ip", "propertyType": "string", "generatorType": "subnet", "generatorConfig": config}
    scenario.provider.post("/service-pools", {**body, "servicePoolSetId": made["id"]}, expect=400)


def test_pool_values_are_unique_typed_and_owned_by_their_provider(scenario: Scenario) -> None:
    set_id = pool_set(scenario)
    pool = list_pool(scenario, set_id, "port", [80], "integer")
    body = {"servicePoolId": pool["id"], "name": "v"}
    assert scenario.provider.post("/service-pool-values", {**body, "value": 80.0}, expect=409)["code"] == "duplicate"
    scenario.provider.post("/service-pool-values", {**body, "value": "80"}, expect=400)
    scenario.provider.post("/service-pool-values", {**body, "value": True}, expect=400)
    scenario.stranger.post("/service-pool-values", {**body, "value": 81}, expect=403)
    scenario.stranger.get(f"/service-pools/{pool['id']}", expect=404)
    scenario.stranger.get(f"/service-pools/{pool['id']}/usage", expect=404)
    assert scenario.stranger.get("/service-pool-values")["items"] == []
    assert scenario.agent.get(f"/service-pools/{pool['id']}")["id"] == pool["id"]
    twin = {
        "name": "p",
        "type": "port",
        "propertyType": "integer",
        "generatorType": "list",
        "servicePoolSetId": set_id,
    }
    assert scenario.provider.post("/service-pools", twin, expect=409)["code"] == "duplicate"
    subnet = subnet_pool(scenario, set_id, "ip", "10.0.0.0/30")
    scenario.provider.post(
        "/service-pool-values", {"servicePoolId": subnet["id"], "name": "v", "value": "10.0.0.1"}, expect=400
    )
    foreign = scenario.stranger.get("/participants")["items"][0]["id"]
    other = scenario.stranger.post("/service-pool-sets", {"name": "s", "providerId": foreign})
    scenario.provider.patch(f"/agents/{scenario.agent_id}", {"servicePoolSetId": other["id"]}, expect=403)
    assert scenario.provider.delete(f"/service-pool-sets/{set_id}", expect=409)["dependants"].keys() == {
        "servicePools",
        "agents",
    }
    assert (
        scenario.provider.patch(f"/agents/{scenario.agent_id}", {"servicePoolSetId": None})["servicePoolSetId"]
        is None
    )


def test_concurrent_orders_never_share_a_value(scenario: Scenario) -> None:
    set_id = pool_set(scenario)
    subnet = subnet_pool(scenario, set_id, "ip", "10.9.0.0/25")
    ports = list_pool(scenario, set_id, "port", list(range(40)), "integer")
    kind = scenario.service_type({"ip": pooled("ip"), "port": pooled("port", "integer")}, SIMPLE)
    body = {"serviceTypeId": kind["id"], "groupId": scenario.group_id, "agentId": scenario.agent_id}
    consumer = scenario.consumer

    def order(number: int) -> Any:
        return consumer.call("POST", "/api/v1/services", {**body, "name": f"n{number}"})

    with ThreadPoolExecutor(16) as threads:
        replies = list(threads.map(order, range(100)))
    made = [reply.body for reply in replies if reply.status == 201]
    assert {reply.status for reply in replies} == {201, 400}
    assert len(made) == 40
    assert len({service["properties"]["ip"] for service in made}) == 40
    assert len({service["properties"]["port"] for service in made}) == 40
    assert usage(scenario, subnet) == (128, 40, 88)
    assert usage(scenario, ports) == (40, 40, 0)
