"""Agents, their types and their configuration; groups and options beside them."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

from control_plane import Client, Server
from scenario import Scenario, unique

SCHEMA = {
    "endpoint": {"type": "string", "required": True, "validators": [{"type": "pattern", "pattern": "^https://"}]},
    "retries": {"type": "integer", "default": 3},
    "password": {"type": "string", "secret": {"type": "persistent"}},
}


def test_an_agent_is_made_by_its_provider(world: Scenario) -> None:
    body = {"name": "a", "providerId": world.provider_id, "agentTypeId": world.agent_type_id, "tags": ["x"]}
    agent = world.provider.post("/agents", body)
    assert agent["status"] == "Disconnected"
    assert agent["tags"] == ["x"]
    world.consumer.post("/agents", body, expect=403)
    world.consumer.get(f"/agents/{agent['id']}", expect=404)
    world.agent.get("/agents", expect=403)
    world.admin.post("/agents", {**body, "agentTypeId": world.provider_id}, expect=400)
    world.admin.post("/agents", {**body, "providerId": world.agent_type_id}, expect=400)


def test_a_configuration_follows_the_schema_of_the_type(world: Scenario) -> None:
    agent_type = world.agent_type(configurationSchema=SCHEMA)
    body = {"name": "a", "providerId": world.provider_id, "agentTypeId": agent_type["id"]}
    refused = world.provider.post("/agents", {**body, "configuration": {"endpoint": "ftp", "x": 1}}, expect=400)
    assert [fault["path"] for fault in refused["errors"]] == ["configuration.x", "configuration.endpoint"]
    given = {"endpoint": "https://e", "password": "canary-conf"}
    agent = world.provider.post("/agents", {**body, "configuration": given})
    assert agent["configuration"]["retries"] == 3
    assert agent["configuration"]["password"].startswith("vault://")
    kept = agent["configuration"]["password"]
    changed = world.provider.patch(f"/agents/{agent['id']}", {"configuration": {"retries": 5, "password": kept}})
    assert changed["configuration"] == {"endpoint": "https://e", "retries": 5, "password": kept}
    again = world.provider.patch(f"/agents/{agent['id']}", {"configuration": {"password": "canary-conf"}})
    assert again["configuration"]["password"] == kept
    other = world.provider.patch(f"/agents/{agent['id']}", {"configuration": {"password": "canary-new"}})
    assert other["configuration"]["password"] != kept
    assert "canary" not in str(world.admin.get(f"/events?entityId={agent['id']}"))


def test_a_configuration_schema_knows_no_pools_states_or_references(world: Scenario) -> None:
    for definition in (
        {"type": "reference"},
        {"type": "string", "generator": {"type": "pool", "config": {"poolType": "x"}}},
        {"type": "string", "authorizers": [{"type": "state", "config": {"allowedStates": ["New"]}}]},
    ):
        body = {"name": unique("t"), "configurationSchema": {"x": definition}}
        refused = world.admin.post("/agent-types", body, expect=400)
        assert refused["errors"][0]["path"].startswith("configurationSchema.x")


def test_an_agent_type_names_service_types_that_exist(world: Scenario) -> None:
    made = world.service_type()
    world.admin.post("/agent-types", {"name": unique("t"), "serviceTypeIds": [world.provider_id]}, expect=400)
    world.admin.post("/agent-types", {"name": unique("t"), "serviceTypeIds": [made["id"]]})
    assert world.admin.delete(f"/service-types/{made['id']}", expect=409)["dependants"].keys() == {"agentTypes"}
    name = unique("t")
    world.admin.post("/agent-types", {"name": name})
    assert world.admin.post("/agent-types", {"name": name}, expect=409)["code"] == "duplicate"


def test_an_agent_tells_its_own_status(world: Scenario) -> None:
    assert world.agent.get("/agents/me")["id"] == world.agent_id
    assert world.agent.put("/agents/me/status", {"status": "Error"})["status"] == "Error"
    before = len(world.admin.get(f"/events?entityId={world.agent_id}&pageSize=100")["items"])
    world.agent.put("/agents/me/status", {"status": "Error"})
    assert len(world.admin.get(f"/events?entityId={world.agent_id}&pageSize=100")["items"]) == before
    world.agent.put("/agents/me/status", {"status": "Disabled"}, expect=403)
    world.agent.put("/agents/me/status", {"status": "Happy"}, expect=400)
    world.provider.put("/agents/me/status", {"status": "Error"}, expect=403)


def test_any_request_is_a_sign_of_life_and_a_disabled_agent_is_refused(world: Scenario) -> None:
    assert world.admin.get(f"/agents/{world.agent_id}")["status"] == "Disconnected"
    world.agent.get("/service-types")
    assert world.admin.get(f"/agents/{world.agent_id}")["status"] == "Connected"
    world.provider.patch(f"/agents/{world.agent_id}", {"status": "Disabled"})
    assert world.agent.get("/service-types", expect=403)["code"] == "disabled"


def test_a_code_lets_exactly_one_program_in(server: Server, world: Scenario) -> None:
    world.stranger.post(f"/agents/{world.agent_id}/enrolment-codes", expect=404)
    code = world.provider.post(f"/agents/{world.agent_id}/enrolment-codes")
    anonymous = Client(server.url)
    with ThreadPoolExecutor(4) as threads:
        tries = list(threads.map(lambda _: anonymous.call("POST", "/api/v1/enrol", {"code": code["code"]}), range(4)))
    won = [each for each in tries if each.status == 201]
    assert [each.status for each in tries if each.status != 201] == [403] * 3
    assert won[0].body["agentId"] == world.agent_id
    assert world.admin.as_token(won[0].body["token"]).get("/agents/me")["id"] == world.agent_id
    tokens = world.admin.get(f"/tokens?agentId={world.agent_id}")["items"]
    assert [token["expireAt"] for token in tokens if token["name"].startswith("enrolled")] == [None]


def test_guessing_codes_is_slowed_down(server: Server) -> None:
    anonymous = Client(server.url)
    statuses = [anonymous.call("POST", "/api/v1/enrol", {"code": f"guess{number}"}).status for number in range(14)]
    assert statuses[-1] == 429


def test_a_group_belongs_to_its_consumer(world: Scenario) -> None:
    group = world.consumer.post("/service-groups", {"name": "g", "consumerId": world.consumer_id})
    world.consumer.post("/service-groups", {"name": "g", "consumerId": world.provider_id}, expect=403)
    world.admin.post("/service-groups", {"name": "g", "consumerId": group["id"]}, expect=400)
    world.stranger.get(f"/service-groups/{group['id']}", expect=404)
    assert world.consumer.patch(f"/service-groups/{group['id']}", {"name": "h"})["name"] == "h"
    assert world.stranger.get("/service-groups")["items"] == []
    world.consumer.delete(f"/service-groups/{group['id']}")


def test_options_are_offered_by_providers_and_seen_by_consumers_once_enabled(world: Scenario) -> None:
    kind = unique("os").replace("-", "_")
    option_type = world.admin.post("/service-option-types", {"name": "OS", "type": kind, "description": "d"})
    world.admin.post("/service-option-types", {"name": "OS", "type": kind}, expect=409)
    world.admin.post("/service-option-types", {"name": "OS", "type": "a b"}, expect=400)
    world.provider.post("/service-option-types", {"name": "OS", "type": unique("x")}, expect=403)
    body = {
        "providerId": world.provider_id,
        "serviceOptionTypeId": option_type["id"],
        "name": "U",
        "value": {"a": [1]},
    }
    option = world.provider.post("/service-options", body)
    assert (option["enabled"], option["displayOrder"], option["value"]) == (True, 0, {"a": [1]})
    named = {
        "providerId": world.provider_id,
        "serviceOptionType": kind,
        "name": "V",
        "value": False,
        "enabled": False,
    }
    hidden = world.provider.post("/service-options", named)
    assert hidden["serviceOptionTypeId"] == option_type["id"]
    assert hidden["value"] is False
    world.provider.post("/service-options", {**named, "value": None}, expect=400)
    world.consumer.post("/service-options", body, expect=403)
    query = f"?serviceOptionTypeId={option_type['id']}"
    assert [each["id"] for each in world.consumer.get(f"/service-options{query}")["items"]] == [option["id"]]
    world.consumer.get(f"/service-options/{hidden['id']}", expect=404)
    world.consumer.patch(f"/service-options/{option['id']}", {"name": "x"}, expect=404)
    assert len(world.agent.get(f"/service-options{query}")["items"]) == 2
    assert len(world.provider.get(f"/service-options{query}&enabled=false")["items"]) == 1
    world.provider.patch(f"/service-options/{hidden['id']}", {"enabled": True, "value": "y"})
    assert world.consumer.get(f"/service-options/{hidden['id']}")["value"] == "y"
    assert world.admin.delete(f"/service-option-types/{option_type['id']}", expect=409)["code"] == "in_use"
    world.provider.delete(f"/service-options/{hidden['id']}")
    world.provider.delete(f"/service-options/{option['id']}")
    world.admin.delete(f"/service-option-types/{option_type['id']}")
