"""`mainstay clean-ups`, and what `do … delete --force` reports about the host."""

from __future__ import annotations

import json
from typing import Any

import pytest

import seed_text
from command_line import Shell
from scenario import Scenario, unique

SIMPLE: Any = seed_text.block("Example 1: Simple VM Lifecycle")


@pytest.fixture
def shop(scenario: Scenario) -> Any:
    service = scenario.order(scenario.service_type(None, SIMPLE), name=unique("shop"))
    scenario.complete(service)
    return service


def orphan_of(scenario: Scenario, service: Any) -> Any:
    (found,) = scenario.admin.get(f"/orphans?serviceId={service['id']}")["items"]
    return found


def test_a_forced_delete_does_not_claim_that_the_host_is_clean(shell: Shell, scenario: Scenario, shop: Any) -> None:
    done = shell.run(scenario.admin, "do", shop["id"], "delete", "--force")
    agent = scenario.admin.get(f"/agents/{scenario.agent_id}")
    name = f"agent {agent['name']} ({agent['status']})"
    assert done.stdout.splitlines() == [
        f"{shop['name']}: Deleted in the control plane, not on its host: {name} owes the clean-up.",
        "Until then it may still run, and it keeps its pool values. `mainstay clean-ups` shows the progress.",
    ]
    shown = shell.run(scenario.admin, "show", shop["id"]).stdout
    assert "an agent owes a clean-up; see `mainstay clean-ups`" in shown


def test_a_forced_delete_as_json_carries_the_orphan_flag(shell: Shell, scenario: Scenario, shop: Any) -> None:
    done = shell.run(scenario.admin, "do", shop["id"], "delete", "--force", "--json")
    assert json.loads(done.stdout)["orphan"] is True


def test_clean_ups_are_listed_with_their_agent_and_last_error(shell: Shell, scenario: Scenario, shop: Any) -> None:
    shell.run(scenario.admin, "do", shop["id"], "delete", "--force")
    orphan = orphan_of(scenario, shop)
    body = {"errorMessage": "exec#stop: exit code 1\nmore", "report": {"events": []}}
    scenario.agent.post(f"/orphans/{orphan['id']}/fail", body, expect=204)
    listed = shell.run(scenario.provider, "clean-ups").stdout
    (line,) = [each for each in listed.splitlines() if each.startswith(orphan["id"][:8])]
    assert shop["name"] in line
    assert line.endswith("1       exec#stop: exit code 1")
    assert json.loads(shell.run(scenario.provider, "clean-ups", "--json").stdout) == [orphan_of(scenario, shop)]
    shown = shell.run(scenario.provider, "clean-ups", "show", shop["name"]).stdout
    assert "more" in shown
    assert "failed    once\n" in shown
    assert "No clean-up is owed." in shell.run(scenario.stranger, "clean-ups").stdout


def test_forget_asks_before_it_releases_the_values(shell: Shell, scenario: Scenario, shop: Any) -> None:
    shell.run(scenario.admin, "do", shop["id"], "delete", "--force")
    orphan = orphan_of(scenario, shop)
    refused = shell.run(scenario.admin, "clean-ups", "forget", orphan["id"][:8], code=2)
    assert f"Forgetting {shop['name']} removes nothing from the host" in refused.stderr
    assert "--yes" in refused.stderr
    shell.run(scenario.provider, "clean-ups", "forget", shop["name"], "--yes", code=2)
    assert orphan_of(scenario, shop)["attempts"] == 0
    done = shell.run(scenario.admin, "clean-ups", "forget", shop["name"], "--yes")
    assert done.stdout == (
        f"Forgot {shop['name']}: its pool values, instance id and secrets are released. "
        "What is left on the host is not removed.\n"
    )
    assert scenario.service(shop["id"])["orphan"] is False
    missing = shell.run(scenario.admin, "clean-ups", "forget", shop["name"], "--yes", code=2)
    assert "`mainstay clean-ups` lists them" in missing.stderr


def test_the_earlier_name_works_and_is_not_listed(shell: Shell, scenario: Scenario, shop: Any) -> None:
    shell.run(scenario.admin, "do", shop["id"], "delete", "--force")
    words = ["--json"]
    listed = [shell.run(scenario.provider, name, *words).stdout for name in ("clean-ups", "orphans")]
    assert listed[0] == listed[1]
    help_text = shell.run(scenario.admin, "--help").stdout
    assert "clean-ups" in help_text
    assert "orphans" not in help_text


def test_clean_ups_complete_in_a_shell(shell: Shell, scenario: Scenario, shop: Any) -> None:
    shell.run(scenario.admin, "do", shop["id"], "delete", "--force")
    words = shell.run(scenario.admin, "completion", "--words", "clean-ups", "forget", "").stdout
    assert f"{orphan_of(scenario, shop)['id'][:8]}\t{shop['name']}, failed attempts: 0" in words.splitlines()


def test_doctor_names_each_orphan(shell: Shell, scenario: Scenario, shop: Any) -> None:
    shell.run(scenario.admin, "do", shop["id"], "delete", "--force")
    orphan = orphan_of(scenario, shop)
    # At once, because the agent is not connected.
    scenario.provider.patch(f"/agents/{scenario.agent_id}", {"status": "Error"})
    done = shell.run(scenario.admin, "doctor", "--data-dir", str(shell.server.data_dir), "--json", code=1)
    (finding,) = [each for each in json.loads(done.stdout) if orphan["id"] in each["subject"]]
    assert finding["code"] == "orphan"
    assert shop["name"] in finding["message"]
    scenario.admin.post(f"/orphans/{orphan['id']}/forget", expect=204)
    done = shell.run(scenario.admin, "doctor", "--data-dir", str(shell.server.data_dir), "--json", code=None)
    assert orphan["id"] not in done.stdout
