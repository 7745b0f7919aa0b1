"""Attacks by a participant or an agent: refused with a clear status, and nothing is disclosed."""

from __future__ import annotations

import base64
import json
import time
from typing import Any

import pytest

import seed_text
from scenario import Scenario, unique

SIMPLE: Any = seed_text.block("Example 1: Simple VM Lifecycle")
NOWHERE = "00000000-0000-4000-8000-000000000000"


@pytest.mark.parametrize(
    "path",
    [
        "services/%00",
        "services/%ff%fe",
        "jobs/%00/report",
        "jobs/pending?serviceId=%00",
        "jobs/pending?%00=1",
        "vault/secrets/%00",
        "blueprints/%00",
        "service-types/%00/json-schema",
        "services?sort=%00",
        "services?after=%00",
        "services?name=%00",
        "services?sort=name;drop",
        "services?sort=(select%201)",
        "services?providerId)%20OR%20(1=1",
    ],
)
def test_malformed_urls_are_refused(scenario: Scenario, path: str) -> None:
    assert scenario.agent.call("GET", f"/api/v1/{path}").status in (400, 404)


@pytest.mark.parametrize("when", ["0001-01-01T00:00:00Z", "0001-01-01T00:00:00%2B14:00", "9999-12-31T23:59:59-14:00"])
def test_times_near_the_limits_of_the_calendar_are_refused(scenario: Scenario, when: str) -> None:
    service = scenario.order(scenario.service_type(None, SIMPLE))
    for end in ("start", "end"):
        scenario.consumer.get(f"/services/{service['id']}/uptime?{end}={when}", expect=400)
        for bucket in ("minute", "month"):
            series = f"/metric-entries/aggregate/{service['id']}/r/{NOWHERE}?bucket={bucket}&{end}={when}"
            scenario.consumer.get(series, expect=400)
    scenario.consumer.get(f"/services?createdAt={when}", expect=400)


def test_metric_values_cannot_overflow(scenario: Scenario) -> None:
    service = scenario.order(scenario.service_type(None, SIMPLE))
    metric = scenario.admin.post("/metric-types", {"name": unique("m"), "entityType": "Service"})
    entry = {"serviceId": service["id"], "resourceId": "r", "typeName": metric["name"]}
    scenario.agent.post("/metric-entries", {**entry, "value": 1e308}, expect=400)
    for value in (1e140, 1e140, -1e140, 1e140):
        scenario.agent.post("/metric-entries", {**entry, "value": value})
    series = f"/metric-entries/aggregate/{service['id']}/r/{metric['id']}?bucket=minute"
    for kind in ("min", "max", "sum", "avg", "diff"):
        found = scenario.consumer.get(f"{series}&aggregateType={kind}")["data"]
        assert all(isinstance(value, float) for _, value in found)


def test_a_body_of_unterminated_strings_is_parsed_in_linear_time(scenario: Scenario) -> None:
    """With a retry from each quote a body of this size would block the server for hours."""
    raw = b"[" * 65 + b'"\\' * 1_500_000
    assert scenario.consumer.call("POST", "/api/v1/services", raw=raw, expect=400).body["code"] == "too_deep"
    raw = b"[" * 60 + b'"[' * 7 + b'"\\' * 1_500_000
    assert scenario.consumer.call("POST", "/api/v1/services", raw=raw, expect=400).body["code"] == "invalid_json"


def test_a_lifecycle_too_large_to_draw_is_refused(scenario: Scenario) -> None:
    count = 300
    first = [{"from": f"s{state}", "to": f"s{state + 1}"} for state in range(count - 1)]
    across = [
        {
            "name": f"a{number}",
            "transitions": [{"from": f"s{s}", "to": f"s{(s * 7 + number) % count}"} for s in range(count)],
        }
        for number in range(10)
    ]
    kind = scenario.service_type(
        None,
        {
            "states": [{"name": f"s{state}"} for state in range(count)],
            "actions": [{"name": "create", "requestSchemaType": "properties", "transitions": first}, *across],
            "initialState": "s0",
        },
    )
    path = f"/service-types/{kind['id']}"
    assert scenario.stranger.get(f"{path}/lifecycle.svg", expect=400)["code"] == "too_large_to_draw"
    assert scenario.stranger.get(f"{path}/lifecycle-report")["findings"]


def test_patterns_with_nested_repetition_match_in_linear_time(scenario: Scenario) -> None:
    rule = {"type": "pattern", "pattern": "^(a+)+$"}
    kind = scenario.service_type({"p": {"type": "string", "validators": [rule]}}, SIMPLE)
    body = {"properties": {"p": "a" * 200_000 + "!"}}
    assert scenario.stranger.post(f"/service-types/{kind['id']}/validate", body, expect=200)["valid"] is False
    huge = {"type": "pattern", "pattern": "((a{1,100}){1,100}){1,100}"}
    refused = {"name": unique("t"), "propertySchema": {"p": {"type": "string", "validators": [huge]}}}
    assert scenario.admin.post("/service-types", refused, expect=400)["code"] == "invalid_definition"


def leased(scenario: Scenario, job_id: str, **more: Any) -> str:
    return str(scenario.agent.post(f"/jobs/{job_id}/claim", {"leaseSeconds": 30, **more}, expect=200)["leaseToken"])


def test_a_lost_lease_cannot_finish_a_job(scenario: Scenario) -> None:
    """The old lease is refused while the job is pending, and while it is claimed again, with or without a lease."""
    service = scenario.order(scenario.service_type(None, SIMPLE))
    path = f"/jobs/{service['activeJob']['id']}"
    stale = {"leaseToken": leased(scenario, service["activeJob"]["id"]), "errorMessage": "late"}
    scenario.agent.post(f"{path}/release", {"leaseToken": stale["leaseToken"]}, expect=204)

    def refused() -> set[str]:
        verbs = ("complete", "fail", "release", "renew")
        return {scenario.agent.post(f"{path}/{verb}", stale, expect=409)["code"] for verb in verbs}

    assert refused() == {"lease_lost"}
    scenario.agent.post(f"{path}/claim", expect=204)
    assert refused() == {"lease_lost"}
    scenario.agent.post(f"{path}/release", expect=204)
    leased(scenario, service["activeJob"]["id"])
    assert refused() == {"lease_lost"}
    assert scenario.agent.get(path)["status"] == "Processing"


def test_the_same_claim_id_gives_each_job_its_own_lease(scenario: Scenario) -> None:
    kind = scenario.service_type(None, SIMPLE)
    jobs = [scenario.order(kind)["activeJob"]["id"] for _ in range(2)]
    tokens = {leased(scenario, job, claimId="same-name") for job in jobs}
    assert len(tokens) == 2
    other = scenario.token("agent", scenario.new_agent()["id"])
    other.post(f"/jobs/{jobs[0]}/claim", {"leaseSeconds": 30, "claimId": "same-name"}, expect=404)


def test_idempotency_keys_are_separate_for_each_token(scenario: Scenario) -> None:
    kind = scenario.service_type(None, SIMPLE)
    body = {"serviceTypeId": kind["id"], "name": "x", "agentId": scenario.agent_id}
    key = {"Idempotency-Key": unique("key")}
    mine = scenario.consumer.post("/services", body, headers=key)
    theirs = scenario.stranger.post("/services", body, headers=key)
    assert mine["consumerId"] != theirs["consumerId"]
    forecast = scenario.consumer.post("/services?dryRun=true", body, headers=key, expect=200)
    assert forecast["path"] == ["New", "Stopped"]
    assert scenario.consumer.post("/services", body, headers=key)["id"] == mine["id"]
    for bad in ("", "x" * 256):
        scenario.consumer.post("/services", body, headers={"Idempotency-Key": bad}, expect=400)


@pytest.mark.parametrize("tag", ['"0"', '"-1"', '"999999999999999999999"', "W/", '"1", "2"', "x", '""'])
def test_an_if_match_header_with_another_version_is_refused(scenario: Scenario, tag: str) -> None:
    service = scenario.order(scenario.service_type(None, SIMPLE))
    path = f"/services/{service['id']}"
    for number in range(3):
        scenario.consumer.patch(path, {"name": f"n{number}"})
    scenario.consumer.patch(path, {"name": "taken"}, headers={"If-Match": tag}, expect=412)
    scenario.consumer.delete(f"{path}?force=true", headers={"If-Match": tag}, expect=412)
    assert scenario.service(service["id"])["name"] == "n2"


def test_a_token_cannot_create_a_stronger_token(scenario: Scenario) -> None:
    mine, other = scenario.consumer, scenario.stranger
    foreign_agent = scenario.agent_id
    for body in (
        {"role": "admin"},
        {"role": "admin", "scopeId": scenario.consumer_id},
        {"role": "participant", "scopeId": scenario.provider_id},
        {"role": "agent", "scopeId": foreign_agent},
        {"role": "participant", "scopeId": NOWHERE},
    ):
        assert mine.post("/tokens", {"name": "t", **body}, expect=403)["code"] == "escalation"
    made = mine.post("/tokens", {"name": "t", "role": "participant", "scopeId": scenario.consumer_id})
    for more in ({"role": "admin"}, {"participantId": scenario.provider_id}, {"scopeId": scenario.provider_id}):
        mine.patch(f"/tokens/{made['id']}", {**more, "name": "u"}, expect=400)
    assert mine.get(f"/tokens/{made['id']}")["name"] == "t"
    for act in ("patch", "delete"):
        getattr(other, act)(f"/tokens/{made['id']}", expect=404)
    other.post(f"/tokens/{made['id']}/regenerate", expect=404)
    scenario.agent.post("/tokens", {"name": "t", "role": "agent", "scopeId": scenario.agent_id}, expect=403)
    scenario.agent.get("/tokens", expect=403)


def test_a_change_cannot_move_a_row_to_another_owner(scenario: Scenario) -> None:
    service = scenario.order(scenario.service_type(None, SIMPLE))
    ids = dict.fromkeys(("id", "providerId", "consumerId", "groupId", "agentId", "serviceTypeId"), NOWHERE)
    for name, value in {**ids, "status": "Started"}.items():
        scenario.consumer.patch(f"/services/{service['id']}", {name: value, "name": "x"}, expect=400)
    assert scenario.service(service["id"]) == service
    scenario.provider.patch(f"/agents/{scenario.agent_id}", {"providerId": NOWHERE, "name": "x"}, expect=400)
    scenario.provider.patch(f"/agents/{scenario.agent_id}", {"agentTypeId": NOWHERE, "name": "x"}, expect=400)
    moved = {"consumerId": scenario.provider_id, "name": "y"}
    scenario.consumer.patch(f"/service-groups/{scenario.group_id}", moved, expect=400)
    assert scenario.consumer.get(f"/service-groups/{scenario.group_id}")["consumerId"] == scenario.consumer_id
    foreign = {"serviceTypeId": service["serviceTypeId"], "name": "x", "groupId": scenario.group_id}
    scenario.stranger.post("/services", {**foreign, "agentId": scenario.agent_id}, expect=403)
    scenario.stranger.post("/service-groups", {"name": "g", "consumerId": scenario.consumer_id}, expect=403)
    scenario.stranger.post("/service-pool-sets", {"name": "g", "providerId": scenario.provider_id}, expect=403)
    body = {"name": "a", "providerId": scenario.provider_id, "agentTypeId": scenario.agent_type_id}
    scenario.stranger.post("/agents", body, expect=403)


def test_an_agent_learns_nothing_about_groups_it_does_not_serve(scenario: Scenario) -> None:
    user_or_agent = [{"type": "actor", "config": {"actors": ["user", "agent"]}}]
    kind = scenario.service_type({"other": {"type": "reference", "authorizers": user_or_agent}}, SIMPLE)
    hidden = scenario.order(kind)
    body = {"properties": {"other": hidden["id"]}, "groupId": scenario.group_id}
    path = f"/service-types/{kind['id']}/validate"
    assert scenario.agent.post(path, body, expect=200)["valid"] is True
    outsider = scenario.token("agent", scenario.new_agent()["id"])
    outsider.post(path, body, expect=403)
    outsider.post(path, {**body, "groupId": NOWHERE}, expect=403)
    alone = outsider.post(path, {"properties": body["properties"]}, expect=200)
    assert alone["errors"] == [{"path": "other", "message": "referenced service does not exist"}]


@pytest.mark.parametrize("name", ["\u00a0", "e\u0301", "🜁" * 255, "<script>", "'; DROP TABLE jobs; --"])
def test_unusual_text_is_stored_and_found_as_a_name(scenario: Scenario, name: str) -> None:
    service = scenario.order(scenario.service_type(None, SIMPLE))
    scenario.consumer.patch(f"/services/{service['id']}", {"name": name})
    found = scenario.consumer.get("/services", query={"name": name, "sort": "-name"})["items"]
    assert [each["name"] for each in found] == [name]
    cursor = scenario.consumer.get("/services", query={"after": "", "sort": "name", "pageSize": 1})
    assert cursor["items"][0]["name"] == name


def test_the_long_polls_of_a_caller_are_limited(scenario: Scenario) -> None:
    """Across all its tokens; a closed connection frees its slot."""
    tokens = [scenario.consumer, scenario.token("participant", scenario.consumer_id)]
    streams = [tokens[number % 2].open_stream("/api/v1/events/stream") for number in range(101)]
    try:
        statuses = [stream.status for stream in streams]
        assert statuses == [200] * 100 + [429]
        assert streams[-1].headers["retry-after"]
        scenario.stranger.open_stream("/api/v1/events/stream").close()
    finally:
        for stream in streams:
            stream.close()
    for _ in range(100):
        again = scenario.consumer.open_stream("/api/v1/events/stream")
        again.close()
        if again.status == 200:
            return
        time.sleep(0.2)
    pytest.fail("callers that disconnected still hold long-poll slots")


def test_the_names_of_states_cannot_contain_nul(scenario: Scenario) -> None:
    """They become columns of services and jobs, and PostgreSQL cannot store NUL."""
    lifecycle = json.loads(json.dumps(SIMPLE).replace('"New"', '"N\\u0000w"'))
    body = {"name": unique("t"), "lifecycleSchema": lifecycle}
    faults = scenario.admin.post("/service-types", body, expect=400)["errors"]
    assert {"path": "lifecycleSchema.states[0].name", "message": "name contains a NUL character"} in faults


def test_a_hostile_participant_gets_nothing_of_other_participants_orders(scenario: Scenario) -> None:
    """Agents, tags, names, tokens and changes of its own: none of them makes it a server of others."""
    secret = {"key": {"type": "string", "secret": {"type": "persistent"}}}
    kind = scenario.service_type(secret, SIMPLE)
    honest, hostile = scenario.new_agent(tags=["eu", "plane:certified"]), scenario.stranger
    own_id = hostile.get("/tokens/me")["participantId"]
    body = {"name": honest["name"], "providerId": own_id, "agentTypeId": scenario.agent_type_id}
    agents = [hostile.post("/agents", {**body, "tags": ["eu", f"t{number}"]}) for number in range(3)]
    provider = {"providerId": scenario.provider_id, "agentTypeId": scenario.agent_type_id}
    hostile.patch(f"/agents/{honest['id']}", {"status": "Disabled"}, expect=404)
    hostile.post(f"/agents/{honest['id']}/enrolment-codes", expect=404)
    for agent in agents:
        hostile.call("PATCH", f"/api/v1/agents/{agent['id']}", {**provider, "tags": ["eu"]})
        found = hostile.get(f"/agents/{agent['id']}")
        assert (found["providerId"], found["agentTypeId"]) == (own_id, scenario.agent_type_id)
        issued = {"name": "t", "role": "agent", "scopeId": agent["id"]}
        token = scenario.admin.as_token(hostile.post("/tokens", issued)["value"])
        token.put("/agents/me/status", {"status": "Connected"})
        token.patch(f"/agent-types/{scenario.agent_type_id}", {"providerIds": [own_id]}, expect=403)
        token.post("/agents", body, expect=403)
        token.post("/services", {"serviceTypeId": kind["id"], "name": "s"}, expect=403)
        assert token.get("/jobs/pending") == []
    hostile.patch(
        f"/participants/{own_id}", {"name": scenario.admin.get(f"/participants/{scenario.provider_id}")["name"]}
    )
    order = {"serviceTypeId": kind["id"], "name": "s", "groupId": scenario.group_id, "properties": {"key": "k"}}
    for more in ({}, {"agentTags": ["eu"]}, {"agentTags": ["plane:certified"]}, {"providerId": scenario.provider_id}):
        assert scenario.consumer.post("/services", {**order, **more})["agentId"] == honest["id"]
    # Nor does it see what others are offered: the catalogue of another consumer is refused.
    hostile.get(f"/catalogue?consumerId={scenario.consumer_id}", expect=403)
    hostile.get("/catalogue?consumerId=x", expect=400)
    assert own_id not in str(scenario.consumer.get("/catalogue"))
    path = f"/service-types/{kind['id']}/validate"
    hidden = {"agentId": agents[0]["id"]}, {"providerId": own_id}
    for target in hidden:
        scenario.consumer.post(path, {"properties": {"key": "k"}, **target}, expect=400)


def test_an_agent_validates_for_its_own_participant(scenario: Scenario) -> None:
    kind = scenario.service_type({"size": {"type": "integer"}}, SIMPLE)
    lonely = scenario.new_agent(
        providerId=scenario.participant(), agentTypeId=scenario.agent_type()["id"], grant=False
    )
    token, path = scenario.token("agent", lonely["id"]), f"/service-types/{kind['id']}/validate"
    assert token.post(path, {"agentId": lonely["id"]}, expect=200)["valid"] is True
    assert token.post(path, {"agentId": scenario.agent_id}, expect=200)["valid"] is True
    assert scenario.agent.post(path, {"agentId": lonely["id"]}, expect=400)["code"] == "agent_not_available"
    # An admin without a consumer asks about any agent that is enabled.
    assert scenario.admin.post(path, {"agentId": lonely["id"]}, expect=200)["valid"] is True
    scenario.admin.patch(f"/agents/{lonely['id']}", {"status": "Disabled"})
    scenario.admin.post(path, {"agentId": lonely["id"]}, expect=400)


@pytest.mark.parametrize("value", ["1e308", "1.5", "9223372036854775808", "-1e400", "true", "[1]", "null"])
def test_a_forged_cursor_is_refused(scenario: Scenario, value: str) -> None:
    for path, sort in (("services", "created_at"), ("jobs", "created_at"), ("events", "sequence_number")):
        text = f'["{sort}",{value},"x"]'.encode()
        cursor = base64.urlsafe_b64encode(text).decode()
        refused = scenario.consumer.get(f"/{path}", query={"after": cursor}, expect=400)
        assert refused["code"] == "bad_query"
