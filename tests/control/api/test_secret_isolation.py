"""Secrets under attack: by strangers, by other agents, by providers, and by writers to the database."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

import seed_text
from control_plane import Client, Server, running
from database_rows import run_sql
from fork_server import run_program
from planning_agent import with_agent
from scenario import Scenario, unique

SIMPLE: Any = seed_text.block("Example 1: Simple VM Lifecycle")
SECRET = {"type": "string", "secret": {"type": "persistent"}}
ONCE = {"type": "string", "secret": {"type": "ephemeral"}}
KEY = {"VAULT_ENCRYPTION_KEY": "56" * 32}
VICTIM = "canary-victim-3b"


@dataclass
class Place:
    server: Server
    url: str | None

    def sql(self, statement: str) -> str:
        return run_sql(self.server.data_dir, self.url, statement)


@pytest.fixture(scope="module", params=["sqlite", "postgresql"])
def place(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    """A server whose tables the test may change."""
    url = request.getfixturevalue("postgresql").new_database() if request.param == "postgresql" else None
    folder = tmp_path_factory.mktemp(f"isolation-{request.param}") / "data"
    with running(folder, database_url=url, environment=KEY) as server:
        yield Place(server, url)


def read(agent: Client, reference: str, expect: int = 200) -> Any:
    return agent.get(f"/vault/secrets/{reference.removeprefix('vault://')}", expect=expect)


def plan(scenario: Scenario, method: str, path: str, body: object = None) -> Any:
    """The plan request that the agent receives."""
    scenario.agent.get("/jobs/pending")
    reply, question = with_agent(
        scenario.agent, lambda: scenario.consumer.call(method, f"/api/v1/services{path}?plan=true", body)
    )
    assert reply.status == 200, reply.body
    return question


def implant(place: Place, service: Any, properties: str) -> None:
    """Sets the properties of a service as a release without the rules of this page accepted them."""
    place.sql(f"UPDATE services SET properties = '{properties}' WHERE id = '{service['id']}'")


def test_a_copied_reference_opens_no_secret_of_another_customer(place: Place) -> None:
    victim, thief = Scenario(place.server.admin), Scenario(place.server.admin)
    kept = victim.order(victim.service_type({"a": SECRET}, SIMPLE), {"a": VICTIM})
    victim.complete(kept)
    reference = kept["properties"]["a"]
    kind = thief.service_type({"a": SECRET, "n": {"type": "integer"}}, SIMPLE)
    stolen = thief.order(kind, {})
    thief.complete(stolen)
    implant(place, stolen, f'{{"a": "{reference}"}}')
    path = f"/{stolen['id']}"
    question = plan(thief, "PATCH", path, {"properties": {"n": 1}})
    assert question["secrets"] == {}
    assert VICTIM not in str(question)
    read(thief.agent, reference, expect=404)
    thief.consumer.patch(f"/services{path}", {"properties": {"a": "mine"}})
    read(thief.agent, reference, expect=404)
    thief.complete(stolen)
    thief.consumer.patch(f"/services{path}", {"properties": {"a": None}})
    thief.complete(stolen)
    thief.consumer.delete(f"/services{path}")
    thief.complete(stolen)
    assert read(victim.agent, reference)["value"] == VICTIM


def test_a_secret_opens_and_is_deleted_only_at_its_own_path(place: Place) -> None:
    scenario = Scenario(place.server.admin)
    service = scenario.order(scenario.service_type({"a": SECRET, "b": SECRET}, SIMPLE), {"a": VICTIM})
    scenario.complete(service)
    reference = service["properties"]["a"]
    implant(place, service, f'{{"b": "{reference}"}}')
    read(scenario.agent, reference, expect=404)
    assert plan(scenario, "POST", f"/{service['id']}/start")["secrets"] == {}
    scenario.consumer.patch(f"/services/{service['id']}", {"properties": {"b": "other"}})
    scenario.complete(service)
    implant(place, service, f'{{"a": "{reference}"}}')
    assert read(scenario.agent, reference)["value"] == VICTIM


def test_a_configuration_does_not_open_the_secret_of_another_agent(place: Place) -> None:
    scenario = Scenario(place.server.admin)
    kind = scenario.agent_type(configurationSchema={"key": SECRET})
    mine, other = (scenario.new_agent(agentTypeId=kind["id"], configuration={"key": VICTIM}) for _ in range(2))
    reference = mine["configuration"]["key"]
    place.sql(f"""UPDATE agents SET configuration = '{{"key": "{reference}"}}' WHERE id = '{other["id"]}'""")
    read(scenario.token("agent", other["id"]), reference, expect=404)
    scenario.admin.patch(f"/agents/{other['id']}", {"configuration": {"key": "new"}})
    assert read(scenario.token("agent", mine["id"]), reference)["value"] == VICTIM


def test_plain_values_that_an_earlier_release_left_in_secret_properties_are_sealed_with_force(place: Place) -> None:
    victim, scenario = Scenario(place.server.admin), Scenario(place.server.admin)
    kept = victim.order(victim.service_type({"a": SECRET}, SIMPLE), {"a": VICTIM})
    copied = kept["properties"]["a"]
    schema = {"a": SECRET, "b": SECRET}
    kind = scenario.service_type(schema, SIMPLE)
    service = scenario.order(kind, {})
    scenario.complete(service)
    implant(place, service, f'{{"a": "plain-left", "b": "{copied}"}}')
    path = f"/service-types/{kind['id']}"
    scenario.admin.patch(path, {"propertySchema": schema}, expect=409)
    assert scenario.admin.patch(f"{path}?force=true", {"propertySchema": schema})["sealedSecrets"] == 2
    after = scenario.service(service["id"])["properties"]
    # The copied reference is only a text.
    assert [read(scenario.agent, after[name])["value"] for name in ("a", "b")] == ["plain-left", copied]
    assert read(victim.agent, copied)["value"] == VICTIM


SWAPS = {
    "the owner of a row": "UPDATE vault_secrets SET owner_id = '{thief}' WHERE reference = '{reference}'",
    "the ciphertext of another row": "UPDATE vault_secrets SET ciphertext = (SELECT ciphertext FROM vault_secrets"
    " WHERE reference = '{reference}') WHERE reference = '{own}'",
    "the reference of a row": "UPDATE vault_secrets SET ciphertext = (SELECT ciphertext FROM vault_secrets"
    " WHERE reference = '{reference}'), key_id = (SELECT key_id FROM vault_secrets WHERE reference = '{reference}'),"
    " seal_version = 1 WHERE reference = '{own}'",
}


@pytest.mark.parametrize("swap", SWAPS)
def test_a_row_that_was_moved_in_the_database_does_not_open(place: Place, swap: str) -> None:
    scenario = Scenario(place.server.admin)
    kind = scenario.service_type({"a": SECRET}, SIMPLE)
    victim, thief = (scenario.order(kind, {"a": value}) for value in (VICTIM, "mine"))
    names = {"reference": victim["properties"]["a"][8:], "own": thief["properties"]["a"][8:], "thief": thief["id"]}
    place.sql(SWAPS[swap].format(**names))
    asked = names["own"]
    if swap == "the owner of a row":
        implant(place, thief, f'{{"a": "vault://{names["reference"]}"}}')
        asked = names["reference"]
    refused = read(scenario.agent, asked, expect=409)
    assert refused["code"] == "secret_unreadable"
    assert "secret a of service" in refused["error"]
    assert VICTIM not in str(refused)


def test_an_ephemeral_secret_does_not_open_as_a_persistent_one(place: Place) -> None:
    scenario = Scenario(place.server.admin)
    service = scenario.order(scenario.service_type({"a": ONCE, "b": SECRET}, SIMPLE), {"a": VICTIM, "b": "mine"})
    once, lasting = (service["properties"][name][8:] for name in ("a", "b"))
    place.sql(f"UPDATE vault_secrets SET type = 'persistent', schema_path = 'b' WHERE reference = '{once}'")
    place.sql(f"DELETE FROM vault_secrets WHERE reference = '{lasting}'")
    implant(place, service, f'{{"b": "vault://{once}"}}')
    assert read(scenario.agent, once, expect=409)["code"] == "secret_unreadable"


@pytest.mark.parametrize("damage", ["short", "flipped", "empty", "unknown key"])
def test_a_damaged_row_is_a_refusal(place: Place, damage: str) -> None:
    scenario = Scenario(place.server.admin)
    kind = scenario.service_type({"a": SECRET, "n": {"type": "integer"}}, SIMPLE)
    service = scenario.order(kind, {"a": "canary-damaged"})
    scenario.complete(service)
    literal = "'\\x{}'::bytea" if place.url else "x'{}'"
    values = {"short": literal.format("00" * 5), "flipped": literal.format("ab" * 60), "empty": literal.format("")}
    changed = "key_id = 'ffffffffffffffff'" if damage == "unknown key" else f"ciphertext = {values[damage]}"
    reference = service["properties"]["a"][8:]
    place.sql(f"UPDATE vault_secrets SET {changed} WHERE reference = '{reference}'")
    assert read(scenario.agent, reference, expect=409)["code"] == "secret_unreadable"
    path = f"/services/{service['id']}"
    refused = scenario.consumer.call("POST", f"/api/v1{path}/start?plan=true")
    assert (refused.status, refused.body["code"]) == (409, "secret_unreadable")
    # Every other use of the service works, and a new value repairs it.
    scenario.consumer.patch(path, {"properties": {"n": 1}})
    scenario.complete(service)
    scenario.consumer.patch(path, {"properties": {"a": "canary-repaired"}})
    repaired = scenario.complete(service)["properties"]["a"]
    assert read(scenario.agent, repaired)["value"] == "canary-repaired"
    scenario.consumer.delete(path)
    scenario.complete(service)


def test_a_right_guess_gets_the_same_answers_as_a_wrong_one(scenario: Scenario) -> None:
    """Every form of a request that could compare a guess with the stored value."""
    schema = {
        "pin": SECRET,
        "fixed": {**SECRET, "immutable": True},
        "o": {"type": "object", "immutable": True, "properties": {"pin": SECRET}},
        "users": {
            "type": "array",
            "validators": [{"type": "uniqueItems", "value": True}],
            "items": {"type": "object", "properties": {"name": {"type": "string"}, "pin": SECRET}},
        },
        "pins": {"type": "array", "items": SECRET, "validators": [{"type": "uniqueItems", "value": True}]},
    }
    kind = scenario.service_type(schema, SIMPLE)
    users = [{"name": "a", "pin": "4711"}, {"name": "b", "pin": "4711"}]
    stored = {"pin": "4711", "fixed": "4711", "o": {"pin": "4711"}, "users": users, "pins": ["4711", "0815"]}
    service = scenario.order(kind, stored)
    scenario.complete(service)
    path = f"/services/{service['id']}"

    def answers(pin: str) -> list[Any]:
        bodies: list[Any] = [
            {"pin": pin},
            {"fixed": pin},
            {"o": {"pin": pin}},
            {"users": [{"name": "a", "pin": pin}]},
            {"pins": [pin]},
            {"pins": [service["properties"]["pins"][0], pin]},
        ]
        found: list[Any] = []
        for body in bodies:
            for query in ("?dryRun=true", ""):
                reply = scenario.consumer.call("PATCH", f"/api/v1{path}{query}", {"properties": body})
                shown = reply.body if reply.status != 200 or query else None
                found.append((reply.status, shown))
                if reply.status == 200 and not query:
                    found.append(reply.body["activeJob"]["action"])
                    job = reply.body["activeJob"]["id"]
                    scenario.consumer.post(f"/jobs/{job}/cancel", expect=204)
        return found

    right, wrong = answers("4711"), answers("0000")
    assert right == wrong
    refused = [answer for answer in right if answer[0] == 400]
    assert len(refused) == 4
    assert all("property is immutable and cannot be changed" in answer[1]["error"] for answer in refused)


@pytest.mark.parametrize(
    "validator",
    [
        {"type": "compare", "config": {"left": "s", "operator": "==", "right": "t"}},
        {"type": "compare", "config": {"left": "t", "operator": "<", "right": "o.s"}},
        {"type": "uniqueValues", "config": {"properties": ["t", "s"]}},
        {"type": "uniqueValues", "config": {"properties": ["t", "o"]}},
        {"type": "requiredIf", "config": {"property": "s", "value": "4711", "required": ["t"]}},
        {"type": "requiredIf", "config": {"property": "list", "value": ["4711"], "required": ["t"]}},
    ],
)
def test_a_rule_that_compares_a_secret_is_refused_when_the_type_is_written(
    scenario: Scenario, validator: dict[str, Any]
) -> None:
    properties = {
        "s": SECRET,
        "t": {"type": "string"},
        "o": {"type": "object", "properties": {"s": SECRET}},
        "list": {"type": "array", "items": SECRET},
    }
    body = {"name": unique("type"), "propertySchema": {"properties": properties, "validators": [validator]}}
    refused = scenario.admin.post("/service-types", body, expect=400)
    assert "is a secret, so its value cannot be compared" in refused["error"]


def test_a_text_that_reads_as_a_reference_is_refused_everywhere(scenario: Scenario) -> None:
    free = scenario.service_type(None, SIMPLE)
    body = {"serviceTypeId": free["id"], "name": "x", "groupId": scenario.group_id, "agentId": scenario.agent_id}
    for properties in ({"a": "vault://1"}, {"a": [{"b": "vault://1"}]}, {"vault://1": 1}, {"a": {"vault://1": 1}}):
        scenario.consumer.post("/services", {**body, "properties": properties}, expect=400)
        verdict = scenario.consumer.post(
            f"/service-types/{free['id']}/validate", {"properties": properties}, expect=200
        )
        assert not verdict["valid"]
    service = scenario.order(free, {"a": 1})
    job = scenario.next_job(service)
    reports: list[dict[str, Any]] = [
        {"properties": {"b": ["vault://1"]}},
        {"agentInstanceData": {"a": ["vault://1"]}},
        {"agentInstanceData": "vault://1"},
        {"agentInstanceData": {"vault://1": 0}},
    ]
    for report in reports:
        refused = scenario.agent.post(f"/jobs/{job['id']}/complete", report, expect=400)
        assert "vault://" in refused["errors"][0]["message"]
    scenario.agent.post(f"/jobs/{job['id']}/complete", {"agentInstanceData": {"a": "b"}}, expect=204)
    scenario.consumer.patch(f"/services/{service['id']}", {"properties": {"b": {"c": "vault://1"}}}, expect=400)
    agent_type = scenario.agent_type()
    agent = {"name": "a", "providerId": scenario.provider_id, "agentTypeId": agent_type["id"]}
    scenario.admin.post("/agents", {**agent, "configuration": {"a": ["vault://1"]}}, expect=400)
    made = scenario.admin.post("/agents", {**agent, "configuration": {"a": 1}})
    scenario.admin.patch(f"/agents/{made['id']}", {"configuration": {"a": "vault://1"}}, expect=400)


def test_a_pool_of_a_hostile_provider_cannot_give_a_reference(scenario: Scenario) -> None:
    made = scenario.provider.post("/service-pool-sets", {"name": "s", "providerId": scenario.provider_id})
    scenario.provider.patch(f"/agents/{scenario.agent_id}", {"servicePoolSetId": made["id"]})
    pool = {"name": "p", "type": "p", "propertyType": "string", "generatorType": "list"}
    pool_id = scenario.provider.post("/service-pools", {**pool, "servicePoolSetId": made["id"]})["id"]
    scenario.provider.post("/service-pool-values", {"name": "v", "value": "vault://1", "servicePoolId": pool_id})
    generator = {"type": "string", "generator": {"type": "pool", "config": {"poolType": "p"}}}
    kind = scenario.service_type({"a": generator}, SIMPLE)
    body = {"serviceTypeId": kind["id"], "name": "x", "groupId": scenario.group_id, "agentId": scenario.agent_id}
    refused = scenario.consumer.post("/services", {**body, "properties": {}}, expect=400)
    assert [fault["path"] for fault in refused["errors"]] == ["a"]


def events_of(scenario: Scenario, service_id: str) -> list[Any]:
    found: list[Any] = scenario.admin.get(f"/events?entityId={service_id}&type=vault.read&pageSize=100")["items"]
    return found


def test_a_plan_records_one_reading_per_secret(scenario: Scenario) -> None:
    schema = {"a": SECRET, "users": {"type": "array", "items": {"type": "object", "properties": {"pin": SECRET}}}}
    kind = scenario.service_type({**schema, "n": {"type": "integer"}}, SIMPLE)
    service = scenario.order(kind, {"a": "canary-p1", "users": [{"pin": "canary-p2"}, {"pin": "canary-p3"}]})
    scenario.complete(service)
    path = f"/{service['id']}"
    assert events_of(scenario, service["id"]) == []
    reply, question = with_agent(
        scenario.agent, lambda: scenario.consumer.call("POST", f"/api/v1/services{path}/start?plan=true")
    )
    assert len(question["secrets"]) == 3
    recorded = [event["properties"] for event in events_of(scenario, service["id"])]
    assert {each["reference"] for each in recorded} == set(question["secrets"])
    assert sorted(each["schemaPath"] for each in recorded) == ["a", "users[].pin", "users[].pin"]
    assert {each["plan"] for each in recorded} == {reply.body["planDigest"].split(".")[0]}
    assert "canary" not in str(recorded)
    # Executing the plan asks the agent again: the same plan, so no further event.
    done, _ = with_agent(
        scenario.agent,
        lambda: scenario.consumer.call(
            "POST", f"/api/v1/services{path}/start", {"planDigest": reply.body["planDigest"]}
        ),
    )
    assert done.status == 200
    assert len(events_of(scenario, service["id"])) == 3
    read(scenario.agent, service["properties"]["a"])
    read(scenario.agent, service["properties"]["a"])
    assert len(events_of(scenario, service["id"])) == 4
    scenario.complete(service)
    plan(scenario, "PATCH", path, {"properties": {"n": 2}})
    assert len(events_of(scenario, service["id"])) == 7


def test_a_plan_of_a_new_service_records_its_readings(scenario: Scenario) -> None:
    kind = scenario.service_type({"a": SECRET}, SIMPLE)
    body = {"serviceTypeId": kind["id"], "name": "x", "groupId": scenario.group_id, "agentId": scenario.agent_id}
    question = plan(scenario, "POST", "", {**body, "properties": {"a": "canary-new"}})
    (event,) = events_of(scenario, question["job"]["serviceId"])
    assert event["consumerId"] == scenario.consumer_id
    assert event["agentId"] == scenario.agent_id


def test_an_unanswered_plan_that_the_agent_never_received_records_nothing(scenario: Scenario) -> None:
    service = scenario.order(scenario.service_type({"a": SECRET}, SIMPLE), {"a": "canary-q"})
    scenario.complete(service)
    silent = scenario.consumer.call("POST", f"/api/v1/services/{service['id']}/start?plan=true&planWait=1")
    assert silent.status == 504
    assert events_of(scenario, service["id"]) == []


def test_a_persistent_secret_is_readable_until_the_service_ends(place: Place) -> None:
    scenario = Scenario(place.server.admin)
    service = scenario.order(scenario.service_type({"a": SECRET}, SIMPLE), {"a": "canary-end"})
    scenario.complete(service)
    assert read(scenario.agent, service["properties"]["a"])["value"] == "canary-end"
    place.sql(f"UPDATE services SET status = 'Deleted' WHERE id = '{service['id']}'")
    read(scenario.agent, service["properties"]["a"], expect=404)


def test_an_ephemeral_secret_is_readable_only_while_a_job_is_active(place: Place) -> None:
    scenario = Scenario(place.server.admin)
    service = scenario.order(scenario.service_type({"a": ONCE}, SIMPLE), {"a": "canary-once"})
    reference = service["properties"]["a"]
    assert read(scenario.agent, reference)["value"] == "canary-once"
    place.sql(f"UPDATE jobs SET status = 'Failed' WHERE service_id = '{service['id']}'")
    read(scenario.agent, reference, expect=404)


def test_secrets_follow_reordered_items(scenario: Scenario) -> None:
    item = {"type": "object", "properties": {"name": {"type": "string"}, "pin": SECRET}}
    service = scenario.order(
        scenario.service_type({"users": {"type": "array", "items": item}}, SIMPLE),
        {"users": [{"name": name, "pin": f"canary-{name}"} for name in "abc"]},
    )
    scenario.complete(service)
    a, b, c = service["properties"]["users"]
    path = f"/services/{service['id']}"

    def update(users: list[Any]) -> dict[str, str]:
        scenario.consumer.patch(path, {"properties": {"users": users}})
        kept = scenario.complete(service)["properties"]["users"]
        return {user["name"]: read(scenario.agent, user["pin"])["value"] for user in kept}

    assert update([c, a, b]) == {"c": "canary-c", "a": "canary-a", "b": "canary-b"}
    assert update([b, {"name": "d", "pin": "canary-d"}, c]) == {"b": "canary-b", "d": "canary-d", "c": "canary-c"}
    read(scenario.agent, a["pin"], expect=404)
    # A failed update leaves the old values and removes the new ones.
    scenario.consumer.patch(path, {"properties": {"users": [{"name": "e", "pin": "canary-e"}]}})
    job = scenario.next_job(service)
    new = job["params"]["users"][0]["pin"]
    assert read(scenario.agent, new)["value"] == "canary-e"
    scenario.agent.post(f"/jobs/{job['id']}/fail", {"errorMessage": "x"}, expect=204)
    read(scenario.agent, new, expect=404)
    assert read(scenario.agent, b["pin"])["value"] == "canary-b"
    # A reference that was removed earlier cannot be sent back.
    scenario.consumer.patch(path, {"properties": {"users": [a]}}, expect=400)


@pytest.mark.parametrize("succeeds", [True, False])
def test_a_run_that_an_earlier_release_started_ends_as_usual(place: Place, succeeds: bool) -> None:
    scenario = Scenario(place.server.admin)
    service = scenario.order(scenario.service_type({"a": SECRET}, SIMPLE), {"a": "canary-old"})
    scenario.complete(service)
    scenario.consumer.patch(f"/services/{service['id']}", {"properties": {"a": "canary-new"}})
    job = scenario.next_job_seen(service)
    old, new = service["properties"]["a"], job["params"]["a"]
    place.sql(
        f"""UPDATE runs SET retired_secrets = '["{old}"]', new_secrets = '["{new}"]' WHERE id = '{job["runId"]}'"""
    )
    if succeeds:
        scenario.complete(service)
    else:
        scenario.fail(service, "no")
    kept, gone = (new, old) if succeeds else (old, new)
    assert read(scenario.agent, kept)["value"] in ("canary-new", "canary-old")
    left = place.sql(f"SELECT reference FROM vault_secrets WHERE owner_id = '{service['id']}'")
    assert left.split() == [kept[8:]]
    read(scenario.agent, gone, expect=404)


def test_of_concurrent_updates_one_wins_and_leaves_no_secret_of_the_others(place: Place) -> None:
    scenario = Scenario(place.server.admin)
    service = scenario.order(scenario.service_type({"a": SECRET}, SIMPLE), {"a": "canary-0"})
    scenario.complete(service)
    path = f"/api/v1/services/{service['id']}"
    with ThreadPoolExecutor(6) as pool:
        replies = list(
            pool.map(
                lambda number: scenario.consumer.call("PATCH", path, {"properties": {"a": f"canary-{number}"}}),
                range(1, 7),
            )
        )
    assert sorted(reply.status for reply in replies) == [200, *[409] * 5]
    done = scenario.complete(service)
    count = f"SELECT count(*) FROM vault_secrets WHERE owner_id = '{service['id']}'"
    assert place.sql(count).strip() == "1"
    assert read(scenario.agent, done["properties"]["a"])["value"].startswith("canary-")


def test_secrets_sealed_by_an_earlier_release_open_and_are_bound_to_their_type_by_a_rotation(tmp_path: Path) -> None:
    data = tmp_path / "data"
    with running(data) as server:
        scenario = Scenario(server.admin)
        kind = scenario.service_type({"a": SECRET, "b": SECRET}, SIMPLE)
        service = scenario.order(kind, {"a": "canary-old", "b": "canary-broken"})
        agent = str(scenario.agent.token)
        server.stop()
    a, b = (service["properties"][name][8:] for name in ("a", "b"))
    seal_as_version_1(data, a, service["id"], "a", "canary-old")
    run_sql(data, None, f"UPDATE vault_secrets SET ciphertext = x'00', created_at = 1 WHERE reference = '{b}'")
    with running(data) as server:
        assert read(server.admin.as_token(agent), a)["value"] == "canary-old"
        server.stop()
    first = (data / "vault.key").read_text().split()
    rotated = run_program(["vault", "rotate", "--data-dir", data])
    assert rotated.returncode == 1
    assert "encrypted 1 secret with" in rotated.stdout
    assert f"cannot decrypt b of service {service['id']}" in rotated.stderr
    # A secret that does not open yet may need the old key.
    assert (data / "vault.key").read_text().split()[1:] == first
    assert run_sql(data, None, f"SELECT seal_version FROM vault_secrets WHERE reference = '{a}'") == "2"
    with running(data) as server:
        assert read(server.admin.as_token(agent), a)["value"] == "canary-old"


def seal_as_version_1(data: Path, reference: str, service_id: str, schema_path: str, value: str) -> None:
    from mainstay.control.vault.seal import SealContext, Vault

    vault = Vault([bytes.fromhex((data / "vault.key").read_text().strip())])
    sealed = vault.seal(value, SealContext(reference, "service", service_id, schema_path))
    run_sql(
        data,
        None,
        f"UPDATE vault_secrets SET seal_version = 1, ciphertext = x'{sealed.ciphertext.hex()}'"
        f" WHERE reference = '{reference}'",
    )
