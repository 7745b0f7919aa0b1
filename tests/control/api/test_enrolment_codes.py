"""Enrolment codes for many hosts: places, lifetime, tags and names of the agents they create."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from control_plane import Client, Reply, Server
from scenario import Scenario, unique

CONFIGURED = {"endpoint": {"type": "string", "required": True}}


def create(scenario: Scenario, caller: Client | None = None, *, expect: int = 201, **members: Any) -> Any:
    body = {"agentTypeId": scenario.agent_type_id, "providerId": scenario.provider_id, "count": 2} | members
    return (caller or scenario.provider).post("/enrolment-codes", body, expect=expect)


def enrol(server: Server, code: str, name: str | None = None) -> Reply:
    body = {"code": code} | ({} if name is None else {"name": name})
    return Client(server.url).call("POST", "/api/v1/enrol", body)


def is_wrong_code(reply: Reply) -> bool:
    """Wrong codes of all tests of this address count together."""
    return (reply.status, reply.body["code"]) in ((403, "bad_code"), (429, "too_many_failures"))


def test_a_code_enrolls_as_many_hosts_as_it_counts(server: Server, scenario: Scenario) -> None:
    made = create(scenario, tags=["zone=a", "ssd"], namePrefix="fra-", lifetimeSeconds=3600)
    assert (made["count"], made["usesLeft"], made["tags"]) == (2, 2, ["zone=a", "ssd"])
    host = unique("host")
    first = enrol(server, made["code"], host).body
    agent = scenario.admin.get(f"/agents/{first['agentId']}")
    assert (agent["name"], agent["tags"], agent["status"]) == (f"fra-{host}", ["zone=a", "ssd"], "New")
    assert (agent["providerId"], agent["agentTypeId"]) == (scenario.provider_id, scenario.agent_type_id)
    # Its token is that of an agent, without expiry, and ends with it.
    itself = scenario.admin.as_token(first["token"])
    assert itself.get("/agents/me")["id"] == agent["id"]
    (token,) = scenario.admin.get(f"/tokens?agentId={agent['id']}")["items"]
    assert "expireAt" not in token
    # The list has everything but the code.
    (listed,) = scenario.provider.get(f"/enrolment-codes?providerId={scenario.provider_id}")["items"]
    assert (listed["id"], listed["usesLeft"], listed["agentType"]["id"]) == (made["id"], 1, scenario.agent_type_id)
    assert listed.keys() == made.keys() - {"code"}
    assert made["code"] not in str(scenario.admin.get(f"/events?entityId={made['id']}&pageSize=100"))
    assert enrol(server, made["code"], unique("host")).status == 201
    assert is_wrong_code(enrol(server, made["code"], unique("host")))
    scenario.provider.delete(f"/agents/{agent['id']}")
    itself.get("/agents/me", expect=401)
    # A place is not given back.
    assert is_wrong_code(enrol(server, made["code"], unique("host")))


def test_hosts_that_race_for_the_last_places_get_one_each(server: Server, scenario: Scenario) -> None:
    made = create(scenario, count=3)
    with ThreadPoolExecutor(8) as threads:
        replies = list(threads.map(lambda _: enrol(server, made["code"], unique("race")), range(8)))
    assert sum(is_wrong_code(each) for each in replies if each.status != 201) == 5
    assert len({each.body["agentId"] for each in replies if each.status == 201}) == 3
    assert scenario.provider.get(f"/enrolment-codes/{made['id']}")["usesLeft"] == 0


def test_every_use_is_an_event_that_names_the_agent_and_the_creator(server: Server, scenario: Scenario) -> None:
    made = create(scenario, scenario.admin)
    agent_id = enrol(server, made["code"], unique("host")).body["agentId"]
    events = scenario.provider.get(f"/events?entityId={made['id']}&sort=createdAt")["items"]
    assert [each["type"] for each in events] == ["enrolment_code.created", "enrolment_code.updated"]
    assert events[1]["properties"]["agentId"] == agent_id
    assert events[1]["initiatorId"] == made["initiatorId"]
    (created,) = scenario.admin.get(f"/events?entityId={agent_id}&type=agent.created")["items"]
    assert (created["initiatorId"], created["initiatorRole"]) == (made["initiatorId"], "admin")
    # A provider learns that an admin created the code, not the name of the admin's token.
    shown = scenario.provider.get(f"/enrolment-codes/{made['id']}")
    assert (shown["initiatorRole"], shown["initiator"]) == ("admin", None)
    assert scenario.admin.get(f"/enrolment-codes/{made['id']}")["initiator"]["id"] == made["initiatorId"]


def test_a_refused_host_takes_no_place(server: Server, scenario: Scenario) -> None:
    made = create(scenario, count=1)
    host = unique("Host")
    scenario.provider.post(
        "/agents",
        {"name": host.lower(), "providerId": scenario.provider_id, "agentTypeId": scenario.agent_type_id},
    )
    assert enrol(server, made["code"]).body["code"] == "name_required"
    taken = enrol(server, made["code"], host)
    assert (taken.status, taken.body["code"]) == (409, "name_taken")
    assert "already has an agent" in taken.body["error"]
    for name in ("", "a\nb", "x" * 256, "\u202egpj"):
        assert enrol(server, made["code"], name).status == 400
    assert scenario.provider.get(f"/enrolment-codes/{made['id']}")["usesLeft"] == 1
    assert enrol(server, made["code"], unique("other")).status == 201


def test_two_hosts_of_one_name_get_one_agent_with_two_codes(server: Server, scenario: Scenario) -> None:
    codes = [create(scenario)["code"] for _ in range(4)]
    name = unique("twin")
    with ThreadPoolExecutor(4) as threads:
        statuses = list(threads.map(lambda code: enrol(server, code, name).status, codes))
    assert sorted(statuses) == [201, 409, 409, 409]


def test_a_revoked_code_enrolls_no_host_and_its_agents_stay(server: Server, scenario: Scenario) -> None:
    made = create(scenario)
    agent_id = enrol(server, made["code"], unique("host")).body["agentId"]
    scenario.stranger.delete(f"/enrolment-codes/{made['id']}", expect=404)
    scenario.stranger.get(f"/enrolment-codes/{made['id']}", expect=404)
    scenario.provider.delete(f"/enrolment-codes/{made['id']}")
    assert is_wrong_code(enrol(server, made["code"], unique("host")))
    assert scenario.provider.get(f"/agents/{agent_id}")["id"] == agent_id


def test_the_code_of_a_disabled_provider_enrolls_no_host(server: Server, scenario: Scenario) -> None:
    made = create(scenario)
    scenario.admin.patch(f"/participants/{scenario.provider_id}", {"status": "Disabled"})
    assert enrol(server, made["code"], unique("host")).body["code"] == "disabled"
    scenario.admin.patch(f"/participants/{scenario.provider_id}", {"status": "Enabled"})
    assert enrol(server, made["code"], unique("host")).status == 201


def test_a_code_ends_with_its_provider(server: Server, scenario: Scenario) -> None:
    provider = scenario.admin.post("/participants", {"name": unique("p")})
    made = create(scenario, scenario.admin, providerId=provider["id"])
    scenario.admin.delete(f"/participants/{provider['id']}")
    scenario.admin.get(f"/enrolment-codes/{made['id']}", expect=404)
    assert is_wrong_code(enrol(server, made["code"], unique("host")))


@pytest.mark.parametrize(
    "members",
    [
        {"count": 0},
        {"count": -1},
        {"count": 10**9},
        {"count": "2"},
        {"count": True},
        {"lifetimeSeconds": 0},
        {"lifetimeSeconds": 59},
        {"lifetimeSeconds": 8 * 24 * 3600},
        {"lifetimeSeconds": 10**30},
        {"tags": ["x"] * 101},
        {"tags": ["a\nb"]},
        {"tags": ["\u202e"]},
        {"tags": [""]},
        {"tags": ["x" * 101]},
        {"tags": [{"a": 1}]},
        {"namePrefix": "x" * 101},
        {"namePrefix": "a\u0000"},
        {"usesLeft": 5},
        {"code": "mine"},
    ],
    ids=str,
)
def test_a_code_has_bounds(scenario: Scenario, members: dict[str, Any]) -> None:
    create(scenario, expect=400, **members)


def test_a_code_gives_no_more_rights_than_its_creator_has(server: Server, scenario: Scenario) -> None:
    create(scenario, scenario.stranger, expect=403)
    create(scenario, scenario.agent, expect=403)
    assert "plane:" in create(scenario, tags=["plane:trusted"], expect=403)["error"]
    create(scenario, grant=True, expect=403)
    create(scenario, scenario.admin, agentTypeId=scenario.provider_id, expect=400)
    create(scenario, scenario.admin, providerId=scenario.agent_type_id, expect=400)
    # Not longer than the caller's token.
    assert create(scenario, lifetimeSeconds=2 * 24 * 3600, expect=403)["code"] == "escalation"
    made = create(scenario, scenario.admin, tags=["plane:trusted"], lifetimeSeconds=2 * 24 * 3600)
    agent_id = enrol(server, made["code"], unique("host")).body["agentId"]
    assert scenario.admin.get(f"/agents/{agent_id}")["tags"] == ["plane:trusted"]


def test_the_code_of_an_admin_grants_as_an_agent_of_an_admin_does(scenario: Scenario) -> None:
    for grant, granted in ((False, False), (None, True)):
        agent_type = scenario.agent_type()
        create(scenario, scenario.admin, agentTypeId=agent_type["id"], grant=grant)
        read = scenario.admin.get(f"/agent-types/{agent_type['id']}")
        assert (scenario.provider_id in read["providerIds"]) is granted


@pytest.mark.parametrize("end", ["delete", "regenerate", "expire", "disable"])
def test_a_code_ends_with_the_token_that_made_it(server: Server, scenario: Scenario, end: str) -> None:
    admin = scenario.admin
    participant_id = scenario.participant()
    role = {"name": unique("maker"), "role": "participant", "scopeId": participant_id}
    token = admin.post("/tokens", role if end == "disable" else {"name": unique("maker"), "role": "admin"})
    maker = admin.as_token(token["value"])
    provider_id = participant_id if end == "disable" else scenario.provider_id
    agent = scenario.new_agent(providerId=provider_id)
    many = create(scenario, maker, providerId=provider_id, lifetimeSeconds=3600)
    one = maker.post(f"/agents/{agent['id']}/enrolment-codes")
    assert enrol(server, many["code"], unique("host")).status == 201
    path = f"/tokens/{token['id']}"
    if end == "delete":
        ended = admin.call("DELETE", f"/api/v1{path}", expect=200).body
        assert [(each["id"], each["usesLeft"]) for each in ended["enrolmentCodes"]] == [(many["id"], 1)]
        assert ended["agentIds"] == [agent["id"]]
        admin.get(f"/enrolment-codes/{many['id']}", expect=404)
        (event,) = admin.get(f"/events?entityId={many['id']}&type=enrolment_code.deleted")["items"]
        assert event["initiatorId"] != token["id"]
    elif end == "regenerate":
        admin.post(f"{path}/regenerate", expect=200)
    elif end == "expire":
        admin.patch(path, {"expireAt": "2020-01-01T00:00:00Z"})
    else:
        admin.patch(f"/participants/{participant_id}", {"status": "Disabled"})
    for reply in (enrol(server, many["code"], unique("host")), enrol(server, one["code"])):
        assert (reply.status, reply.body["code"]) == (403, "disabled") if end == "disable" else is_wrong_code(reply)


def test_an_admin_may_let_a_code_outlive_its_token(server: Server, scenario: Scenario) -> None:
    token = scenario.admin.post("/tokens", {"name": unique("maker"), "role": "admin"})
    maker = scenario.admin.as_token(token["value"])
    week = 7 * 24 * 3600
    refused = create(scenario, maker, lifetimeSeconds=week, expect=403)
    assert (refused["code"], "outlivesToken" in refused["error"]) == ("escalation", True)
    assert create(scenario, outlivesToken=True, expect=403)["code"] == "escalation"
    made = create(scenario, maker, lifetimeSeconds=week, outlivesToken=True)
    assert made["outlivesToken"] is True
    scenario.admin.call("DELETE", f"/api/v1/tokens/{token['id']}", expect=204)
    assert enrol(server, made["code"], unique("host")).status == 201


def test_a_type_whose_agents_need_a_configuration_is_refused_with_the_missing_values(scenario: Scenario) -> None:
    agent_type = scenario.agent_type(configurationSchema=CONFIGURED)
    refused = create(scenario, agentTypeId=agent_type["id"], expect=400)
    assert [fault["path"] for fault in refused["errors"]] == ["configuration.endpoint"]
    optional = scenario.agent_type(configurationSchema={"size": {"type": "integer", "default": 3}})
    create(scenario, agentTypeId=optional["id"])


def test_the_code_of_one_agent_takes_no_other_name(server: Server, scenario: Scenario) -> None:
    code = scenario.provider.post(f"/agents/{scenario.agent_id}/enrolment-codes")["code"]
    assert "omit the name" in enrol(server, code, unique("other")).body["error"]
    name = scenario.admin.get(f"/agents/{scenario.agent_id}")["name"]
    assert enrol(server, code, name).body["agentId"] == scenario.agent_id


def test_a_provider_has_at_most_a_hundred_open_codes(scenario: Scenario) -> None:
    for _ in range(100):
        create(scenario, scenario.admin)
    assert create(scenario, expect=409)["code"] == "too_many_codes"
