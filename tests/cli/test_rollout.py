"""`mainstay rollout`: start, follow, list, pause, resume, abort, versions, completion and exit codes."""

from __future__ import annotations

import json
from typing import Any

import pytest

from blueprint_samples import blueprint, push, serve_type
from command_line import Shell, on_terminal, working_agent
from fork_server import PROGRAM
from scenario import Scenario, unique


@pytest.fixture
def kind(scenario: Scenario) -> Any:
    """A type with two services on version 1.0.0, of which 1.1.0 is the latest."""
    name = unique("web")
    pushed = push(scenario.admin, blueprint(name, "1.0.0"))
    serve_type(scenario, pushed)
    for _ in range(2):
        scenario.complete(scenario.order(pushed["serviceType"], {"size": 1}, name=unique("shop")))
    push(scenario.admin, blueprint(name, "1.1.0"))
    return pushed["serviceType"]


def test_a_roll_out_is_followed_to_its_end(shell: Shell, scenario: Scenario, kind: Any) -> None:
    before = shell.run(scenario.admin, "rollout", "versions", kind["name"]).stdout
    assert [line.split()[:2] for line in before.splitlines()[1:]] == [["1.1.0", "0"], ["1.0.0", "2"]]
    with working_agent(scenario):
        done = shell.run(scenario.admin, "rollout", kind["name"], "--batch", "1")
    assert "status    Completed" in done.stdout
    assert "services  2: 2 done" in done.stdout
    assert "waves     2 of 2 started, 1 service each" in done.stdout
    assert "wave 0" not in done.stdout
    after = shell.run(scenario.admin, "rollout", "versions", kind["name"], "--json").stdout
    assert [(each["version"], each["services"]) for each in json.loads(after)] == [("1.1.0", 2), ("1.0.0", 0)]
    assert kind["name"] in shell.run(scenario.admin, "rollout", "list").stdout


def test_a_stopped_roll_out_exits_with_1_and_is_resumed(shell: Shell, scenario: Scenario, kind: Any) -> None:
    with working_agent(scenario, lambda _job: {"errorMessage": "no disk"}):
        done = shell.run(scenario.admin, "rollout", kind["name"], "--batch", "1", "--json", code=1)
    document = json.loads(done.stdout)
    assert (document["status"], document["failedOrSkipped"][0]["reason"]) == ("Stopped", "no disk")
    shown = shell.run(scenario.admin, "rollout", "status", document["id"][:8], code=1).stdout
    assert "no disk" in shown
    assert f"`mainstay rollout resume|abort {document['id'][:8]}`" in shown
    assert "rollout_stopped" in json.dumps(shell.run(scenario.admin, "doctor", "--json", code=None).stdout)
    with working_agent(scenario):
        shell.run(scenario.admin, "rollout", "resume", document["id"])


def test_a_roll_out_is_paused_and_aborted(shell: Shell, scenario: Scenario, kind: Any) -> None:
    done = shell.run(scenario.admin, "rollout", kind["name"], "--action", "start", "--pause", "--json")
    rollout = json.loads(done.stdout)
    assert (rollout["status"], rollout["action"], rollout.get("blueprintVersion")) == ("Paused", "start", None)
    refused = shell.run(scenario.admin, "rollout", kind["name"], code=2)
    assert "has an open roll-out" in refused.stderr
    refused = shell.run(scenario.admin, "rollout", "pause", rollout["id"], code=2)
    assert "pause is possible while it is Running" in refused.stderr
    shown = shell.run(scenario.admin, "rollout", "status", rollout["id"]).stdout
    assert "waves     0 of 2 started, 1 service each" in shown
    assert [line.split()[1:3] for line in shown.splitlines() if "Waiting" in line] == [
        ["1", "Waiting"],
        ["2", "Waiting"],
    ]
    other = push(scenario.admin, blueprint(unique("other"), "1.0.0"))["serviceType"]["name"]
    second = json.loads(shell.run(scenario.admin, "rollout", other, "--pause", "--json").stdout)
    refused = shell.run(scenario.admin, "rollout", "abort", code=2)
    assert "roll-outs are open; name one" in refused.stderr
    assert f"{rollout['id'][:8]}  {kind['name']} start" in refused.stderr
    shell.run(scenario.admin, "rollout", "abort", second["id"])
    assert "Aborted" in shell.run(scenario.admin, "rollout", "abort", rollout["id"]).stdout


def test_waiting_ends_with_the_timeout(shell: Shell, scenario: Scenario, kind: Any) -> None:
    done = shell.run(scenario.admin, "rollout", kind["name"], "--timeout", "1s", code=4)
    number = done.stdout.partition("roll-out  ")[2].split()[0]
    assert f"Timed out. The roll-out continues; follow it with `mainstay rollout status {number[:8]}`" in done.stdout
    assert "status    Running" in done.stdout
    shell.run(scenario.admin, "rollout", "abort", number)


def test_ctrl_c_leaves_the_roll_out_running(shell: Shell, scenario: Scenario, kind: Any) -> None:
    environment = shell.environment(scenario.admin.token)
    with on_terminal([str(PROGRAM), "rollout", kind["name"]], environment) as terminal:
        terminal.wait_for("wave 1 of")
        terminal.type("\x03")
        assert terminal.finish() == 130
    assert "the roll-out continues; follow it with `mainstay rollout status " in terminal.seen
    (rollout,) = scenario.admin.get("/rollouts", query={"serviceTypeId": kind["id"]})["items"]
    assert rollout["status"] == "Running"
    shell.run(scenario.admin, "rollout", "abort", rollout["id"])


def test_a_deletion_asks_first(shell: Shell, scenario: Scenario, kind: Any) -> None:
    refused = shell.run(scenario.admin, "rollout", kind["name"], "--action", "delete", code=2)
    assert f"This deletes 2 services of {kind['name']}, of all customers." in refused.stderr
    assert "--yes" in refused.stderr


def test_others_than_admins_are_refused(shell: Shell, scenario: Scenario, kind: Any) -> None:
    shell.run(scenario.consumer, "rollout", kind["name"], code=2)


def test_types_verbs_roll_outs_and_actions_are_completed(shell: Shell, scenario: Scenario, kind: Any) -> None:
    words = ["completion", "--words", "rollout"]
    assert kind["name"] in shell.run(scenario.admin, *words, kind["name"][:6]).stdout
    assert "pause" in shell.run(scenario.admin, *words, "pa").stdout
    assert "start" in shell.run(scenario.admin, *words, kind["name"], "--action", "st").stdout
    rollout = json.loads(shell.run(scenario.admin, "rollout", kind["name"], "--pause", "--json").stdout)
    assert rollout["id"][:8] in shell.run(scenario.admin, *words, "abort", rollout["id"][:4]).stdout
