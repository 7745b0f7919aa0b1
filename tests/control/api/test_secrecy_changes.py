"""Changes of a service type that make a property secret or plain, while services hold values."""

from __future__ import annotations

import gzip
import json
import subprocess
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

import seed_text
from control_plane import running
from database_rows import run_sql
from fork_server import run_program
from scenario import Scenario, unique

SIMPLE: Any = seed_text.block("Example 1: Simple VM Lifecycle")
TEXT = {"type": "string"}
SECRET = {"type": "string", "secret": {"type": "persistent"}}
ONCE = {"type": "string", "secret": {"type": "ephemeral"}}
PLAIN = "plain-Xw41"


def users(password: dict[str, Any]) -> dict[str, Any]:
    return {"type": "array", "items": {"type": "object", "properties": {"name": TEXT, "password": password}}}


def change(scenario: Scenario, kind: Any, schema: object, query: str = "", expect: int = 200) -> Any:
    return scenario.admin.patch(f"/service-types/{kind['id']}{query}", {"propertySchema": schema}, expect=expect)


def read(scenario: Scenario, reference: str, expect: int = 200) -> Any:
    return scenario.agent.get(f"/vault/secrets/{reference.removeprefix('vault://')}", expect=expect)


BEFORE = {"a": TEXT, "o": {"type": "object", "properties": {"pin": {"type": "integer"}}}, "users": users(TEXT)}
AFTER = {
    "a": SECRET,
    "o": {"type": "object", "properties": {"pin": {"type": "integer", "secret": {"type": "persistent"}}}},
    "users": users(SECRET),
}
VALUES = {
    "a": f"{PLAIN}-a",
    "o": {"pin": 471147},
    "users": [{"name": "x", "password": f"{PLAIN}-x"}, {"name": "y", "password": f"{PLAIN}-y"}],
}


def test_values_become_secret_only_with_force_and_are_sealed_then(scenario: Scenario) -> None:
    kind = scenario.service_type(BEFORE, SIMPLE)
    service = scenario.order(kind, VALUES)
    scenario.complete(service)
    for query, expect in (("", 409), ("?force=false", 409)):
        refused = change(scenario, kind, AFTER, query, expect)
        assert refused["code"] == "services_do_not_fit"
        assert [each["serviceId"] for each in refused["services"]] == [service["id"]]
        assert PLAIN not in str(refused)
    forecast = change(scenario, kind, AFTER, "?dryRun=true")
    assert (forecast["sealedSecrets"], forecast["deletedSecrets"]) == (4, 0)
    assert [(each["serviceId"], each["forceable"]) for each in forecast["misfits"]] == [(service["id"], True)]
    assert "users[1].password: a plain value becomes secret" in forecast["misfits"][0]["message"]
    assert scenario.service(service["id"])["properties"] == VALUES
    done = change(scenario, kind, AFTER, "?force=true")
    assert done["sealedSecrets"] == 4
    assert "deletedSecrets" not in done
    after = scenario.service(service["id"])
    assert after["version"] == service["version"] + 2
    kept = after["properties"]
    found = {
        "a": read(scenario, kept["a"])["value"],
        "o": {"pin": read(scenario, kept["o"]["pin"])["value"]},
        "users": [{**user, "password": read(scenario, user["password"])["value"]} for user in kept["users"]],
    }
    assert found == VALUES
    # The same change again finds nothing to do.
    assert "sealedSecrets" not in change(scenario, kind, AFTER)
    scenario.consumer.patch(f"/services/{service['id']}", {"properties": {"a": kept["a"], "o": {"pin": 1}}})
    assert scenario.complete(service)["properties"]["a"] == kept["a"]


def test_ended_jobs_conditions_and_instance_data_forget_what_became_secret(scenario: Scenario) -> None:
    kind = scenario.service_type({"a": TEXT, "b": TEXT}, SIMPLE)
    body = {"serviceTypeId": kind["id"], "name": "n", "groupId": scenario.group_id, "agentId": scenario.agent_id}
    key = {"Idempotency-Key": unique("key")}
    order = {**body, "properties": {"a": f"{PLAIN}-first", "b": "public"}}
    service = scenario.consumer.post("/services", order, headers=key)
    report = {"events": [{"diff": f"-old\n+password={PLAIN}-first"}, {"diff": "+kept"}], PLAIN + "-first": 1}
    scenario.complete(service, report=report, agentInstanceData={"copy": f"{PLAIN}-first", "id": 7})
    path = f"/services/{service['id']}"
    # A value that the service no longer has, from a failed update and from a completed one.
    scenario.consumer.patch(path, {"properties": {"a": f"{PLAIN}-second"}})
    scenario.fail(service, f"could not set {PLAIN}-second")
    scenario.consumer.patch(path, {"properties": {"a": f"{PLAIN}-third"}})
    scenario.complete(service)
    scenario.consumer.patch(path, {"properties": {"a": None}})
    scenario.complete(service)
    condition = {"type": "InSync", "status": "False", "reason": "Drifted", "message": f"was {PLAIN}-third"}
    scenario.agent.put(f"{path}/conditions", [{**condition, "consumerMessage": f"is {PLAIN}-third"}])
    assert "sealedSecrets" not in change(scenario, kind, {"a": SECRET, "b": TEXT})
    jobs = scenario.jobs(service)
    reports = [scenario.consumer.get(f"/jobs/{job['id']}/report", expect=200) for job in jobs[:1]]
    again = scenario.consumer.post("/services", order, headers=key)
    seen = str([jobs, reports, scenario.service(service["id"]), again])
    assert PLAIN not in seen
    assert reports == [{"events": [{"diff": "***"}, {"diff": "+kept"}], "***": 1}]
    assert [job["params"] for job in jobs] == [{"b": "public"}] * 4
    assert scenario.service(service["id"])["agentInstanceData"] == {"copy": "***", "id": 7}
    assert again["properties"] == {"b": "public"}


def test_a_service_with_an_active_job_prevents_the_change_even_with_force(scenario: Scenario) -> None:
    kind = scenario.service_type({"a": TEXT, "n": {"type": "integer"}}, SIMPLE)
    service = scenario.order(kind, {"a": PLAIN})
    for query in ("", "?force=true"):
        refused = change(scenario, kind, {"a": SECRET, "n": {"type": "integer"}}, query, expect=409)
        assert [each["forceable"] for each in refused["services"]] == [False]
        assert "active job (create)" in refused["services"][0]["message"]
    scenario.complete(service)
    scenario.consumer.patch(f"/services/{service['id']}", {"properties": {"n": 1}})
    change(scenario, kind, {"a": SECRET, "n": {"type": "integer"}}, "?force=true", expect=409)
    assert scenario.complete(service)["properties"] == {"a": PLAIN, "n": 1}
    assert change(scenario, kind, {"a": SECRET, "n": {"type": "integer"}}, "?force=true")["sealedSecrets"] == 1


def test_a_new_secret_property_needs_no_force_and_no_idle_services(scenario: Scenario) -> None:
    kind = scenario.service_type({"a": TEXT}, SIMPLE)
    service = scenario.order(kind, {"a": "x"})
    change(scenario, kind, {"a": TEXT, "key": SECRET})
    scenario.complete(service)


@pytest.mark.parametrize("after", [TEXT, ONCE, None], ids=["plain", "another type", "removed"])
def test_a_secret_is_deleted_only_with_force_when_it_stops_being_that_secret(
    scenario: Scenario, after: dict[str, Any] | None
) -> None:
    kind = scenario.service_type({"a": SECRET, "b": TEXT}, SIMPLE)
    service = scenario.order(kind, {"a": PLAIN, "b": "x"})
    schema = {"b": TEXT} if after is None else {"a": after, "b": TEXT}
    change(scenario, kind, schema, "?force=true", expect=409)
    scenario.complete(service)
    reference = service["properties"]["a"]
    refused = change(scenario, kind, schema, expect=409)
    assert [each["message"] for each in refused["services"]] == ["a: a secret would be deleted"]
    assert change(scenario, kind, schema, "?dryRun=true")["deletedSecrets"] == 1
    assert read(scenario, reference)["value"] == PLAIN
    assert change(scenario, kind, schema, "?force=true")["deletedSecrets"] == 1
    assert scenario.service(service["id"])["properties"] == {"b": "x"}
    read(scenario, reference, expect=404)
    # The property does not get its old value back with its old schema.
    change(scenario, kind, {"a": SECRET, "b": TEXT})
    assert scenario.service(service["id"])["properties"] == {"b": "x"}


def test_free_form_values_become_secret(scenario: Scenario) -> None:
    kind = scenario.service_type(None, SIMPLE)
    service = scenario.order(kind, {"a": {"deep": PLAIN}, "b": 1})
    scenario.complete(service)
    schema = {"a": {"type": "json", "secret": {"type": "persistent"}}, "b": {"type": "integer"}}
    change(scenario, kind, schema, expect=409)
    assert change(scenario, kind, schema, "?force=true")["sealedSecrets"] == 1
    kept = scenario.service(service["id"])["properties"]
    assert read(scenario, kept["a"])["value"] == {"deep": PLAIN}


def test_the_event_of_the_change_shows_no_plain_value(scenario: Scenario) -> None:
    kind = scenario.service_type({"a": TEXT}, SIMPLE)
    service = scenario.order(kind, {"a": PLAIN})
    scenario.complete(service)
    change(scenario, kind, {"a": SECRET}, "?force=true")
    events = scenario.admin.get(f"/events?entityId={service['id']}&type=service.updated&pageSize=100")["items"]
    last = events[-1]["properties"]["diff"]
    assert PLAIN not in str(last)
    assert {"op": "add", "path": "/properties/a", "value": scenario.service(service["id"])["properties"]["a"]} in last


def test_ended_services_lose_what_became_secret(scenario: Scenario) -> None:
    kind = scenario.service_type({"a": TEXT, "b": TEXT}, SIMPLE)
    service = scenario.order(kind, {"a": PLAIN, "b": "x"})
    scenario.complete(service)
    scenario.consumer.delete(f"/services/{service['id']}")
    scenario.complete(service)
    assert "sealedSecrets" not in change(scenario, kind, {"a": SECRET, "b": TEXT})
    assert scenario.service(service["id"])["properties"] == {"b": "x"}
    assert PLAIN not in str(scenario.jobs(service))


def test_an_orphan_keeps_what_became_secret_for_its_clean_up(scenario: Scenario) -> None:
    kind = scenario.service_type({"a": TEXT}, SIMPLE)
    service = scenario.order(kind, {"a": PLAIN})
    scenario.complete(service)
    scenario.admin.delete(f"/services/{service['id']}?force=true")
    orphan = scenario.service(service["id"])
    assert orphan["orphan"] is True
    change(scenario, kind, {"a": SECRET}, "?force=true")
    sealed = scenario.service(service["id"])["properties"]["a"]
    assert read(scenario, sealed)["value"] == PLAIN


def test_an_order_that_races_with_the_change_stores_no_plain_value(scenario: Scenario) -> None:
    kind = scenario.service_type({"a": TEXT}, SIMPLE)
    body = {
        "serviceTypeId": kind["id"],
        "name": "n",
        "groupId": scenario.group_id,
        "agentId": scenario.agent_id,
        "properties": {"a": PLAIN},
    }
    start = threading.Barrier(5)

    def order(_: int) -> list[str]:
        start.wait()
        return [scenario.consumer.post("/services", body)["id"] for _ in range(4)]

    def make_secret() -> int:
        start.wait()
        reply = scenario.admin.call(
            "PATCH", f"/api/v1/service-types/{kind['id']}?force=true", {"propertySchema": {"a": SECRET}}
        )
        return reply.status

    with ThreadPoolExecutor(5) as pool:
        changed = pool.submit(make_secret)
        ids = [service_id for found in pool.map(order, range(4)) for service_id in found]
    stored = [scenario.service(service_id)["properties"]["a"] for service_id in ids]
    if changed.result() == 200:
        assert all(value.startswith("vault://") for value in stored)
    else:
        assert changed.result() == 409
        assert set(stored) == {PLAIN}


def test_the_configuration_of_agents_is_sealed_when_it_becomes_secret(scenario: Scenario) -> None:
    kind = scenario.agent_type(configurationSchema={"a": TEXT, "users": users(TEXT)})
    values = {"a": PLAIN, "users": [{"name": "x", "password": f"{PLAIN}-x"}]}
    agent = scenario.new_agent(agentTypeId=kind["id"], configuration=values)
    empty = scenario.new_agent(agentTypeId=kind["id"], configuration={})
    path = f"/agent-types/{kind['id']}"
    scenario.admin.patch(path, {"configurationSchema": {"a": SECRET, "users": users(SECRET)}})
    kept = scenario.admin.get(f"/agents/{agent['id']}")["configuration"]
    assert PLAIN not in str(kept)
    own = scenario.token("agent", agent["id"])
    assert own.get(f"/vault/secrets/{kept['a'][8:]}")["value"] == PLAIN
    assert own.get(f"/vault/secrets/{kept['users'][0]['password'][8:]}")["value"] == f"{PLAIN}-x"
    assert scenario.admin.get(f"/agents/{empty['id']}")["configuration"] == {}
    events = scenario.admin.get(f"/events?entityId={agent['id']}&type=agent.updated&pageSize=100")["items"]
    assert events
    assert PLAIN not in str(events)
    for schema in (
        {"a": TEXT, "users": users(SECRET)},
        {"users": users(SECRET)},
        {"a": SECRET, "users": users(ONCE)},
    ):
        refused = scenario.admin.patch(path, {"configurationSchema": schema}, expect=409)
        assert (refused["code"], refused["dependants"]) == ("agents_hold_secrets", {"agents": [agent["id"]]})
    scenario.admin.patch(f"/agents/{agent['id']}", {"configuration": {"a": None}})
    scenario.admin.patch(path, {"configurationSchema": {"a": TEXT, "users": users(SECRET)}})


def test_without_a_vault_no_value_becomes_secret(tmp_path: Path) -> None:
    with running(tmp_path / "data", environment={"MAINSTAY_VAULT": "off"}) as server:
        scenario = Scenario(server.admin)
        kind = scenario.service_type({"a": TEXT}, SIMPLE)
        scenario.complete(scenario.order(kind, {"a": PLAIN}))
        refused = change(scenario, kind, {"a": SECRET}, "?force=true", expect=400)
        assert refused["errors"] == [{"path": "a", "message": "vault is not configured"}]


@pytest.mark.parametrize("database", ["sqlite", "postgresql"])
def test_after_the_change_only_events_contain_the_plain_value(
    request: pytest.FixtureRequest, tmp_path: Path, database: str
) -> None:
    url = request.getfixturevalue("postgresql").new_database() if database == "postgresql" else None
    data = tmp_path / "data"
    with running(data, database_url=url, environment={"VAULT_ENCRYPTION_KEY": "56" * 32}) as server:
        scenario = Scenario(server.admin)
        kind = scenario.service_type(BEFORE, SIMPLE)
        service = scenario.order(kind, VALUES)
        scenario.complete(service, report={"diff": f"+{PLAIN}-x"}, agentInstanceData=[f"{PLAIN}-y"])
        scenario.consumer.patch(f"/services/{service['id']}", {"properties": {"a": f"{PLAIN}-b"}})
        scenario.complete(service)
        change(scenario, kind, AFTER, "?force=true")
        backup = tmp_path / "backup.gz"
        where: list[str | Path] = ["--data-dir", data, *(["--database-url", url] if url else [])]
        run_program(["server", "backup", backup, *where]).check_returncode()
        assert server.stop() == 0
    assert {table for table, row in rows_of(backup) if PLAIN in row} == {"events"}
    run_sql(data, url, "DELETE FROM events")
    if url is None:
        # Deleted rows are overwritten at once, and the write-ahead log ends with the last connection.
        run_sql(data, None, "PRAGMA wal_checkpoint(TRUNCATE)")
        assert not [file for file in data.iterdir() if PLAIN.encode() in file.read_bytes()]
    else:
        assert PLAIN.encode() not in subprocess.run(["pg_dump", url], check=True, capture_output=True).stdout


def rows_of(backup: Path) -> list[tuple[str, str]]:
    """(table, row as text)"""
    found, table = [], ""
    for line in gzip.decompress(backup.read_bytes()).decode().splitlines():
        row = json.loads(line)
        if isinstance(row, dict):
            table = row.get("table", "")
        else:
            found.append((table, line))
    return found
