"""Drains: an agent takes no new services, and its services go to other agents of its provider, one after another."""

from __future__ import annotations

import time
from typing import Any

import pytest

from control_plane import Client
from moving import MovingScenario, PlayedAgent
from scenario import Scenario, unique


@pytest.fixture
def moving(scenario: Scenario) -> MovingScenario:
    return MovingScenario(scenario)


@pytest.fixture
def old(moving: MovingScenario) -> PlayedAgent:
    return moving.agent("10.0.0.1", "10.0.0.2", "10.0.0.3")


def drain_until(client: Client, agent: PlayedAgent, reached: Any) -> Any:
    """The drain, once it is as wanted."""
    until = time.monotonic() + 20
    while True:
        found = client.get(f"/agents/{agent.id}/drain")
        if reached(found):
            return found
        assert time.monotonic() < until, found
        time.sleep(0.05)


def is_done(found: Any) -> bool:
    return "moving" not in found


def runs_one_of(found: Any, services: Any) -> bool:
    """A move that has ended is shown until the next one starts."""
    return bool(found.get("moving", {}).get("jobId")) and found["moving"]["serviceId"] in services


def test_a_draining_agent_takes_no_service_and_no_move(moving: MovingScenario, old: PlayedAgent) -> None:
    scenario = moving.scenario
    path = f"/agents/{old.id}/drain"
    service = moving.order(moving.agent("10.1.0.1"))
    stays = moving.order(old, instance="two")
    assert scenario.provider.get(path) == {"draining": False, "move": False, "since": None, "left": []}
    drained = scenario.provider.put(path)
    assert (drained["draining"], drained["move"], "moving" in drained) == (True, False, False)
    assert drained["left"] == [
        {"serviceId": stays["id"], "serviceName": stays["name"], "reason": "the drain does not move services"}
    ]
    assert scenario.admin.get(f"/agents/{old.id}")["draining"] is True
    body = {"name": unique("s"), "serviceTypeId": moving.kind["id"], "groupId": scenario.group_id}
    body["properties"] = {"size": 1, "password": "p"}
    # The agent of the first service has no free value, that of the scenario no pool.
    refused = scenario.admin.post("/services", body, expect=400)
    assert refused["code"] == "no_capacity"
    assert sorted(each["reason"] for each in refused["reasons"]) == ["draining", "no_pool", "pool_used_up"]
    for client in (scenario.admin, scenario.consumer):
        assert client.post("/services", {**body, "agentId": old.id}, expect=400)["code"] == "agent_draining"
        assert moving.move(service, old, client=client, expect=400)["code"] == "agent_draining"
    scenario.provider.delete(path)
    scenario.provider.delete(path)
    assert scenario.consumer.post("/services", body)["agentId"] == old.id


@pytest.mark.test_all
def test_the_services_of_a_drain_move_one_after_another(moving: MovingScenario, old: PlayedAgent) -> None:
    services = {each["id"]: each for each in (moving.order(old, instance=f"i{number}") for number in range(3))}
    new = moving.agent("10.1.0.1", "10.1.0.2")
    provider = moving.scenario.provider
    path = f"/agents/{old.id}/drain"
    first = provider.put(path, {"move": True})
    assert first["moving"]["serviceId"] in services
    for _ in range(2):
        running = drain_until(provider, old, lambda found: runs_one_of(found, services))["moving"]
        pending = new.client.get("/jobs/pending?limit=100")
        assert [job["serviceId"] for job in pending] == [running["serviceId"]]
        new.complete(services.pop(running["serviceId"]))
    done = drain_until(provider, old, is_done)
    (left,) = services.values()
    name = moving.scenario.admin.get(f"/agents/{new.id}")["name"]
    assert [(each["serviceId"], each["serviceName"]) for each in done["left"]] == [(left["id"], left["name"])]
    assert f"{name}: pool address is used up (2 of 2)" in done["left"][0]["reason"]
    # The caller that drained is the one that moves.
    events = moving.scenario.admin.get("/events?type=job.created&sort=-createdAt&pageSize=100")["items"]
    moves = [each for each in events if each["agentId"] == new.id]
    drained_by = moving.scenario.admin.get("/events?type=agent.updated&sort=-createdAt&pageSize=100")["items"]
    assert {each["initiatorId"] for each in moves} == {
        each["initiatorId"] for each in drained_by if each["entityId"] == old.id and "/draining" in str(each)
    }
    third = moving.agent("10.2.0.1")
    provider.put(path, {"move": True})
    drain_until(provider, old, lambda found: found.get("moving", {}).get("jobId"))
    third.complete(left)
    assert drain_until(provider, old, is_done)["left"] == []


def test_what_cannot_move_is_left_with_its_reason(scenario: Scenario) -> None:
    fixed = MovingScenario(scenario, movable=False)
    old = fixed.agent("10.0.0.1")
    service = fixed.order(old)
    fixed.agent("10.1.0.1")
    scenario.provider.put(f"/agents/{old.id}/drain", {"move": True})
    (left,) = drain_until(scenario.provider, old, is_done)["left"]
    assert left["serviceId"] == service["id"]
    assert "does not say `movable: true`" in left["reason"]


@pytest.mark.test_all
def test_a_failed_move_is_left_with_its_message_and_a_new_put_tries_again(
    moving: MovingScenario, old: PlayedAgent
) -> None:
    service, new = moving.order(old), moving.agent("10.1.0.1", "10.1.0.2")
    provider, path = moving.scenario.provider, f"/agents/{old.id}/drain"
    provider.put(path, {"move": True})
    drain_until(provider, old, lambda found: found.get("moving", {}).get("jobId"))
    new.fail(service, "the disk is full")
    (left,) = drain_until(provider, old, is_done)["left"]
    assert (left["serviceId"], left["reason"]) == (service["id"], "the disk is full")
    provider.put(path, {"move": True})
    (left,) = drain_until(provider, old, is_done)["left"]
    assert "still owes a clean-up of this service" in left["reason"]
    new.confirm()
    provider.put(path, {"move": True})
    drain_until(provider, old, lambda found: found.get("moving", {}).get("jobId"))
    new.complete(service)
    assert drain_until(provider, old, is_done)["left"] == []
    assert moving.scenario.service(service["id"])["agentId"] == new.id


def test_a_service_with_a_job_moves_after_it(moving: MovingScenario, old: PlayedAgent) -> None:
    service, new = moving.order(old), moving.agent("10.1.0.1")
    moving.scenario.do(service, "start")
    provider = moving.scenario.provider
    provider.put(f"/agents/{old.id}/drain", {"move": True})
    waiting = drain_until(provider, old, lambda found: True)
    assert waiting["moving"] == {"serviceId": service["id"], "serviceName": service["name"], "jobId": None}
    old.complete(service)
    drain_until(provider, old, lambda found: found.get("moving", {}).get("jobId"))
    new.complete(service)
    assert drain_until(provider, old, is_done)["left"] == []


@pytest.mark.parametrize("status", ["Disconnected", "Disabled"])
def test_services_go_to_connected_agents_of_the_same_provider_only(
    moving: MovingScenario, old: PlayedAgent, status: str
) -> None:
    scenario = moving.scenario
    moving.order(old)
    other = scenario.participant("other")
    moving.agent("10.1.0.1", providerId=other)
    offline = moving.agent("10.2.0.1")
    scenario.admin.patch(f"/agents/{offline.id}", {"status": status})
    scenario.admin.put(f"/agents/{old.id}/drain", {"move": True})
    (left,) = drain_until(scenario.admin, old, is_done)["left"]
    name = scenario.admin.get(f"/agents/{offline.id}")["name"]
    assert f"{name}: {'disabled' if status == 'Disabled' else 'not connected'}" in left["reason"]
    # That of the scenario has never connected; those of other providers are not mentioned.
    assert left["reason"].count("agent-") == 2


def test_only_admins_and_the_provider_drain(moving: MovingScenario, old: PlayedAgent) -> None:
    path = f"/agents/{old.id}/drain"
    for client, status in ((moving.scenario.consumer, 404), (moving.scenario.stranger, 404), (old.client, 403)):
        client.put(path, expect=status)
        client.get(path, expect=status)
        client.delete(path, expect=status)
    moving.scenario.admin.put(path, {"mov": True}, expect=400)
