"""Placement: an order without an agent goes to one that has room, and says why if there is none."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from placed_hosts import SCHEMA, Hosts
from scenario import Scenario, unique

TWO_PORTS: Any = {**SCHEMA, "admin": SCHEMA["port"]}


@pytest.fixture
def hosts(scenario: Scenario) -> Hosts:
    return Hosts(scenario)


def test_an_order_goes_to_the_agent_that_has_a_free_value(hosts: Hosts) -> None:
    """The agent without a pool has the fewest services, and would get every order."""
    host1 = hosts.add("host1", range(7101, 7104))
    hosts.add("host2")
    host3 = hosts.add("host3", range(7201, 7202))
    placed = [hosts.order() for _ in range(4)]
    assert Counter(each["agentId"] for each in placed) == {host1["id"]: 3, host3["id"]: 1}
    assert sorted(each["properties"]["port"] for each in placed) == [7101, 7102, 7103, 7201]


def test_a_refusal_names_each_agent_and_its_reason(hosts: Hosts) -> None:
    host1 = hosts.add("host1", range(7101, 7103))
    hosts.add("host3")
    host4 = hosts.add("host4", range(7301, 7303), capacity=0)
    host2 = hosts.add("host2", range(7201, 7203))
    hosts.scenario.provider.patch(f"/agents/{host2['id']}", {"status": "Disabled"})
    for _ in range(2):
        hosts.order()
    own = {"name": unique("g"), "consumerId": hosts.scenario.provider_id}
    of_provider = {"groupId": hosts.scenario.provider.post("/service-groups", own)["id"]}
    for refused in (
        hosts.order(client=hosts.scenario.admin, expect=400, query="?dryRun=true"),
        hosts.order(client=hosts.scenario.provider, expect=400, **of_provider),
    ):
        assert refused["code"] == "no_capacity"
        sentences = refused["error"].split(": ", 1)[1].split("; ")
        assert sorted(sentences) == [
            "host1: pool kvPort is used up (2 of 2)",
            "host2: disabled",
            "host3: no pool kvPort",
            "host4: at its capacity of 0",
        ]
        reasons = {each["agentId"]: each["reason"] for each in refused["reasons"]}
        assert (reasons[host1["id"]], reasons[host4["id"]]) == ("pool_used_up", "capacity")
        assert all(each["count"] == 1 for each in refused["reasons"])


def test_a_customer_reads_reasons_without_names_and_numbers(hosts: Hosts) -> None:
    for number in range(2):
        hosts.add(f"secret-{number}", range(7101, 7101))
    hosts.add("secret-2")
    refused = hosts.order(expect=400)
    assert refused["code"] == "no_capacity"
    provider = hosts.scenario.admin.get(f"/participants/{hosts.scenario.provider_id}")["name"]
    assert refused["error"] == (
        f"no agent of {provider} has room for service type {hosts.kind['name']}:"
        " 2 agents: pool kvPort is used up; 1 agent: no pool kvPort"
    )
    assert refused["reasons"] == [
        {"reason": "pool_used_up", "message": "2 agents: pool kvPort is used up", "count": 2},
        {"reason": "no_pool", "message": "1 agent: no pool kvPort", "count": 1},
    ]


def test_a_refusal_lists_twenty_agents_and_counts_the_others(hosts: Hosts) -> None:
    for number in range(22):
        hosts.add(f"host{number}", connected=False)
    refused = hosts.order(client=hosts.scenario.admin, expect=400)
    assert refused["error"].count("no pool kvPort") == 20
    assert refused["error"].endswith(" and 2 more")


def test_a_given_value_selects_the_agent_whose_pool_has_it(hosts: Hosts) -> None:
    hosts.add("host1", range(7101, 7103))
    host2 = hosts.add("host2", range(7201, 7203))
    placed = hosts.order(properties={"port": 7202})
    assert (placed["agentId"], placed["properties"]["port"]) == (host2["id"], 7202)
    refused = hosts.order(properties={"port": 7202}, expect=400)
    assert refused["reasons"] == [
        {
            "reason": "value_not_free",
            "message": "2 agents: pool kvPort does not have the given value free",
            "count": 2,
        }
    ]


def test_an_order_for_two_values_needs_both_free(scenario: Scenario) -> None:
    hosts = Hosts(scenario, TWO_PORTS)
    hosts.add("host1", range(7101, 7102))
    host2 = hosts.add("host2", range(7201, 7203))
    placed = hosts.order()
    assert (placed["agentId"], sorted(placed["properties"].values())) == (host2["id"], [7201, 7202])
    refused = hosts.order(client=scenario.admin, expect=400)
    assert "host1: pool kvPort has too few free values (0 of 1)" in refused["error"]


@pytest.mark.parametrize("given", [None, "10.0.1.6"])
def test_a_subnet_has_room_while_an_address_is_free(scenario: Scenario, given: str | None) -> None:
    generator = {"type": "pool", "config": {"poolType": "kvPort"}}
    hosts = Hosts(scenario, {"port": {"type": "string", "generator": generator}})
    for name, network in (("host1", "10.0.0.4/32"), ("host2", "10.0.1.4/30")):
        agent = hosts.add(name, connected=False)
        body = {"name": unique("set"), "providerId": scenario.provider_id}
        pool_set = scenario.provider.post("/service-pool-sets", body)
        subnet = {"generatorType": "subnet", "generatorConfig": {"cidr": network}, "propertyType": "string"}
        hosts.pool(pool_set["id"], range(0), **subnet)
        scenario.provider.patch(f"/agents/{agent['id']}", {"servicePoolSetId": pool_set["id"]})
    properties = {} if given is None else {"port": given}
    first = hosts.order(properties=properties)["properties"]["port"]
    assert first == (given or "10.0.0.4")
    others = {hosts.order()["properties"]["port"] for _ in range(4)}
    assert others | {first} == {"10.0.0.4", "10.0.1.4", "10.0.1.5", "10.0.1.6", "10.0.1.7"}
    assert hosts.order(client=scenario.admin, expect=400)["error"].endswith("host2: pool kvPort is used up (4 of 4)")


def test_a_pool_with_values_of_another_type_attracts_no_order(hosts: Hosts) -> None:
    broken = hosts.add("host1", range(0))
    hosts.add("host2", range(7201, 7202))
    other = hosts.add("host3", connected=False)
    pool_set = hosts.scenario.provider.post(
        "/service-pool-sets", {"name": unique("set"), "providerId": hosts.scenario.provider_id}
    )
    hosts.pool(pool_set["id"], range(0), propertyType="string")
    hosts.scenario.provider.patch(f"/agents/{broken['id']}", {"servicePoolSetId": pool_set["id"]})
    assert hosts.order()["properties"]["port"] == 7201
    refused = hosts.order(client=hosts.scenario.admin, expect=400)
    assert "host1: pool kvPort has values of another type" in refused["error"]
    assert other


def test_an_explicit_agent_keeps_the_texts_of_its_pools(hosts: Hosts) -> None:
    host1 = hosts.add("host1", range(0))
    host2 = hosts.add("host2")
    texts = [hosts.order(agentId=each["id"], expect=400)["errors"][0]["message"] for each in (host1, host2)]
    assert texts == ["failed to allocate from pool kvPort", "agent does not have a pool set configured"]


# ---- capacity ----
def test_a_capacity_binds_customers_and_placement(hosts: Hosts) -> None:
    admin, scenario = hosts.scenario.admin, hosts.scenario
    small = hosts.add("small", range(7101, 7110), capacity=1)
    large = hosts.add("large", range(7201, 7210))
    assert Counter(hosts.order()["agentId"] for _ in range(4)) == {small["id"]: 1, large["id"]: 3}
    refused = hosts.order(agentId=small["id"], expect=400)
    assert (refused["code"], refused["error"]) == (
        "no_capacity",
        "agent small is at its capacity; name another agent, or none",
    )
    for client in (admin, scenario.provider):
        group = client.post("/service-groups", {"name": unique("g"), "consumerId": scenario.provider_id})
        hosts.order(client=client, agentId=small["id"], groupId=group["id"])
    assert admin.get(f"/agents/{small['id']}")["capacity"] == 1


def test_a_capacity_is_set_changed_and_removed_by_its_provider(hosts: Hosts) -> None:
    provider = hosts.scenario.provider
    agent = hosts.add("host1", range(7101, 7110), capacity=0)
    path = f"/agents/{agent['id']}"
    hosts.order(expect=400)
    assert provider.patch(path, {"capacity": 1})["capacity"] == 1
    service = hosts.order()
    hosts.order(expect=400)
    # A service that ended does not count.
    hosts.scenario.admin.delete(f"/services/{service['id']}?force=true")
    hosts.order()
    assert provider.patch(path, {"name": "renamed"})["capacity"] == 1
    assert provider.patch(path, {"capacity": None}).get("capacity") is None
    hosts.order()
    for wrong in (-1, 1.5, "3", True):
        provider.patch(path, {"capacity": wrong}, expect=400)


def test_parallel_orders_never_exceed_a_capacity(hosts: Hosts) -> None:
    limits = {
        hosts.add(f"host{limit}", range(limit * 100, limit * 100 + 50), capacity=limit)["id"]: limit
        for limit in (3, 5, 7)
    }
    placed, refused = hosts.order_in_parallel(30)
    assert Counter(each["agentId"] for each in placed) == limits
    assert {each["code"] for each in refused} == {"no_capacity"}


def test_fifty_parallel_orders_for_forty_values_on_five_hosts(hosts: Hosts) -> None:
    agents = [hosts.add(f"host{number}", range(number * 100, number * 100 + 8)) for number in range(5)]
    placed, refused = hosts.order_in_parallel(50)
    assert (len(placed), len(refused)) == (40, 10)
    assert Counter(each["agentId"] for each in placed) == {agent["id"]: 8 for agent in agents}
    assert len({each["properties"]["port"] for each in placed}) == 40
    assert {each["code"] for each in refused} == {"no_capacity"}


def test_orders_are_spread_by_load(hosts: Hosts) -> None:
    agents = [hosts.add(f"host{number}", range(number * 100, number * 100 + 40)) for number in range(4)]
    found = Counter(hosts.order()["agentId"] for _ in range(12))
    assert found == {agent["id"]: 3 for agent in agents}
