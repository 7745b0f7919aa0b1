"""Config pools: who owns which type, and values that go into configurations of agents."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

from control_plane import Client
from scenario import Scenario, unique


def pool(client: Client, kind: str, participant_id: str | None, values: Any = (), *, expect: int = 201) -> Any:
    body = {"name": "p", "type": kind, "propertyType": "integer", "generatorType": "list"}
    found = client.post("/config-pools", {**body, "participantId": participant_id}, expect=expect)
    for value in values:
        client.post("/config-pool-values", {"name": str(value), "value": value, "configPoolId": found["id"]})
    return found


def type_with_pool(scenario: Scenario, kind: str, **more: Any) -> Any:
    port = {"type": "integer", "generator": {"type": "pool", "config": {"poolType": kind}}}
    return scenario.agent_type(configurationSchema={"port": port, "label": {"type": "string"}, **more})


def agent_of(scenario: Scenario, agent_type: Any, client: Client | None = None, **more: Any) -> Any:
    body = {"name": unique("agent"), "providerId": scenario.provider_id, "agentTypeId": agent_type["id"]}
    expect = more.pop("expect", 201)
    return (client or scenario.provider).post("/agents", {**body, **more}, expect=expect)


def values_of(client: Client, found: Any) -> dict[int, Any]:
    items = client.get(f"/config-pool-values?configPoolId={found['id']}&pageSize=100")["items"]
    return {item["value"]: item for item in items}


def test_an_agent_takes_a_value_of_its_provider_keeps_it_and_releases_it(scenario: Scenario) -> None:
    kind = unique("port")
    found = pool(scenario.provider, kind, scenario.provider_id, [7001, 7002])
    agent = agent_of(scenario, type_with_pool(scenario, kind))
    assert agent["configuration"] == {"port": 7001}
    held = values_of(scenario.provider, found)[7001]
    assert (held["agentId"], held["propertyName"]) == (agent["id"], "port")
    assert held["allocatedAt"]
    changed = scenario.provider.patch(f"/agents/{agent['id']}", {"configuration": {"label": "a"}})
    assert changed["configuration"] == {"port": 7001, "label": "a"}
    changed = scenario.provider.patch(f"/agents/{agent['id']}", {"configuration": {"port": 7001}})
    assert changed["configuration"]["port"] == 7001
    scenario.provider.delete(f"/agents/{agent['id']}")
    freed = values_of(scenario.provider, found)[7001]
    assert (freed["agentId"], freed["propertyName"], freed["allocatedAt"]) == (None, None, None)


def test_a_replaced_value_returns_to_the_pool(scenario: Scenario) -> None:
    kind = unique("port")
    found = pool(scenario.provider, kind, scenario.provider_id, [1, 2, 3])
    agent = agent_of(scenario, type_with_pool(scenario, kind), configuration={"port": 2})
    assert agent["configuration"] == {"port": 2}
    changed = scenario.provider.patch(f"/agents/{agent['id']}", {"configuration": {"port": 3}})
    assert changed["configuration"] == {"port": 3}
    assert [value for value, row in values_of(scenario.provider, found).items() if row["agentId"]] == [3]
    refused = scenario.provider.patch(f"/agents/{agent['id']}", {"configuration": {"port": 9}}, expect=400)
    assert refused["errors"] == [{"path": "configuration.port", "message": f"failed to allocate from pool {kind}"}]
    assert [value for value, row in values_of(scenario.provider, found).items() if row["agentId"]] == [3]


def test_an_exhausted_or_missing_pool_refuses_the_agent(scenario: Scenario) -> None:
    kind = unique("port")
    agent_type = type_with_pool(scenario, kind)
    refused = agent_of(scenario, agent_type, expect=400)
    assert refused["errors"][0]["message"] == f"no config pool found with type {kind}"
    pool(scenario.provider, kind, scenario.provider_id, [1])
    agent_of(scenario, agent_type)
    refused = agent_of(scenario, agent_type, expect=400)
    assert refused["errors"] == [{"path": "configuration.port", "message": f"failed to allocate from pool {kind}"}]


def test_a_refused_agent_leaves_its_value_free(scenario: Scenario) -> None:
    kind = unique("port")
    found = pool(scenario.provider, kind, scenario.provider_id, [1])
    agent_of(scenario, type_with_pool(scenario, kind), configuration={"label": 5}, expect=400)
    assert values_of(scenario.provider, found)[1]["agentId"] is None


def test_a_pool_of_another_type_of_value_is_refused(scenario: Scenario) -> None:
    kind = unique("port")
    pool(scenario.provider, kind, scenario.provider_id, [1])
    text = {"type": "string", "generator": {"type": "pool", "config": {"poolType": kind}}}
    refused = agent_of(scenario, scenario.agent_type(configurationSchema={"port": text}), expect=400)
    assert "has type string but pool" in refused["errors"][0]["message"]


def test_only_granted_providers_and_admins_take_from_a_global_pool(scenario: Scenario) -> None:
    kind = unique("port")
    pool(scenario.admin, kind, None, [1, 2, 3])
    agent_type = type_with_pool(scenario, kind)
    refused = agent_of(scenario, agent_type, expect=400)
    assert refused["errors"][0]["message"] == f"no config pool found with type {kind}"
    assert agent_of(scenario, agent_type, scenario.admin, grant=False)["configuration"] == {"port": 1}
    agent_of(scenario, agent_type, expect=400)
    scenario.admin.patch(f"/agent-types/{agent_type['id']}", {"providerIds": [scenario.provider_id]})
    assert agent_of(scenario, agent_type)["configuration"] == {"port": 2}


def test_an_agent_never_takes_from_the_pool_of_another_participant(scenario: Scenario) -> None:
    kind, other = unique("port"), scenario.participant()
    pool(scenario.admin, kind, other, [1])
    refused = agent_of(scenario, type_with_pool(scenario, kind), scenario.admin, expect=400)
    assert refused["errors"][0]["message"] == f"no config pool found with type {kind}"


def test_a_type_exists_globally_or_with_participants(scenario: Scenario) -> None:
    kind, other = unique("port"), scenario.participant()
    pool(scenario.admin, kind, None)
    for client, owner in ((scenario.admin, None), (scenario.provider, scenario.provider_id), (scenario.admin, other)):
        refused = pool(client, kind, owner, expect=400)
        assert refused["error"].endswith("already exists in global scope")
    kind = unique("port")
    pool(scenario.provider, kind, scenario.provider_id)
    pool(scenario.admin, kind, other)
    for owner in (None, scenario.provider_id):
        refused = pool(scenario.admin, kind, owner, expect=400)
        assert refused["error"].endswith(f"already exists in participant {scenario.provider_id} scope")


def test_both_scopes_are_never_created_at_the_same_time(scenario: Scenario) -> None:
    for _ in range(5):
        kind = unique("port")
        body = {"name": "p", "type": kind, "propertyType": "integer", "generatorType": "list"}
        owners = [None, scenario.provider_id, None, scenario.provider_id, scenario.consumer_id]
        with ThreadPoolExecutor(5) as threads:
            list(
                threads.map(
                    lambda owner, body=body: scenario.admin.call(
                        "POST", "/api/v1/config-pools", {**body, "participantId": owner}
                    ),
                    owners,
                )
            )
        found = [item["participantId"] for item in scenario.admin.get(f"/config-pools?type={kind}")["items"]]
        assert found == [None] or (found and None not in found and len(set(found)) == len(found)), found


def test_many_agents_at_once_never_share_a_value(scenario: Scenario) -> None:
    kind = unique("port")
    found = pool(scenario.provider, kind, scenario.provider_id, range(12))
    agent_type = type_with_pool(scenario, kind)
    body = {"name": "a", "providerId": scenario.provider_id, "agentTypeId": agent_type["id"]}
    with ThreadPoolExecutor(8) as threads:
        replies = list(threads.map(lambda _: scenario.provider.call("POST", "/api/v1/agents", body), range(12)))
    created = [reply.body for reply in replies if reply.status == 201]
    ports = [agent["configuration"]["port"] for agent in created]
    assert len(set(ports)) == len(ports) == 12, [reply.status for reply in replies]
    assert {row["agentId"] for row in values_of(scenario.provider, found).values()} == {a["id"] for a in created}
    assert scenario.provider.call("POST", "/api/v1/agents", body).status == 400


def test_pools_of_others_and_global_ones_are_refused(scenario: Scenario) -> None:
    shared = pool(scenario.admin, unique("port"), None, [1])
    foreign = pool(scenario.provider, unique("port"), scenario.provider_id, [1])
    for found in (shared, foreign):
        path = f"/config-pools/{found['id']}"
        value = values_of(scenario.admin, found)[1]["id"]
        scenario.stranger.get(path, expect=403)
        scenario.stranger.patch(path, {"name": "n"}, expect=403)
        scenario.stranger.delete(path, expect=403)
        scenario.stranger.get(f"/config-pool-values/{value}", expect=403)
        scenario.stranger.delete(f"/config-pool-values/{value}", expect=403)
        wanted = {"name": "v", "value": 5, "configPoolId": found["id"]}
        scenario.stranger.post("/config-pool-values", wanted, expect=403)
    assert scenario.stranger.get("/config-pools")["items"] == []
    assert scenario.stranger.get("/config-pool-values")["items"] == []
    scenario.stranger.get(f"/config-pools/{scenario.provider_id}", expect=404)
    pool(scenario.stranger, unique("port"), None, expect=403)
    pool(scenario.stranger, unique("port"), scenario.provider_id, expect=403)
    scenario.agent.get("/config-pools", expect=403)


def test_an_allocated_value_and_its_pool_cannot_be_deleted(scenario: Scenario) -> None:
    kind = unique("port")
    found = pool(scenario.provider, kind, scenario.provider_id, [1, 2])
    agent = agent_of(scenario, type_with_pool(scenario, kind))
    values = values_of(scenario.provider, found)
    refused = scenario.provider.delete(f"/config-pool-values/{values[1]['id']}", expect=400)
    assert refused["code"] == "in_use"
    assert agent["id"] in refused["error"]
    scenario.provider.delete(f"/config-pool-values/{values[2]['id']}")
    refused = scenario.provider.delete(f"/config-pools/{found['id']}", expect=409)
    assert refused["dependants"] == {"agents": [agent["id"]]}
    scenario.provider.delete(f"/agents/{agent['id']}")
    scenario.provider.delete(f"/config-pools/{found['id']}")
    scenario.provider.get(f"/config-pools/{found['id']}", expect=404)


def test_a_participant_with_a_config_pool_cannot_be_deleted(scenario: Scenario) -> None:
    owner = scenario.participant()
    found = pool(scenario.admin, unique("port"), owner)
    refused = scenario.admin.delete(f"/participants/{owner}", expect=409)
    assert refused["dependants"] == {"configPools": [found["id"]]}
    scenario.admin.delete(f"/config-pools/{found['id']}")
    scenario.admin.delete(f"/participants/{owner}")


def test_values_are_checked_and_unique(scenario: Scenario) -> None:
    found = pool(scenario.provider, unique("port"), scenario.provider_id, [1])
    for value, status in (("text", 400), (1.5, 400), (True, 400), (1, 409), (1.0, 409), (2**53, 400)):
        body = {"name": "v", "value": value, "configPoolId": found["id"]}
        assert scenario.provider.call("POST", "/api/v1/config-pool-values", body).status == status, value


def test_a_pool_changes_its_name_and_configuration_only(scenario: Scenario) -> None:
    found = pool(scenario.provider, unique("port"), scenario.provider_id)
    path = f"/config-pools/{found['id']}"
    changed = scenario.provider.patch(path, {"name": "new", "generatorConfig": {"note": 1}})
    assert (changed["name"], changed["generatorConfig"]) == ("new", {"note": 1})
    scenario.provider.patch(path, {"type": "other"}, expect=400)
    scenario.provider.patch(path, {"participantId": scenario.consumer_id}, expect=400)
    scenario.provider.post(
        "/config-pools",
        {"name": "p", "type": "x", "propertyType": "integer", "generatorType": "subnet"},
        expect=400,
    )


def test_a_pool_cannot_put_a_reference_to_a_secret_into_a_configuration(scenario: Scenario) -> None:
    kind = unique("text")
    body = {"name": "p", "type": kind, "propertyType": "string", "generatorType": "list"}
    found = scenario.provider.post("/config-pools", {**body, "participantId": scenario.provider_id})
    scenario.provider.post("/config-pool-values", {"name": "v", "value": "vault://1", "configPoolId": found["id"]})
    text = {"type": "string", "generator": {"type": "pool", "config": {"poolType": kind}}}
    refused = agent_of(scenario, scenario.agent_type(configurationSchema={"x": text}), expect=400)
    assert [fault["path"] for fault in refused["errors"]] == ["configuration.x"]


def test_the_old_key_of_service_pools_is_refused_in_a_configuration(scenario: Scenario) -> None:
    body = {"name": unique("t"), "configurationSchema": {"port": {"type": "integer", "servicePoolType": "x"}}}
    refused = scenario.admin.post("/agent-types", body, expect=400)
    assert refused["errors"][0]["path"] == "configurationSchema.port.servicePoolType"
