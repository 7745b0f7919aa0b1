"""The members `{id, name}` of related rows, which existing clients read."""

from __future__ import annotations

from typing import Any

import seed_text
from control_plane import Client
from scenario import Scenario, unique

SIMPLE: Any = seed_text.block("Example 1: Simple VM Lifecycle")


def named(client: Client, noun: str, row_id: str) -> dict[str, str]:
    return {"id": row_id, "name": client.get(f"/{noun}/{row_id}")["name"]}


def everywhere(client: Client, noun: str, made: Any, change: Any = None) -> list[Any]:
    """The row as created, shown, listed, paged and changed."""
    path = f"/{noun}/{made['id']}"
    shown = client.get(path)
    listed = client.get(f"/{noun}?id={made['id']}")["items"]
    paged = client.get(f"/{noun}?id={made['id']}&after=")["items"]
    # A client sends back what it has read.
    changed = client.patch(path, {**shown, **(change or {})})
    return [made, shown, *listed, *paged, changed]


def test_an_agent_names_its_participant_and_type(scenario: Scenario) -> None:
    made = scenario.new_agent()
    rows = everywhere(scenario.provider, "agents", made, {"name": "new"})
    rows.append(scenario.token("agent", made["id"]).get("/agents/me"))
    rows.append(scenario.token("agent", made["id"]).put("/agents/me/status", {"status": "Connected"}))
    for row in rows:
        assert row["participant"] == named(scenario.admin, "participants", scenario.provider_id)
        assert row["agentType"] == named(scenario.admin, "agent-types", scenario.agent_type_id)


def test_a_group_names_its_consumer(scenario: Scenario) -> None:
    made = scenario.consumer.post("/service-groups", {"name": "g", "consumerId": scenario.consumer_id})
    for row in everywhere(scenario.consumer, "service-groups", made):
        assert row["consumer"] == named(scenario.admin, "participants", scenario.consumer_id)


def test_pools_name_their_set_and_values_their_pool_and_service(scenario: Scenario) -> None:
    made = scenario.provider.post("/service-pool-sets", {"name": "the set", "providerId": scenario.provider_id})
    for row in everywhere(scenario.provider, "service-pool-sets", made):
        assert row["provider"] == named(scenario.admin, "participants", scenario.provider_id)
    body = {"name": "the pool", "type": "ip", "propertyType": "string", "generatorType": "list"}
    pool = scenario.provider.post("/service-pools", {**body, "servicePoolSetId": made["id"]})
    for row in everywhere(scenario.provider, "service-pools", pool):
        assert row["servicePoolSetName"] == "the set"
    value = scenario.provider.post("/service-pool-values", {"name": "v", "value": "v", "servicePoolId": pool["id"]})
    scenario.provider.patch(f"/agents/{scenario.agent_id}", {"servicePoolSetId": made["id"]})
    for row in everywhere(scenario.provider, "service-pool-values", value):
        assert row["service"] is None
        assert row["servicePool"] == {"id": pool["id"], "name": "the pool"}
    address = {"type": "string", "generator": {"type": "pool", "config": {"poolType": "ip"}}}
    service = scenario.order(scenario.service_type({"ip": address}, SIMPLE))
    taken = scenario.provider.get(f"/service-pool-values/{value['id']}")
    assert taken["service"] == {"id": service["id"], "name": service["name"]}
    # An agent reads the pools of its provider, and not the services of other agents.
    assert scenario.agent.get(f"/service-pool-values/{value['id']}")["service"] is None


def test_a_token_names_its_participant_and_agent(scenario: Scenario) -> None:
    made = scenario.provider.post("/tokens", {"name": "t", "role": "agent", "scopeId": scenario.agent_id})
    rows = everywhere(scenario.provider, "tokens", made)
    rows.append(scenario.admin.as_token(made["value"]).get("/tokens/me"))
    again = scenario.provider.post(f"/tokens/{made['id']}/regenerate", expect=200)
    assert again["value"] != made["value"]
    for row in [*rows, again]:
        assert row["participant"] == named(scenario.admin, "participants", scenario.provider_id)
        assert row["agent"] == named(scenario.admin, "agents", scenario.agent_id)
    assert all("value" not in row for row in rows[1:])
    own = scenario.admin.get("/tokens/me")
    assert (own["participant"], own["agent"]) == (None, None)


def test_a_metric_entry_names_its_agent_service_and_type(scenario: Scenario) -> None:
    service = scenario.order(scenario.service_type(None, SIMPLE))
    metric = scenario.admin.post("/metric-types", {"name": unique("m"), "entityType": "Service"})
    body = {"serviceId": service["id"], "resourceId": "cpu", "typeName": metric["name"], "value": 1}
    made = scenario.agent.post("/metric-entries", body)
    listed = [
        client.get(f"/metric-entries?serviceId={service['id']}") for client in (scenario.consumer, scenario.provider)
    ]
    for row in (made, *(page["items"][0] for page in listed)):
        assert row["agent"] == named(scenario.admin, "agents", scenario.agent_id)
        assert row["service"] == {"id": service["id"], "name": service["name"]}
        assert row["type"] == {"id": metric["id"], "name": metric["name"]}


def test_lists_neither_filter_nor_sort_by_embedded_members(scenario: Scenario) -> None:
    for noun, member in (
        ("agents", "participant"),
        ("service-groups", "consumer"),
        ("service-pools", "servicePoolSetName"),
        ("tokens", "agent"),
        ("metric-entries", "type"),
    ):
        scenario.admin.get(f"/{noun}?{member}=x", expect=400)
        scenario.admin.get(f"/{noun}?sort={member}", expect=400)


def test_a_change_refuses_another_embedded_member(scenario: Scenario) -> None:
    made = scenario.new_agent()
    other = {**made["participant"], "name": "other"}
    refused = scenario.provider.patch(f"/agents/{made['id']}", {"participant": other}, expect=400)
    assert [fault["path"] for fault in refused["errors"]] == ["participant"]
