"""Secrets: sealed on arrival, opened only by their agent, deleted when no longer needed; and key rotation."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import seed_text
from control_plane import Server, running
from fork_server import run_program
from scenario import Scenario

SIMPLE: Any = seed_text.block("Example 1: Simple VM Lifecycle")
ADVANCED: Any = seed_text.block("Example 2: Advanced Lifecycle with Error Handling")
BLOCK: Any = seed_text.block("Property Secrets", "Service type with secrets")
WEB: Any = BLOCK["propertySchema"]
PLAIN = {
    "appName": "MyApp",
    "apiKey": "canary-key-9c1",
    "initialPassword": "canary-pass-9c1",
    "databaseConfig": {"host": "db.example.com", "password": "canary-db-9c1"},
}


def reveal(scenario: Scenario, reference: str, expect: int = 200) -> Any:
    return scenario.agent.get(f"/vault/secrets/{reference.removeprefix('vault://')}", expect=expect)


def test_secrets_of_the_web_application_of_the_seed(scenario: Scenario) -> None:
    service = scenario.order(scenario.service_type(WEB, SIMPLE), PLAIN)
    kept = service["properties"]
    references = [kept["apiKey"], kept["initialPassword"], kept["databaseConfig"]["password"]]
    assert all(reference.startswith("vault://") for reference in references)
    assert kept["databaseConfig"]["port"] == 5432
    values = [reveal(scenario, reference)["value"] for reference in references]
    assert values == ["canary-key-9c1", "canary-pass-9c1", "canary-db-9c1"]
    for client in (scenario.admin, scenario.consumer, scenario.provider):
        client.get(f"/vault/secrets/{references[0][8:]}", expect=403)
    other = scenario.token("agent", scenario.new_agent()["id"])
    other.get(f"/vault/secrets/{references[0][8:]}", expect=404)
    done = scenario.complete(service)
    assert "initialPassword" not in done["properties"]
    reveal(scenario, references[1], expect=404)
    assert reveal(scenario, references[0])["value"] == "canary-key-9c1"
    scenario.consumer.delete(f"/services/{service['id']}")
    ended = scenario.complete(service)
    assert ended["properties"] == {"appName": "MyApp", "databaseConfig": {"host": "db.example.com", "port": 5432}}
    missing = reveal(scenario, references[0], expect=404)
    assert missing["error"] == f"secret with reference {references[0][8:]} not found"


def test_ephemeral_secrets_last_for_the_whole_run(scenario: Scenario) -> None:
    schema = {"once": {"type": "string", "required": True, "secret": {"type": "ephemeral"}}}
    service = scenario.order(scenario.service_type(schema, ADVANCED), {"once": "canary-once"})
    reference = service["properties"]["once"]
    assert scenario.complete(service)["properties"]["once"] == reference
    assert reveal(scenario, reference)["value"] == "canary-once"
    job = scenario.next_job(service)
    scenario.agent.post(f"/jobs/{job['id']}/release", expect=204)
    assert reveal(scenario, reference)["value"] == "canary-once"
    assert "once" not in scenario.fail(service, "boom")["properties"]
    reveal(scenario, reference, expect=404)


def test_a_reference_may_only_be_sent_back_where_it_is_stored(scenario: Scenario) -> None:
    schema = {
        "a": {"type": "string", "secret": {"type": "persistent"}},
        "b": {"type": "string", "secret": {"type": "persistent"}},
        "n": {"type": "integer"},
    }
    kind = scenario.service_type(schema, SIMPLE)
    service = scenario.order(kind, {"a": "canary-a", "b": "canary-b"})
    scenario.complete(service)
    a, b = service["properties"]["a"], service["properties"]["b"]
    path = f"/services/{service['id']}"
    for properties in ({"a": b}, {"a": "vault://0000"}):
        scenario.consumer.patch(path, {"properties": properties}, expect=400)
    body = {"serviceTypeId": kind["id"], "name": "x", "groupId": scenario.group_id, "agentId": scenario.agent_id}
    scenario.consumer.post("/services", {**body, "properties": {"a": a}}, expect=400)
    scenario.consumer.patch(path, {"properties": {"a": a, "b": b, "n": 1}})
    assert scenario.complete(service)["properties"] == {"a": a, "b": b, "n": 1}
    # A plain value is a new secret, also if it is the stored one.
    scenario.consumer.patch(path, {"properties": {"b": "canary-b"}})
    assert scenario.complete(service)["properties"]["b"] != b


def test_the_old_value_is_kept_until_the_update_succeeds(scenario: Scenario) -> None:
    schema = {"a": {"type": "json", "secret": {"type": "persistent"}}}
    service = scenario.order(scenario.service_type(schema, SIMPLE), {"a": {"k": [1, None]}})
    scenario.complete(service)
    old = service["properties"]["a"]
    path = f"/services/{service['id']}"
    scenario.consumer.patch(path, {"properties": {"a": 42}})
    job = scenario.next_job(service)
    new = job["params"]["a"]
    assert reveal(scenario, old)["value"] == {"k": [1, None]}
    assert reveal(scenario, new)["value"] == 42
    scenario.agent.post(f"/jobs/{job['id']}/fail", {"errorMessage": "x"}, expect=204)
    reveal(scenario, new, expect=404)
    scenario.consumer.patch(path, {"properties": {"a": 43}})
    done = scenario.complete(service)
    reveal(scenario, old, expect=404)
    assert reveal(scenario, done["properties"]["a"])["value"] == 43


def test_secrets_in_arrays_are_sealed_one_by_one(scenario: Scenario) -> None:
    item = {
        "type": "object",
        "properties": {"name": {"type": "string"}, "password": {"type": "string", "secret": {"type": "persistent"}}},
    }
    service = scenario.order(
        scenario.service_type({"users": {"type": "array", "items": item}}, SIMPLE),
        {"users": [{"name": "a", "password": "canary-1"}, {"name": "b", "password": "canary-2"}]},
    )
    found = [reveal(scenario, user["password"])["value"] for user in service["properties"]["users"]]
    assert found == ["canary-1", "canary-2"]


def test_an_agent_reads_the_secrets_of_its_own_configuration(scenario: Scenario) -> None:
    agent_type = scenario.agent_type(
        configurationSchema={"key": {"type": "string", "secret": {"type": "persistent"}}}
    )
    agent = scenario.new_agent(agentTypeId=agent_type["id"], configuration={"key": "canary-own"})
    reference = agent["configuration"]["key"]
    own = scenario.token("agent", agent["id"])
    assert own.get(f"/vault/secrets/{reference[8:]}")["value"] == "canary-own"
    scenario.agent.get(f"/vault/secrets/{reference[8:]}", expect=404)


def test_readings_are_recorded_once_for_each_job(scenario: Scenario) -> None:
    schema = {"a": {"type": "string", "secret": {"type": "persistent"}}}
    service = scenario.order(scenario.service_type(schema, SIMPLE), {"a": "canary-t"})
    reference = service["properties"]["a"]
    for _ in range(3):
        reveal(scenario, reference)
    scenario.complete(service)
    for _ in range(3):
        reveal(scenario, reference)
    events = scenario.consumer.get(f"/events?entityId={service['id']}&type=vault")["items"]
    assert [bool(event["properties"]["jobId"]) for event in events] == [True, False]
    assert "canary" not in str(events)


def test_no_secret_appears_in_responses_logs_or_files(server: Server, scenario: Scenario) -> None:
    service = scenario.order(scenario.service_type(WEB, SIMPLE), PLAIN)
    scenario.consumer.patch(f"/services/{service['id']}", {"properties": {"apiKey": 5}}, expect=400)
    scenario.complete(service)
    seen = [
        str(scenario.admin.call("GET", path).body)
        for path in (
            f"/api/v1/services/{service['id']}",
            f"/api/v1/jobs?serviceId={service['id']}",
            "/api/v1/events?pageSize=100&sort=-createdAt",
            "/metrics",
        )
    ]
    seen.append(server.log.read_text())
    assert "canary" not in "".join(seen)
    for file in server.data_dir.glob("mainstay.db*"):
        assert b"canary" not in file.read_bytes(), file.name


def test_without_a_vault_secrets_are_refused(tmp_path: Path) -> None:
    with running(tmp_path / "data", environment={"MAINSTAY_VAULT": "off"}) as server:
        scenario = Scenario(server.admin)
        kind = scenario.service_type({"a": {"type": "string", "secret": {"type": "persistent"}}}, SIMPLE)
        body = {"serviceTypeId": kind["id"], "name": "x", "groupId": scenario.group_id, "agentId": scenario.agent_id}
        refused = scenario.consumer.post("/services", {**body, "properties": {"a": "x"}}, expect=400)
        assert refused["errors"] == [{"path": "a", "message": "vault is not configured"}]


def test_the_key_cannot_be_rotated_while_a_server_runs(tmp_path: Path) -> None:
    data = tmp_path / "data"
    with running(data):
        key = (data / "vault.key").read_text()
        refused = run_program(["vault", "rotate", "--data-dir", data])
        assert (refused.returncode, (data / "vault.key").read_text()) == (2, key)
        assert "a server uses it; stop the server first" in refused.stderr


def test_a_wrong_key_prevents_the_start_and_a_rotated_key_does_not(tmp_path: Path) -> None:
    data = tmp_path / "data"
    with running(data) as server:
        scenario = Scenario(server.admin)
        kind = scenario.service_type({"a": {"type": "string", "secret": {"type": "persistent"}}}, SIMPLE)
        reference = scenario.order(kind, {"a": "canary-r"})["properties"]["a"]
        agent = scenario.agent.token
        server.stop()
    first = (data / "vault.key").read_text()
    rotated = run_program(["vault", "rotate", "--data-dir", data])
    assert rotated.returncode == 0, rotated.stderr
    assert "1 secret" in rotated.stdout
    assert (data / "vault.key").read_text().splitlines() != first.splitlines()
    assert first.strip() not in (data / "vault.key").read_text()
    assert (data / "vault.key").stat().st_mode & 0o777 == 0o600
    with running(data) as server:
        client = server.admin.as_token(str(agent))
        assert client.get(f"/vault/secrets/{reference[8:]}")["value"] == "canary-r"
        server.stop()
    (data / "vault.key").write_text("cd" * 32)
    refused = run_program(["server", "--port", "0", "--data-dir", data])
    assert refused.returncode == 2
    assert "vault key" in refused.stderr
