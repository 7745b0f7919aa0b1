"""`mainstay move`: plan, progress, result, refusals and completion."""

from __future__ import annotations

import json
import threading
from typing import Any

import pytest

from command_line import Shell
from moving import MovingScenario, PlayedAgent
from scenario import Scenario, unique


@pytest.fixture
def moving(scenario: Scenario) -> MovingScenario:
    return MovingScenario(scenario)


@pytest.fixture
def service(moving: MovingScenario) -> Any:
    return moving.order(moving.agent("10.0.0.1"), name=unique("shop"))


@pytest.fixture
def target(moving: MovingScenario) -> PlayedAgent:
    return moving.agent("10.1.0.1", name=unique("web"))


def name_of(moving: MovingScenario, agent: PlayedAgent) -> str:
    return str(moving.scenario.admin.get(f"/agents/{agent.id}")["name"])


def working(agent: PlayedAgent, **body: Any) -> threading.Thread:
    """Ends the next job of the agent as soon as there is one."""

    def work() -> None:
        (job,) = agent.client.get("/jobs/pending?wait=30")
        agent.client.post(f"/jobs/{job['id']}/claim", expect=204)
        agent.client.post(f"/jobs/{job['id']}/{'fail' if body else 'complete'}", body, expect=204)

    thread = threading.Thread(target=work)
    thread.start()
    return thread


def test_a_move_is_followed_to_its_end(
    shell: Shell, moving: MovingScenario, service: Any, target: PlayedAgent
) -> None:
    name = name_of(moving, target)
    thread = working(target)
    done = shell.run(moving.scenario.consumer, "move", service["name"], "--agent", name)
    thread.join()
    assert f"to {name}." in done.stdout
    assert f"{service['name']}: Stopped, create completed" in done.stdout
    assert "an agent owes a clean-up" in shell.run(moving.scenario.consumer, "show", service["id"]).stdout
    assert "moved" in shell.run(moving.scenario.admin, "orphans", "show", service["name"]).stdout


def test_a_failed_move_exits_with_1(shell: Shell, moving: MovingScenario, service: Any, target: PlayedAgent) -> None:
    thread = working(target, errorMessage="no disk")
    done = shell.run(moving.scenario.consumer, "move", service["id"], "--agent", target.id, "--json", code=1)
    thread.join()
    document = json.loads(done.stdout)
    assert (document["agentId"], document["lastJob"]["isMove"]) == (service["agentId"], True)
    assert document["lastJob"]["status"] == "Failed"


def test_a_dry_run_shows_the_new_values(
    shell: Shell, moving: MovingScenario, service: Any, target: PlayedAgent
) -> None:
    done = shell.run(moving.scenario.consumer, "move", service["id"], "--agent", target.id, "--dry-run")
    assert "10.1.0.1" in done.stdout
    name = name_of(moving, target)
    assert f"what happens\n  1. {name} applies manifests/all.yaml; the service changes its agent" in done.stdout
    assert f"\n  2. the host of {service['agent']['name']} is not cleaned up: the blueprint has no" in done.stdout
    assert "nothing was changed" in done.stdout
    assert target.allocated() == []


def test_a_refused_move_exits_with_2(shell: Shell, moving: MovingScenario, service: Any) -> None:
    done = shell.run(moving.scenario.consumer, "move", service["id"], "--agent", service["agentId"], code=2)
    assert "already on agent" in done.stderr


def test_services_and_agents_are_completed(
    shell: Shell, moving: MovingScenario, service: Any, target: PlayedAgent
) -> None:
    words = ["completion", "--words", "move"]
    assert service["name"] in shell.run(moving.scenario.consumer, *words, service["name"][:6]).stdout
    name = name_of(moving, target)
    found = shell.run(moving.scenario.admin, *words, service["name"], "--agent", name[:6]).stdout
    assert name in found
