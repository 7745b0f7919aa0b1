"""Tokens: shown once, stored as a hash, and never stronger than their creator."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from uuid import uuid4

from control_plane import Client, Server
from scenario import Scenario


def test_a_request_without_a_valid_token_is_refused(server: Server) -> None:
    anonymous = Client(server.url)
    for headers in (
        {},
        {"Authorization": "Basic x"},
        {"Authorization": "Bearer "},
        {"Authorization": "Bearer wrong"},
    ):
        reply = anonymous.call("GET", "/api/v1/participants", headers=headers)
        assert (reply.status, reply.body["code"]) == (401, "unauthorized")


def test_the_value_is_shown_once_and_not_stored(server: Server, scenario: Scenario) -> None:
    token = scenario.admin.post("/tokens", {"name": "t", "role": "participant", "scopeId": scenario.consumer_id})
    assert scenario.admin.as_token(token["value"]).get(f"/participants/{scenario.consumer_id}")
    shown = scenario.admin.get(f"/tokens/{token['id']}")
    assert "value" not in shown
    assert shown["participantId"] == scenario.consumer_id
    events = scenario.admin.get(f"/events?entityId={token['id']}")
    assert token["value"] not in str(events)
    for file in server.data_dir.glob("mainstay.db*"):
        assert token["value"].encode() not in file.read_bytes()


def test_a_caller_may_read_its_own_token(scenario: Scenario) -> None:
    assert scenario.admin.get("/tokens/me")["role"] == "admin"
    mine = scenario.consumer.get("/tokens/me")
    assert (mine["role"], mine["participantId"]) == ("participant", scenario.consumer_id)
    assert "value" not in mine
    assert scenario.agent.get("/tokens/me")["agentId"] == scenario.agent_id


def test_a_token_expires_after_a_day_by_default(scenario: Scenario) -> None:
    body = {"name": "t", "role": "participant", "scopeId": scenario.consumer_id}
    token = scenario.admin.post("/tokens", body)
    left = datetime.fromisoformat(token["expireAt"]) - datetime.now(UTC)
    assert timedelta(hours=23) < left <= timedelta(hours=24)
    past = scenario.admin.post("/tokens", {**body, "expireAt": "2020-01-01T00:00:00Z"})
    refused = scenario.admin.as_token(past["value"]).get("/participants", expect=401)
    assert refused["code"] == "token_expired"


def test_a_regenerated_token_replaces_the_old_value(scenario: Scenario) -> None:
    token = scenario.admin.post("/tokens", {"name": "t", "role": "participant", "scopeId": scenario.consumer_id})
    renewed = scenario.admin.post(f"/tokens/{token['id']}/regenerate", expect=200)
    assert renewed["value"] != token["value"]
    scenario.admin.as_token(token["value"]).get("/participants", expect=401)
    scenario.admin.as_token(renewed["value"]).get("/participants")
    types = [event["type"] for event in scenario.admin.get(f"/events?entityId={token['id']}")["items"]]
    assert types == ["token.created", "token.regenerate"]


def test_a_participant_creates_tokens_for_itself_and_its_agents_only(scenario: Scenario) -> None:
    consumer, provider = scenario.consumer, scenario.provider
    consumer.post("/tokens", {"name": "mine", "role": "participant", "scopeId": scenario.consumer_id})
    provider.post("/tokens", {"name": "agent", "role": "agent", "scopeId": scenario.agent_id})
    for body in (
        {"name": "x", "role": "admin"},
        {"name": "x", "role": "participant", "scopeId": scenario.provider_id},
        {"name": "x", "role": "agent", "scopeId": scenario.agent_id},
        {"name": "x", "role": "participant", "scopeId": str(uuid4())},
        {"name": "x", "role": "agent", "scopeId": str(uuid4())},
    ):
        refused = consumer.post("/tokens", body, expect=403)
        assert refused["code"] == "escalation"


def test_an_agent_cannot_create_tokens(scenario: Scenario) -> None:
    scenario.agent.post("/tokens", {"name": "x", "role": "agent", "scopeId": scenario.agent_id}, expect=403)


def test_a_deleted_token_is_refused(scenario: Scenario) -> None:
    token = scenario.admin.post("/tokens", {"name": "t", "role": "participant", "scopeId": scenario.consumer_id})
    scenario.admin.delete(f"/tokens/{token['id']}")
    scenario.admin.as_token(token["value"]).get("/participants", expect=401)
    scenario.admin.get(f"/tokens/{token['id']}", expect=404)


def test_a_token_can_be_renamed_and_extended(scenario: Scenario) -> None:
    token = scenario.admin.post("/tokens", {"name": "t", "role": "participant", "scopeId": scenario.consumer_id})
    changed = scenario.admin.patch(f"/tokens/{token['id']}", {"name": "u", "expireAt": "2099-01-01T00:00:00+01:00"})
    assert (changed["name"], changed["expireAt"]) == ("u", "2098-12-31T23:00:00Z")


def test_invalid_scopes_are_refused(scenario: Scenario) -> None:
    for body in (
        {"name": "x", "role": "admin", "scopeId": scenario.consumer_id},
        {"name": "x", "role": "participant"},
        {"name": "x", "role": "agent", "scopeId": scenario.consumer_id},
        {"name": "x", "role": "participant", "scopeId": scenario.agent_id},
        {"name": "x", "role": "king"},
        {"role": "admin"},
        {"name": "x", "role": "admin", "expireAt": "2030-01-01T00:00:00"},
    ):
        scenario.admin.post("/tokens", body, expect=400)
