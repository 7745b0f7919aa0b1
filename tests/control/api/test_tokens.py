"""Tokens: shown once, stored as a hash, and never stronger than their creator."""

from __future__ import annotations

import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from control_plane import Client, Server, running
from mainstay.control.api.contract import Endpoint
from mainstay.control.api.endpoints import all_endpoints
from sample_rows import SampleRows
from scenario import Scenario, unique


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


def later(hours: float) -> str:
    return (datetime.now(UTC) + timedelta(hours=hours)).isoformat()


def short_lived(scenario: Scenario, hours: float = 1) -> Client:
    """A token of the provider that expires soon."""
    body = {"name": unique("t"), "role": "participant", "scopeId": scenario.provider_id, "expireAt": later(hours)}
    return scenario.admin.as_token(scenario.admin.post("/tokens", body)["value"])


def test_a_token_made_by_a_participant_lives_no_longer_than_its_own(scenario: Scenario) -> None:
    mine = short_lived(scenario)
    own = mine.get("/tokens/me")["expireAt"]
    agent = scenario.agent_id
    for role, scope in (("participant", scenario.provider_id), ("agent", agent)):
        body = {"name": "t", "role": role, "scopeId": scope}
        assert mine.post("/tokens", body)["expireAt"] == own
        assert mine.post("/tokens", {**body, "expireAt": own})["expireAt"] == own
        assert mine.post("/tokens", {**body, "expireAt": later(0.5)})["expireAt"] < own
        for late in (later(2), "9990-01-01T00:00:00Z"):
            assert mine.post("/tokens", {**body, "expireAt": late}, expect=403)["code"] == "escalation"
    # A token that outlives a day gives a day by default.
    lasting = short_lived(scenario, hours=48)
    made = lasting.post("/tokens", {"name": "t", "role": "participant", "scopeId": scenario.provider_id})
    assert made["expireAt"] < later(24.1)


def test_a_participant_cannot_extend_a_token_beyond_its_own(scenario: Scenario) -> None:
    mine = short_lived(scenario)
    me = mine.get("/tokens/me")
    path = f"/tokens/{me['id']}"
    for late in (later(2), "9990-01-01T00:00:00Z"):
        assert mine.patch(path, {"expireAt": late}, expect=403)["code"] == "escalation"
    assert mine.patch(path, {"expireAt": me["expireAt"], "name": "u"})["name"] == "u"
    lasting = scenario.admin.post(
        "/tokens", {"name": "l", "role": "participant", "scopeId": scenario.provider_id, "expireAt": later(48)}
    )
    longer = f"/tokens/{lasting['id']}"
    mine.patch(longer, {"expireAt": later(49)}, expect=403)
    assert mine.patch(longer, {"name": "x", "expireAt": lasting["expireAt"]})["expireAt"] == lasting["expireAt"]
    assert mine.patch(longer, {"expireAt": later(30)})["expireAt"] < lasting["expireAt"]
    assert mine.patch(path, {"expireAt": later(0.5)})["expireAt"] < me["expireAt"]


def test_a_participant_regenerates_a_token_with_its_expiry_unchanged(scenario: Scenario) -> None:
    mine = short_lived(scenario)
    me = mine.get("/tokens/me")
    made = mine.post(f"/tokens/{me['id']}/regenerate", expect=200)
    assert made["expireAt"] == me["expireAt"]
    assert scenario.admin.post(f"/tokens/{me['id']}/regenerate", expect=200)["expireAt"] > later(23)


def test_the_token_of_an_enrolled_agent_is_listed_and_ends_with_the_agent(scenario: Scenario, server: Server) -> None:
    agent = scenario.new_agent()["id"]
    code = scenario.provider.post(f"/agents/{agent}/enrolment-codes")["code"]
    token = Client(server.url).post("/enrol", {"code": code})["token"]
    (listed,) = scenario.provider.get(f"/tokens?agentId={agent}")["items"]
    assert "expireAt" not in listed
    assert (listed["role"], listed["readOnly"]) == ("agent", False)
    enrolled = scenario.admin.as_token(token)
    assert enrolled.get("/agents/me")["id"] == agent
    scenario.provider.delete(f"/agents/{agent}")
    enrolled.get("/agents/me", expect=401)
    assert scenario.provider.get(f"/tokens?agentId={agent}")["items"] == []


GUARDED = [endpoint for endpoint in all_endpoints() if endpoint.access is not None]


def named(endpoint: Endpoint) -> str:
    return f"{endpoint.method} {endpoint.path}"


@pytest.fixture(scope="module")
def rows(embedded: Server) -> SampleRows:
    return SampleRows(embedded.admin)


@pytest.fixture(scope="module")
def readers(rows: SampleRows) -> list[Client]:
    admin = rows.clients["admin"]
    bodies = [
        {"role": "admin"},
        {"role": "participant", "scopeId": rows.named["consumerId"]},
        {"role": "participant", "scopeId": rows.named["providerId"]},
    ]
    made = [admin.post("/tokens", {"name": unique("r"), "readOnly": True, **body}) for body in bodies]
    assert all(token["readOnly"] is True for token in made)
    return [admin.as_token(token["value"]) for token in made]


@pytest.mark.parametrize("endpoint", GUARDED, ids=named)
def test_a_read_only_token_may_only_read_and_validate(
    rows: SampleRows, readers: list[Client], endpoint: Endpoint
) -> None:
    if endpoint.path.endswith("/stream"):
        return
    # An install configuration opens secrets.
    opens = endpoint.path.endswith("/config")
    may = (endpoint.method == "GET" and not opens) or endpoint.path.endswith("/validate")
    offered = {parameter.name for parameter in endpoint.query}
    queries = ["", *(f"?{name}=true" for name in ("dryRun", "plan") if name in offered)]
    for reader in readers:
        for query in queries:
            reply = reader.call(endpoint.method, f"{rows.path(endpoint)}{query}", {})
            if may:
                assert reply.status != 403 or reply.body["code"] != "read_only"
            else:
                assert reply.status == 403, reply.body
                assert reply.body["code"] in ("read_only", "forbidden")


def test_a_read_only_token_reads_what_its_owner_reads(rows: SampleRows, readers: list[Client]) -> None:
    admin, consumer, _ = readers
    for reader in (admin, consumer):
        assert reader.get(f"/services/{rows.ids['services']}")["id"] == rows.ids["services"]
        body: dict[str, object] = {"properties": {}}
        assert reader.post(f"/service-types/{rows.ids['service-types']}/validate", body, expect=200)["valid"] is True
        stream = reader.open_stream("/api/v1/events/stream")
        assert stream.status == 200
        stream.close()


def test_a_read_only_token_stays_so(scenario: Scenario) -> None:
    body = {"name": "r", "role": "participant", "scopeId": scenario.provider_id, "readOnly": True}
    token = scenario.provider.post("/tokens", body)
    path = f"/tokens/{token['id']}"
    scenario.admin.patch(path, {"readOnly": False}, expect=400)
    assert scenario.admin.patch(path, {"readOnly": True})["readOnly"] is True
    assert scenario.admin.post(f"{path}/regenerate", expect=200)["readOnly"] is True
    scenario.provider.post("/tokens", {**body, "role": "agent", "scopeId": scenario.agent_id}, expect=400)


def admin_token(client: Client, **more: Any) -> Any:
    return client.post("/tokens", {"name": unique("a"), "role": "admin", **more})


@pytest.fixture(params=["sqlite", "postgresql"])
def lonely(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[Server, str | None]]:
    """A server of its own, whose admin tokens the test may delete."""
    url = request.getfixturevalue("postgresql").new_database() if request.param == "postgresql" else None
    with running(tmp_path / "data", database_url=url, environment={"VAULT_ENCRYPTION_KEY": "ab" * 32}) as server:
        yield server, url


def test_the_last_admin_token_cannot_be_ended(lonely: tuple[Server, str | None], tmp_path: Path) -> None:
    server, url = lonely
    first = server.admin
    path = f"/tokens/{first.get('/tokens/me')['id']}"
    admin_token(first, readOnly=True)
    admin_token(first, expireAt="2020-01-01T00:00:00Z")
    assert first.delete(path, expect=409)["code"] == "last_admin"
    for when in (later(1), "2020-01-01T00:00:00Z"):
        assert first.patch(path, {"expireAt": when}, expect=409)["code"] == "last_admin"
    assert first.patch(path, {"name": "renamed"})["name"] == "renamed"
    # Of many tokens deleted at the same time one remains.
    others = [admin_token(first) for _ in range(6)]
    clients = [first, *(first.as_token(other["value"]) for other in others)]
    paths = [path, *(f"/tokens/{other['id']}" for other in others)]
    with ThreadPoolExecutor(len(clients)) as threads:
        replies = list(
            threads.map(lambda each: each[0].call("DELETE", f"/api/v1{each[1]}"), zip(clients, paths, strict=True))
        )
    assert sorted(reply.status for reply in replies) == [204] * 6 + [409]
    (left,) = [client for client, reply in zip(clients, replies, strict=True) if reply.status == 409]
    mine = left.get("/tokens/me")
    # Once there is another, it may end. At the next start expired tokens do not count.
    seconds = 3
    admin_token(left, expireAt=later(seconds / 3600))
    left.delete(f"/tokens/{mine['id']}")
    time.sleep(seconds)
    server.stop()
    with running(tmp_path / "data", database_url=url, environment={"VAULT_ENCRYPTION_KEY": "ab" * 32}) as again:
        assert again.admin.get("/tokens/me")["name"] == "first admin"


def test_a_token_shows_when_it_was_last_used(scenario: Scenario) -> None:
    made = scenario.admin.post("/tokens", {"name": "x", "role": "participant", "scopeId": scenario.consumer_id})
    assert "lastUsedAt" not in scenario.admin.get(f"/tokens/{made['id']}")
    events = scenario.admin.get("/events", query={"entityId": made["id"]})["totalItems"]
    Client(scenario.admin.url, made["value"]).get("/services")
    used = scenario.admin.get(f"/tokens/{made['id']}")
    assert used["lastUsedAt"] >= made["createdAt"]
    Client(scenario.admin.url, made["value"]).get("/services")
    # Stored at intervals, and no event of its own.
    assert scenario.admin.get(f"/tokens/{made['id']}") == used
    assert scenario.admin.get("/events", query={"entityId": made["id"]})["totalItems"] == events
