"""Actions on services: finding a service by name, running actions, cancelling jobs."""

from __future__ import annotations

import json
from typing import Any

import pytest

from blueprint_samples import blueprint, push, serve_type
from command_line import Shell, working_agent
from scenario import Scenario, unique


@pytest.fixture
def kind(scenario: Scenario) -> Any:
    return scenario.service_type({"cpu": {"type": "integer"}, "size": {"type": "string"}})


@pytest.fixture
def shop(scenario: Scenario, kind: Any) -> Any:
    """A created service."""
    return scenario.complete(scenario.order(kind, {"cpu": 1, "size": "small"}, name="shop"))


def test_an_action_is_followed_until_it_completes(shell: Shell, scenario: Scenario, shop: Any) -> None:
    with working_agent(scenario):
        done = shell.run(scenario.consumer, "do", "shop", "start")
    assert done.stdout.splitlines()[-1].startswith("shop: Started, start completed in ")


def test_an_unavailable_action_lists_the_available_actions(shell: Shell, scenario: Scenario, shop: Any) -> None:
    done = shell.run(scenario.consumer, "do", "shop", "stop", code=2)
    assert "shop is Stopped; available actions: start, update, delete" in done.stderr
    done = shell.run(scenario.consumer, "do", "shop", "stert", code=2)
    assert "(did you mean 'start'?)" in done.stderr
    assert "available actions: start" in shell.run(scenario.consumer, "do", "shop", "a/../b", code=2).stderr


def test_an_update_changes_and_clears_properties_and_renames(shell: Shell, scenario: Scenario, shop: Any) -> None:
    with working_agent(scenario):
        shell.run(scenario.consumer, "do", "shop", "update", "-p", "cpu=8", "--unset", "size", "--rename", "store")
    after = scenario.service(shop["id"])
    assert (after["name"], after["properties"]) == ("store", {"cpu": 8})
    done = shell.run(scenario.consumer, "do", "store", "update", "-p", "cpu=8")
    assert done.stdout == "store: Stopped, no job needed\n"


def test_a_deleted_service_is_not_listed_but_can_be_shown(shell: Shell, scenario: Scenario, shop: Any) -> None:
    with working_agent(scenario):
        done = shell.run(scenario.consumer, "do", shop["id"][:8], "delete")
    assert done.stdout.splitlines()[-1].startswith("shop: Deleted, delete completed in ")
    assert "There is no service yet" in shell.run(scenario.consumer, "services").stdout
    assert "shop" in shell.run(scenario.consumer, "services", "--all").stdout
    assert "Deleted" in shell.run(scenario.consumer, "show", "shop").stdout
    done = shell.run(scenario.consumer, "do", "shop", "start", code=2)
    assert "shop is Deleted; no action is available." in done.stderr


def test_a_forced_delete_needs_no_agent(shell: Shell, scenario: Scenario, shop: Any) -> None:
    done = shell.run(scenario.admin, "do", shop["id"], "delete", "--force")
    assert done.stdout.startswith("shop: Deleted in the control plane")


@pytest.mark.parametrize(
    "words",
    [
        ["update"],
        ["start", "--force"],
        ["delete", "-p", "cpu=1"],
        ["start", "--unset", "cpu"],
        ["stop", "--rename", "x"],
    ],
)
def test_options_of_other_actions_are_refused(shell: Shell, scenario: Scenario, words: list[str]) -> None:
    shell.run(scenario.consumer, "do", "shop", *words, code=2)


def test_an_ambiguous_name_lists_the_services(shell: Shell, scenario: Scenario, kind: Any, shop: Any) -> None:
    other = scenario.order(kind, name="shop")
    done = shell.run(scenario.consumer, "show", "shop", code=2)
    assert "2 services are named 'shop'; use an id:" in done.stderr
    assert shop["id"] in done.stderr
    assert other["id"] in done.stderr
    assert other["id"] in shell.run(scenario.consumer, "show", other["id"]).stdout


def test_a_name_prefers_the_service_that_is_not_deleted(
    shell: Shell, scenario: Scenario, kind: Any, shop: Any
) -> None:
    shell.run(scenario.admin, "do", shop["id"], "delete", "--force")
    current = scenario.order(kind, name="shop")
    assert current["id"] in shell.run(scenario.consumer, "show", "shop").stdout


def test_an_unknown_service_lists_the_available_ones(shell: Shell, scenario: Scenario, shop: Any) -> None:
    assert "(did you mean 'shop'?)" in shell.run(scenario.consumer, "watch", "shpo", code=2).stderr
    assert "available: shop" in shell.run(scenario.consumer, "watch", "zzz", code=2).stderr
    # Services of other customers are invisible.
    assert (
        "there is no service 'shop'; there are none yet"
        in shell.run(scenario.stranger, "watch", "shop", code=2).stderr
    )


def test_an_unknown_job_names_the_list_command(shell: Shell, scenario: Scenario, shop: Any) -> None:
    for verb in ("show", "cancel"):
        refused = shell.run(scenario.consumer, "jobs", verb, "zz", code=2).stderr
        assert refused == "mainstay: there is no job 'zz'; `mainstay jobs` lists them\n"


def test_a_requested_cancellation_is_shown(shell: Shell, scenario: Scenario, shop: Any) -> None:
    shell.run(scenario.consumer, "do", "shop", "start", "--no-wait")
    job = scenario.next_job(shop)
    done = shell.run(scenario.consumer, "jobs", "cancel", job["id"])
    assert "stops start of shop before the next resource" in done.stdout
    assert "Processing (cancel requested)" in shell.run(scenario.consumer, "jobs", "show", job["id"]).stdout


def test_an_active_job_can_be_cancelled(shell: Shell, scenario: Scenario, shop: Any) -> None:
    shell.run(scenario.consumer, "do", "shop", "start", "--no-wait")
    done = shell.run(scenario.consumer, "do", "shop", "update", "-p", "cpu=2", code=2)
    assert "cancel it with `mainstay jobs cancel`" in done.stderr
    (job,) = json.loads(shell.run(scenario.consumer, "jobs", "--status", "Pending", "--json").stdout)
    done = shell.run(scenario.consumer, "jobs", "cancel", job["id"][:8])
    assert done.stdout == "Cancelled start of shop.\n"
    assert shell.run(scenario.consumer, "watch", "shop", code=1).stdout.startswith("shop: Stopped, start cancelled")


def test_an_update_without_changes_reports_drift(shell: Shell, scenario: Scenario, shop: Any) -> None:
    scenario.agent.put(f"/services/{shop['id']}/conditions", [{"type": "InSync", "status": "False"}])
    done = shell.run(scenario.consumer, "do", "shop", "update", "-p", "cpu=1")
    assert "The host has drifted: `mainstay show " in done.stdout


def test_a_request_without_a_job_does_not_follow_another_job(shell: Shell, scenario: Scenario, shop: Any) -> None:
    shell.run(scenario.consumer, "do", "shop", "start", "--no-wait")
    done = shell.run(scenario.consumer, "do", "shop", "update", "-p", "cpu=1")
    assert done.stdout == "shop: Stopped, no job needed\n"


def test_a_dry_run_of_an_action_changes_nothing(shell: Shell, scenario: Scenario, shop: Any) -> None:
    done = shell.run(scenario.consumer, "do", "shop", "update", "-p", "cpu=9", "--dry-run")
    assert "  cpu   9\n" in done.stdout
    assert "Dry run, nothing was changed." in done.stdout
    assert "Stopped → Deleted" in shell.run(scenario.consumer, "do", "shop", "delete", "--dry-run").stdout
    assert scenario.service(shop["id"])["version"] == shop["version"]


def test_an_update_without_options_goes_to_the_latest_version(shell: Shell, scenario: Scenario) -> None:
    name = unique("web")
    pushed = [push(scenario.admin, blueprint(name, version)) for version in ("1.0.0", "1.1.0")]
    serve_type(scenario, pushed[-1])
    service = scenario.complete(scenario.order(pushed[-1]["serviceType"], {"size": 1}, name=unique("shop")))
    with working_agent(scenario):
        shell.run(scenario.consumer, "do", service["name"], "start", "--to", "1.0.0")
        assert scenario.service(service["id"])["blueprintDigest"] == pushed[0]["digest"]
        shell.run(scenario.consumer, "do", service["name"], "stop")
        dry = shell.run(scenario.consumer, "do", service["name"], "update", "--dry-run")
        assert "blueprint  1.1.0" in dry.stdout
        shell.run(scenario.consumer, "do", service["name"], "update")
        assert scenario.service(service["id"])["blueprintDigest"] == pushed[1]["digest"]
        done = shell.run(scenario.consumer, "do", service["name"], "update")
    assert done.stdout.endswith("no job needed\n")


def test_repair_asks_the_agent_at_once(shell: Shell, scenario: Scenario) -> None:
    service = scenario.complete(scenario.order(scenario.service_type({})))
    scenario.agent.get("/plans/pending")
    done = shell.run(scenario.provider, "repair", service["id"])
    agent = scenario.admin.get(f"/agents/{scenario.agent_id}")["name"]
    assert done.stdout.startswith(f"Agent {agent} repairs {service['name']} now.")
    assert scenario.admin.get(f"/services/{service['id']}")["repairRequestedAt"]
    facts = {"hostname": "web1", "addresses": ["192.0.2.7", "192.0.2.8"]}
    scenario.agent.put("/agents/me/status", {"status": "Connected", "version": "0.2.0", "facts": facts})
    shown = shell.run(scenario.provider, "agents", "show", agent).stdout
    assert "192.0.2.7, 192.0.2.8" in shown
    assert "0.2.0" in shown
