"""Moves in a browser without script: a form with the possible targets, the plan, then the move."""

from __future__ import annotations

from typing import Any

import pytest

from browser_session import WebSession, signed_in
from control_plane import Server
from form_pages import submit, text_of
from moving import MovingScenario, PlayedAgent
from scenario import Scenario


@pytest.fixture
def moving(scenario: Scenario) -> MovingScenario:
    return MovingScenario(scenario)


@pytest.fixture
def consumer(server: Server, scenario: Scenario) -> WebSession:
    return signed_in(server.url, str(scenario.consumer.token))


@pytest.fixture
def target(moving: MovingScenario, scenario: Scenario) -> PlayedAgent:
    """Not connected, so that plans do not wait for it."""
    agent = moving.agent("10.1.0.1")
    scenario.admin.patch(f"/agents/{agent.id}", {"status": "Disconnected"})
    return agent


@pytest.fixture
def service(moving: MovingScenario) -> Any:
    return moving.order(moving.agent("10.0.0.1"))


def test_a_service_is_moved_with_a_form(
    moving: MovingScenario, consumer: WebSession, service: Any, target: PlayedAgent
) -> None:
    page, path = f"/services/{service['id']}", f"/services/{service['id']}/move"
    assert path in consumer.get(page).text
    form = consumer.get(path)
    assert target.id in form.text
    assert service["agentId"] not in form.text
    refused = submit(consumer, path, form, expect=409, agentId=target.id)
    assert "is not connected (Disconnected): the service would wait for it" in text_of(refused)
    assert "Move although the agent is not connected" in text_of(refused)
    plan = submit(consumer, path, refused, agentId=target.id, force="true")
    assert "10.1.0.1" in plan.text
    assert "now, and after the move" in text_of(plan)
    assert "applies manifests/all.yaml once it connects: it is offline" in text_of(plan)
    assert f"the host of {service['agent']['name']} is not cleaned up" in text_of(plan)
    reply = submit(consumer, path, plan, expect=303, step="place")
    assert reply.location == page
    target.complete(service)
    assert moving.scenario.service(service["id"])["agentId"] == target.id
    assert "Another host may not be clean" in consumer.get(page).text


def test_a_form_without_a_target_is_refused_at_its_field(consumer: WebSession, service: Any) -> None:
    path = f"/services/{service['id']}/move"
    refused = submit(consumer, path, consumer.get(path), expect=400)
    assert "Choose the agent that gets the service" in text_of(refused)


def test_a_refused_move_keeps_the_form(
    moving: MovingScenario, consumer: WebSession, service: Any, target: PlayedAgent
) -> None:
    path = f"/services/{service['id']}/move"
    form = consumer.get(path)
    moving.scenario.do(service, "start")
    refused = submit(consumer, path, form, expect=409, agentId=target.id)
    assert "the service has an active job" in text_of(refused)


def test_a_service_that_cannot_move_has_no_link(scenario: Scenario, consumer: WebSession) -> None:
    fixed = MovingScenario(scenario, movable=False)
    service = fixed.order(fixed.agent("10.0.0.1"))
    page = f"/services/{service['id']}"
    assert f"{page}/move" not in consumer.get(page).text
