"""Having something done to a service, finding it by its name, and ending what goes wrong."""

from __future__ import annotations

import json
from typing import Any

import pytest

from command_line import Shell, working_agent
from scenario import Scenario


@pytest.fixture
def kind(scenario: Scenario) -> Any:
    return scenario.service_type({"cpu": {"type": "integer"}, "size": {"type": "string"}})


@pytest.fixture
def shop(scenario: Scenario, kind: Any) -> Any:
    """A service that is there."""
    return scenario.complete(scenario.order(kind, {"cpu": 1, "size": "small"}, name="shop"))


def test_an_action_is_done_and_watched(shell: Shell, scenario: Scenario, shop: Any) -> None:
    with working_agent(scenario):
        done = shell.run(scenario.consumer, "do", "shop", "start")
    assert done.stdout.splitlines()[-1].startswith("shop: Started, start done in ")


def test_an_action_that_cannot_be_done_says_what_can(shell: Shell, scenario: Scenario, shop: Any) -> None:
    done = shell.run(scenario.consumer, "do", "shop", "stop", code=2)
    assert "shop is Stopped; now you can: start, update, delete" in done.stderr
    done = shell.run(scenario.consumer, "do", "shop", "stert", code=2)
    assert "(did you mean 'start'?)" in done.stderr
    assert "now you can: start" in shell.run(scenario.consumer, "do", "shop", "a/../b", code=2).stderr


def test_an_update_changes_and_clears_properties_and_renames(shell: Shell, scenario: Scenario, shop: Any) -> None:
    with working_agent(scenario):
        shell.run(scenario.consumer, "do", "shop", "update", "-p", "cpu=8", "--unset", "size", "--rename", "store")
    after = scenario.service(shop["id"])
    assert (after["name"], after["properties"]) == ("store", {"cpu": 8})
    done = shell.run(scenario.consumer, "do", "store", "update", "-p", "cpu=8")
    assert done.stdout == "store: Stopped, nothing is left to do\n"


def test_a_deleted_service_is_gone_from_the_list_and_can_still_be_looked_at(
    shell: Shell, scenario: Scenario, shop: Any
) -> None:
    with working_agent(scenario):
        done = shell.run(scenario.consumer, "do", shop["id"][:8], "delete")
    assert done.stdout.splitlines()[-1].startswith("shop: Deleted, delete done in ")
    assert "There is no service yet" in shell.run(scenario.consumer, "services").stdout
    assert "shop" in shell.run(scenario.consumer, "services", "--all").stdout
    assert "Deleted" in shell.run(scenario.consumer, "show", "shop").stdout
    done = shell.run(scenario.consumer, "do", "shop", "start", code=2)
    assert "shop is Deleted; nothing can be done to it any more." in done.stderr


def test_a_service_is_ended_without_its_agent_by_force(shell: Shell, scenario: Scenario, shop: Any) -> None:
    done = shell.run(scenario.admin, "do", shop["id"], "delete", "--force")
    assert done.stdout == "shop: Deleted, nothing is left to do\n"


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
def test_options_that_do_not_belong_together_are_refused(shell: Shell, scenario: Scenario, words: list[str]) -> None:
    shell.run(scenario.consumer, "do", "shop", *words, code=2)


def test_a_name_of_several_services_lists_them(shell: Shell, scenario: Scenario, kind: Any, shop: Any) -> None:
    other = scenario.order(kind, name="shop")
    done = shell.run(scenario.consumer, "show", "shop", code=2)
    assert "2 services are called 'shop'; give the id of one:" in done.stderr
    assert shop["id"] in done.stderr
    assert other["id"] in done.stderr
    assert other["id"] in shell.run(scenario.consumer, "show", other["id"]).stdout


def test_a_name_that_was_used_before_means_the_living_service(
    shell: Shell, scenario: Scenario, kind: Any, shop: Any
) -> None:
    shell.run(scenario.admin, "do", shop["id"], "delete", "--force")
    living = scenario.order(kind, name="shop")
    assert living["id"] in shell.run(scenario.consumer, "show", "shop").stdout


def test_an_unknown_service_is_said_with_what_there_is(shell: Shell, scenario: Scenario, shop: Any) -> None:
    assert "(did you mean 'shop'?)" in shell.run(scenario.consumer, "watch", "shpo", code=2).stderr
    assert "there is: shop" in shell.run(scenario.consumer, "watch", "zzz", code=2).stderr
    # What is not one's own is not there.
    assert "there is no service yet" in shell.run(scenario.stranger, "watch", "shop", code=2).stderr


def test_an_unknown_job_is_said_with_the_way_out(shell: Shell, scenario: Scenario, shop: Any) -> None:
    for verb in ("show", "cancel"):
        refused = shell.run(scenario.consumer, "jobs", verb, "zz", code=2).stderr
        assert refused == "mainstay: there is no job 'zz'; `mainstay jobs` lists them\n"


def test_a_job_that_was_asked_to_stop_says_so(shell: Shell, scenario: Scenario, shop: Any) -> None:
    shell.run(scenario.consumer, "do", "shop", "start", "--no-wait")
    job = scenario.next_job(shop)
    done = shell.run(scenario.consumer, "jobs", "cancel", job["id"])
    assert "to stop start of shop before its next resource" in done.stdout
    assert "Processing (asked to stop)" in shell.run(scenario.consumer, "jobs", "show", job["id"]).stdout


def test_another_active_job_is_named_with_the_way_out(shell: Shell, scenario: Scenario, shop: Any) -> None:
    shell.run(scenario.consumer, "do", "shop", "start", "--no-wait")
    done = shell.run(scenario.consumer, "do", "shop", "update", "-p", "cpu=2", code=2)
    assert "`mainstay jobs cancel` ends it" in done.stderr
    (job,) = json.loads(shell.run(scenario.consumer, "jobs", "--status", "Pending", "--json").stdout)
    done = shell.run(scenario.consumer, "jobs", "cancel", job["id"][:8])
    assert done.stdout == "Cancelled start of shop.\n"
    assert shell.run(scenario.consumer, "watch", "shop", code=1).stdout.startswith("shop: Stopped, start cancelled")


def test_an_update_that_changes_nothing_tells_of_a_host_that_has_drifted(
    shell: Shell, scenario: Scenario, shop: Any
) -> None:
    scenario.agent.put(f"/services/{shop['id']}/conditions", [{"type": "InSync", "status": "False"}])
    done = shell.run(scenario.consumer, "do", "shop", "update", "-p", "cpu=1")
    assert "Its host is not as wanted, though: `mainstay show " in done.stdout


def test_what_needs_no_job_does_not_follow_the_job_of_another(shell: Shell, scenario: Scenario, shop: Any) -> None:
    shell.run(scenario.consumer, "do", "shop", "start", "--no-wait")
    done = shell.run(scenario.consumer, "do", "shop", "update", "-p", "cpu=1")
    assert done.stdout == "shop: Stopped, nothing is left to do\n"


def test_a_dry_run_of_an_action_changes_nothing(shell: Shell, scenario: Scenario, shop: Any) -> None:
    done = shell.run(scenario.consumer, "do", "shop", "update", "-p", "cpu=9", "--dry-run")
    assert "  cpu   9\n" in done.stdout
    assert "Nothing was ordered." in done.stdout
    assert "Stopped → Deleted" in shell.run(scenario.consumer, "do", "shop", "delete", "--dry-run").stdout
    assert scenario.service(shop["id"])["version"] == shop["version"]
