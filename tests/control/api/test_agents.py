"""Agents, agent types, configuration and enrolment; service groups and service options."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from control_plane import Client, Reply, Server, running
from scenario import Scenario, unique

SCHEMA = {
    "endpoint": {"type": "string", "required": True, "validators": [{"type": "pattern", "pattern": "^https://"}]},
    "retries": {"type": "integer", "default": 3},
    "password": {"type": "string", "secret": {"type": "persistent"}},
}


def test_a_provider_creates_its_agents(scenario: Scenario) -> None:
    body = {"name": "a", "providerId": scenario.provider_id, "agentTypeId": scenario.agent_type_id, "tags": ["x"]}
    agent = scenario.provider.post("/agents", body)
    assert agent["status"] == "New"
    assert agent["tags"] == ["x"]
    scenario.consumer.post("/agents", body, expect=403)
    scenario.consumer.get(f"/agents/{agent['id']}", expect=404)
    scenario.agent.get("/agents", expect=403)
    scenario.admin.post("/agents", {**body, "agentTypeId": scenario.provider_id}, expect=400)
    scenario.admin.post("/agents", {**body, "providerId": scenario.agent_type_id}, expect=400)


def test_a_configuration_is_validated_by_the_schema_of_the_agent_type(scenario: Scenario) -> None:
    agent_type = scenario.agent_type(configurationSchema=SCHEMA)
    body = {"name": "a", "providerId": scenario.provider_id, "agentTypeId": agent_type["id"]}
    refused = scenario.provider.post("/agents", {**body, "configuration": {"endpoint": "ftp", "x": 1}}, expect=400)
    assert [fault["path"] for fault in refused["errors"]] == ["configuration.x", "configuration.endpoint"]
    configuration = {"endpoint": "https://e", "password": "canary-conf"}
    agent = scenario.provider.post("/agents", {**body, "configuration": configuration})
    assert agent["configuration"]["retries"] == 3
    assert agent["configuration"]["password"].startswith("vault://")
    kept = agent["configuration"]["password"]
    changed = scenario.provider.patch(f"/agents/{agent['id']}", {"configuration": {"retries": 5, "password": kept}})
    assert changed["configuration"] == {"endpoint": "https://e", "retries": 5, "password": kept}
    again = scenario.provider.patch(f"/agents/{agent['id']}", {"configuration": {"password": "canary-conf"}})
    assert again["configuration"]["password"] not in (kept, "canary-conf")
    other = scenario.provider.patch(f"/agents/{agent['id']}", {"configuration": {"password": "canary-new"}})
    assert other["configuration"]["password"] != kept
    assert "canary" not in str(scenario.admin.get(f"/events?entityId={agent['id']}"))


def test_a_configuration_schema_refuses_states_and_references(scenario: Scenario) -> None:
    for definition in (
        {"type": "reference"},
        {"type": "string", "authorizers": [{"type": "state", "config": {"allowedStates": ["New"]}}]},
    ):
        body = {"name": unique("t"), "configurationSchema": {"x": definition}}
        refused = scenario.admin.post("/agent-types", body, expect=400)
        assert refused["errors"][0]["path"].startswith("configurationSchema.x")


def test_an_agent_type_refers_to_existing_service_types(scenario: Scenario) -> None:
    made = scenario.service_type()
    scenario.admin.post("/agent-types", {"name": unique("t"), "serviceTypeIds": [scenario.provider_id]}, expect=400)
    scenario.admin.post("/agent-types", {"name": unique("t"), "serviceTypeIds": [made["id"]]})
    assert scenario.admin.delete(f"/service-types/{made['id']}", expect=409)["dependants"].keys() == {"agentTypes"}
    name = unique("t")
    scenario.admin.post("/agent-types", {"name": name})
    assert scenario.admin.post("/agent-types", {"name": name}, expect=409)["code"] == "duplicate"


def test_an_agent_reports_its_status(scenario: Scenario) -> None:
    assert scenario.agent.get("/agents/me")["id"] == scenario.agent_id
    assert scenario.agent.put("/agents/me/status", {"status": "Error"})["status"] == "Error"
    before = len(scenario.admin.get(f"/events?entityId={scenario.agent_id}&pageSize=100")["items"])
    scenario.agent.put("/agents/me/status", {"status": "Error"})
    assert len(scenario.admin.get(f"/events?entityId={scenario.agent_id}&pageSize=100")["items"]) == before
    scenario.agent.put("/agents/me/status", {"status": "Disabled"}, expect=403)
    scenario.agent.put("/agents/me/status", {"status": "Happy"}, expect=400)
    scenario.provider.put("/agents/me/status", {"status": "Error"}, expect=403)


def test_an_agent_reports_facts_about_its_host(scenario: Scenario) -> None:
    scenario.agent.get("/agents/me")
    events = f"/events?entityId={scenario.agent_id}&pageSize=1"
    before = scenario.admin.get(events)["totalItems"]
    facts = {"hostname": "web1", "cpus": 8, "addresses": ["192.0.2.7"], "clockOffsetSeconds": 2}
    scenario.agent.put("/agents/me/status", {"status": "Connected", "version": "0.2.0", "facts": facts})
    for client in (scenario.admin, scenario.provider):
        shown = client.get(f"/agents/{scenario.agent_id}")
        assert (shown["version"], shown["facts"]) == ("0.2.0", facts)
    scenario.consumer.get(f"/agents/{scenario.agent_id}", expect=404)
    # A status without facts keeps them; facts are no event.
    scenario.agent.put("/agents/me/status", {"status": "Connected"})
    assert scenario.admin.get(f"/agents/{scenario.agent_id}")["facts"] == facts
    assert scenario.admin.get(events)["totalItems"] == before
    large = {"status": "Connected", "facts": {"text": "x" * 17_000}}
    assert scenario.agent.put("/agents/me/status", large, expect=400)["code"] == "too_large"


def test_any_request_connects_an_agent_and_a_disabled_agent_is_refused(scenario: Scenario) -> None:
    assert scenario.admin.get(f"/agents/{scenario.agent_id}")["status"] == "New"
    scenario.agent.get("/service-types")
    assert scenario.admin.get(f"/agents/{scenario.agent_id}")["status"] == "Connected"
    scenario.provider.patch(f"/agents/{scenario.agent_id}", {"status": "Disabled"})
    assert scenario.agent.get("/service-types", expect=403)["code"] == "disabled"


@pytest.mark.parametrize("database", ["sqlite", "postgresql"])
def test_an_enrolment_code_enrols_exactly_one_program(
    database: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    url = request.getfixturevalue("postgresql").new_database() if database == "postgresql" else None
    # Of its own: on a shared server, wrong codes of other tests may have reached the limit of this address.
    with running(tmp_path / "data", database_url=url) as server:
        scenario = Scenario(server.admin)
        scenario.stranger.post(f"/agents/{scenario.agent_id}/enrolment-codes", expect=404)
        code = scenario.provider.post(f"/agents/{scenario.agent_id}/enrolment-codes")
        anonymous, body = Client(server.url), {"code": code["code"]}
        with ThreadPoolExecutor(4) as threads:
            tries = list(threads.map(lambda _: anonymous.call("POST", "/api/v1/enrol", body), range(4)))
        enrolled = [each for each in tries if each.status == 201]
        assert [each.status for each in tries if each.status != 201] == [403] * 3
        assert enrolled[0].body["agentId"] == scenario.agent_id
        assert scenario.admin.as_token(enrolled[0].body["token"]).get("/agents/me")["id"] == scenario.agent_id
        tokens = scenario.admin.get(f"/tokens?agentId={scenario.agent_id}")["items"]
        assert ["expireAt" in token for token in tokens if token["name"].startswith("enrolled")] == [False]


def guess(server: Server, number: int, **headers: str) -> Reply:
    return Client(server.url).call("POST", "/api/v1/enrol", {"code": f"guess{number}"}, headers=headers)


def test_after_ten_wrong_enrolment_codes_only_wrong_ones_are_limited(tmp_path: Path) -> None:
    # Of its own: the limit holds for a minute, for all tests with this address.
    with running(tmp_path / "data") as server:
        scenario = Scenario(server.admin)
        replies = [guess(server, number) for number in range(14)]
        assert replies[-1].status == 429
        assert replies[-1].body["code"] == "too_many_failures"
        assert int(replies[-1].headers["retry-after"]) <= 60
        code = scenario.provider.post(f"/agents/{scenario.agent_id}/enrolment-codes")["code"]
        assert Client(server.url).post("/enrol", {"code": code})["agentId"] == scenario.agent_id
        # A used code is a wrong one.
        assert Client(server.url).call("POST", "/api/v1/enrol", {"code": code}).status == 429


def test_a_forwarded_address_counts_only_from_a_trusted_proxy(tmp_path: Path) -> None:
    forwarded = [{"X-Forwarded-For": f"198.51.100.{number}"} for number in range(14)]
    with running(tmp_path / "a") as server:
        found = [guess(server, 0, **headers).status for headers in forwarded]
        assert found[-1] == 429
    trusting = {"MAINSTAY_TRUSTED_PROXIES": "10.0.0.0/8, 127.0.0.1"}
    with running(tmp_path / "b", environment=trusting) as server:
        assert {guess(server, 0, **headers).status for headers in forwarded} == {403}
        # The address that the proxy saw counts, not what the client wrote before it.
        written = [{"X-Forwarded-For": f"198.51.100.{number}, 203.0.113.9"} for number in range(14)]
        assert [guess(server, 0, **headers).status for headers in written][-1] == 429
        assert guess(server, 0, **forwarded[0]).status == 403


def test_a_group_belongs_to_its_consumer(scenario: Scenario) -> None:
    group = scenario.consumer.post("/service-groups", {"name": "g", "consumerId": scenario.consumer_id})
    scenario.consumer.post("/service-groups", {"name": "g", "consumerId": scenario.provider_id}, expect=403)
    scenario.admin.post("/service-groups", {"name": "g", "consumerId": group["id"]}, expect=400)
    scenario.stranger.get(f"/service-groups/{group['id']}", expect=404)
    assert scenario.consumer.patch(f"/service-groups/{group['id']}", {"name": "h"})["name"] == "h"
    assert scenario.stranger.get("/service-groups")["items"] == []
    scenario.consumer.delete(f"/service-groups/{group['id']}")


def test_consumers_see_only_enabled_options_of_providers(scenario: Scenario) -> None:
    kind = unique("os").replace("-", "_")
    option_type = scenario.admin.post("/service-option-types", {"name": "OS", "type": kind, "description": "d"})
    scenario.admin.post("/service-option-types", {"name": "OS", "type": kind}, expect=409)
    scenario.admin.post("/service-option-types", {"name": "OS", "type": "a b"}, expect=400)
    scenario.provider.post("/service-option-types", {"name": "OS", "type": unique("x")}, expect=403)
    body = {
        "providerId": scenario.provider_id,
        "serviceOptionTypeId": option_type["id"],
        "name": "U",
        "value": {"a": [1]},
    }
    option = scenario.provider.post("/service-options", body)
    assert (option["enabled"], option["displayOrder"], option["value"]) == (True, 0, {"a": [1]})
    named = {
        "providerId": scenario.provider_id,
        "serviceOptionType": kind,
        "name": "V",
        "value": False,
        "enabled": False,
    }
    hidden = scenario.provider.post("/service-options", named)
    assert hidden["serviceOptionTypeId"] == option_type["id"]
    assert hidden["value"] is False
    scenario.provider.post("/service-options", {**named, "value": None}, expect=400)
    scenario.consumer.post("/service-options", body, expect=403)
    query = f"?serviceOptionTypeId={option_type['id']}"
    assert scenario.consumer.get(f"/service-options{query}")["items"] == []
    scenario.new_agent()
    assert [each["id"] for each in scenario.consumer.get(f"/service-options{query}")["items"]] == [option["id"]]
    scenario.consumer.get(f"/service-options/{hidden['id']}", expect=404)
    scenario.consumer.patch(f"/service-options/{option['id']}", {"name": "x"}, expect=403)
    assert len(scenario.agent.get(f"/service-options{query}")["items"]) == 2
    assert len(scenario.provider.get(f"/service-options{query}&enabled=false")["items"]) == 1
    scenario.provider.patch(f"/service-options/{hidden['id']}", {"enabled": True, "value": "y"})
    assert scenario.consumer.get(f"/service-options/{hidden['id']}")["value"] == "y"
    assert scenario.admin.delete(f"/service-option-types/{option_type['id']}", expect=409)["code"] == "in_use"
    scenario.provider.delete(f"/service-options/{hidden['id']}")
    scenario.provider.delete(f"/service-options/{option['id']}")
    scenario.admin.delete(f"/service-option-types/{option_type['id']}")
