"""Day-two verbs of admins and providers: agents, participants, tokens, pools, options, types, blueprints and groups."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import seed_text
from blueprint_samples import blueprint, push, serve_type
from command_line import Shell, on_terminal
from control_plane import Server
from fork_server import PROGRAM
from scenario import Scenario, unique

SIMPLE: Any = seed_text.block("Example 1: Simple VM Lifecycle")


def as_json(shell: Shell, caller: Any, *words: str, code: int = 0) -> Any:
    return json.loads(shell.run(caller, *words, "--json", code=code).stdout)


def test_agents_are_disabled_enabled_and_removed_by_name_or_id(shell: Shell, scenario: Scenario) -> None:
    agent = scenario.admin.get(f"/agents/{scenario.agent_id}")
    done = shell.run(scenario.provider, "agents", "disable", agent["name"])
    assert done.stdout == f"Agent {agent['name']} is disabled: it gets no orders and no jobs; its services stay.\n"
    assert scenario.admin.get(f"/agents/{agent['id']}")["status"] == "Disabled"
    assert as_json(shell, scenario.provider, "agents", "enable", agent["id"])["status"] == "Disconnected"
    assert "is not disabled" in shell.run(scenario.provider, "agents", "enable", agent["id"]).stdout
    refused = shell.run(scenario.provider, "agents", "remove", agent["id"], code=2)
    assert "--yes" in refused.stderr
    assert f"Remove agent {agent['name']} ({agent['id']})?" in refused.stderr
    assert as_json(shell, scenario.provider, "agents", "--json", "remove", agent["id"], "--yes")["id"] == agent["id"]
    scenario.admin.get(f"/agents/{agent['id']}", expect=404)


def test_an_agent_with_a_living_service_is_not_removed(shell: Shell, scenario: Scenario) -> None:
    service = scenario.order(scenario.service_type(None, SIMPLE))
    refused = shell.run(scenario.provider, "agents", "remove", scenario.agent_id, "--yes", code=2)
    assert service["id"] in refused.stderr
    # The words of the server, and its document.
    document = json.loads(
        shell.run(scenario.provider, "agents", "remove", scenario.agent_id, "--yes", "--json", code=2).stdout
    )
    assert document["dependants"]["services"] == [service["id"]]


def test_what_an_admin_disabled_its_provider_cannot_enable(shell: Shell, scenario: Scenario) -> None:
    shell.run(scenario.admin, "agents", "disable", scenario.agent_id)
    refused = shell.run(scenario.provider, "agents", "enable", scenario.agent_id, code=2)
    assert "only an admin enables or deletes it" in refused.stderr


def test_tags_and_pool_set_of_an_agent_are_changed(shell: Shell, scenario: Scenario) -> None:
    pools = scenario.admin.post("/service-pool-sets", {"name": unique("set"), "providerId": scenario.provider_id})
    words = ["agents", "change", scenario.agent_id, "--add-tag", "eu", "--add-tag", "ssd", "--pool-set", pools["id"]]
    changed = as_json(shell, scenario.provider, *words)
    assert (changed["tags"], changed["servicePoolSetId"]) == (["eu", "ssd"], pools["id"])
    changed = as_json(
        shell, scenario.provider, "agents", "change", scenario.agent_id, "--remove-tag", "eu", "--pool-set", "none"
    )
    assert (changed["tags"], changed["servicePoolSetId"]) == (["ssd"], None)
    refused = shell.run(scenario.provider, "agents", "change", scenario.agent_id, "--remove-tag", "us", code=2)
    assert "has no tag us; it has ssd" in refused.stderr


def test_the_capacity_of_an_agent_is_set_changed_and_removed(shell: Shell, scenario: Scenario) -> None:
    words = ["agents", "change", scenario.agent_id, "--capacity"]
    assert as_json(shell, scenario.provider, *words, "3")["capacity"] == 3
    refused = shell.run(scenario.provider, *words, "many", code=2)
    assert "--capacity is a number from 0 to 1000000, or none; got 'many'" in refused.stderr
    assert as_json(shell, scenario.provider, *words, "none")["capacity"] is None
    kind = scenario.service_type()["name"]
    shell.run(scenario.admin, "agents", "add", name := unique("host"), "--serves", kind, "--capacity", "0")
    assert scenario.admin.get(f"/agents?name={name}")["items"][0]["capacity"] == 0


def test_an_agent_is_drained_and_takes_services_again(shell: Shell, scenario: Scenario) -> None:
    service = scenario.order(scenario.service_type())
    drained = shell.run(scenario.provider, "agents", "drain", scenario.agent_id)
    assert "is draining: it takes no new services" in drained.stdout
    assert "the drain does not move services" in drained.stdout
    listed = shell.run(scenario.provider, "agents").stdout
    assert ", draining" in listed
    left = as_json(shell, scenario.provider, "agents", "drain", scenario.agent_id, "--wait", code=1)["left"]
    assert [each["serviceId"] for each in left] == [service["id"]]
    # A service with a job moves after it; nothing completes this one.
    words = ["agents", "drain", scenario.agent_id, "--move", "--wait", "--timeout", "1s"]
    late = shell.run(scenario.provider, *words, code=4)
    assert "The drain continues; follow it with `mainstay agents drain" in late.stdout
    scenario.complete(service)
    failed = shell.run(scenario.provider, *words[:4], "--wait", code=1)
    assert "does not say `movable: true`" in " ".join(failed.stdout.split())
    scenario.admin.delete(f"/services/{service['id']}?force=true")
    empty = shell.run(scenario.provider, *words[:4], "--wait")
    assert "No service is left on it." in empty.stdout
    assert "takes new services again" in shell.run(scenario.provider, "agents", "undrain", scenario.agent_id).stdout
    assert scenario.admin.get(f"/agents/{scenario.agent_id}")["draining"] is False


def test_a_removal_on_a_terminal_asks_first(shell: Shell, scenario: Scenario) -> None:
    agent = scenario.new_agent()
    words = [str(PROGRAM), "agents", "remove", agent["name"]]
    with on_terminal(words, shell.environment(scenario.provider.token)) as terminal:
        terminal.wait_for("[y/N]")
        terminal.type("n\n")
        assert terminal.finish() == 1
    scenario.admin.get(f"/agents/{agent['id']}")
    with on_terminal(words, shell.environment(scenario.provider.token)) as terminal:
        terminal.wait_for("[y/N]")
        terminal.type("y\n")
        assert terminal.finish() == 0
    scenario.admin.get(f"/agents/{agent['id']}", expect=404)


def test_an_ambiguous_name_is_refused_with_the_ids(shell: Shell, scenario: Scenario) -> None:
    name = unique("twin")
    twins = [scenario.new_agent(name=name)["id"] for _ in range(2)]
    refused = shell.run(scenario.provider, "agents", "disable", name, code=2)
    assert all(each in refused.stderr for each in twins)


def test_participants_are_disabled_enabled_and_removed(shell: Shell, scenario: Scenario) -> None:
    name = scenario.admin.get(f"/participants/{scenario.consumer_id}")["name"]
    shell.run(scenario.admin, "participants", "disable", name)
    assert scenario.consumer.call("GET", "/api/v1/services").status == 403
    shell.run(scenario.admin, "participants", "enable", scenario.consumer_id)
    assert scenario.consumer.call("GET", "/api/v1/services").status == 200
    assert shell.run(scenario.consumer, "participants", "disable", name, code=2).stderr
    shell.run(scenario.admin, "participants", "remove", name, "--yes")
    assert scenario.admin.get(f"/participants?id={scenario.consumer_id}")["items"] == []


def test_revoking_a_token_names_the_codes_that_end(shell: Shell, scenario: Scenario) -> None:
    name = unique("maker")
    printed = shell.run(scenario.admin, "tokens", "create", name, "--admin").stdout
    assert "This is the default validity; --days N gives another." in printed
    value = next(line.strip() for line in printed.splitlines() if line.startswith("  "))
    maker = scenario.admin.as_token(value)
    agent_type = scenario.admin.get(f"/agent-types/{scenario.agent_type_id}")["name"]
    words = ("agents", "code", "--type", agent_type, "--provider", scenario.provider_id, "--count", "3", "--json")
    code = json.loads(shell.run(maker, *words).stdout)
    kept = json.loads(shell.run(maker, *words, "--outlives-token").stdout)
    assert (code["outlivesToken"], kept["outlivesToken"]) == (False, True)
    printed = shell.run(scenario.admin, "tokens", "revoke", name, "--yes").stdout
    assert f"Enrollment code {code['id'][:8]}, which it made, ended with 3 of 3 places left." in printed
    assert kept["id"][:8] not in printed
    assert (
        "default validity" not in shell.run(scenario.admin, "tokens", "create", name, "--admin", "--days", "9").stdout
    )


def test_a_token_is_created_into_a_private_file_and_revoked(shell: Shell, scenario: Scenario, tmp_path: Path) -> None:
    name, file = unique("dashboard"), tmp_path / "token"
    words = ["tokens", "create", name, "--for", scenario.consumer_id, "--read-only", "--days", "3", "--output"]
    done = shell.run(scenario.admin, *words, str(file))
    value = file.read_text().strip()
    assert value not in done.stdout
    assert file.stat().st_mode & 0o777 == 0o600
    mine = scenario.admin.as_token(value)
    assert mine.get("/tokens/me")["readOnly"] is True
    listed = shell.run(scenario.consumer, "tokens").stdout
    assert name in listed
    assert value not in listed
    shell.run(scenario.admin, "tokens", "revoke", name, "--yes")
    assert mine.call("GET", "/api/v1/tokens/me").status == 401


def test_a_token_is_printed_once_and_renewed(shell: Shell, scenario: Scenario) -> None:
    name = unique("own")
    created = as_json(shell, scenario.provider, "tokens", "create", name)
    assert scenario.admin.as_token(created["value"]).get("/tokens/me")["participantId"] == scenario.provider_id
    assert "value" not in as_json(shell, scenario.provider, "tokens")[0]
    renewed = as_json(shell, scenario.provider, "tokens", "renew", name, "--yes")
    assert renewed["value"] != created["value"]
    assert scenario.admin.as_token(created["value"]).call("GET", "/api/v1/tokens/me").status == 401
    agent = shell.run(scenario.provider, "tokens", "create", unique("agent"), "--agent", scenario.agent_id).stdout
    assert "shown only once" in agent
    assert "mainstay login" not in agent
    assert "--for PARTICIPANT" in shell.run(scenario.admin, "tokens", "create", "x", code=2).stderr
    assert "admin" in shell.run(scenario.provider, "tokens", "create", "x", "--admin", code=2).stderr


def test_values_of_a_pool_are_removed_while_they_are_free(shell: Shell, scenario: Scenario) -> None:
    pool = unique("ports")
    add = ["pools", "add", pool, "--type", "port", "--agent", scenario.agent_id, "--value", "8100-8104"]
    shell.run(scenario.provider, *add)
    removed = as_json(shell, scenario.provider, "pools", "remove", pool, "--value", "8101-8102", "--yes")
    assert [each["value"] for each in removed] == [8101, 8102]
    refused = shell.run(scenario.provider, "pools", "remove", pool, "--value", "8101", "--yes", code=2)
    assert f"pool {pool} has no value 8101; nothing was removed" in refused.stderr
    schema = {"port": {"type": "integer", "servicePoolType": "port"}}
    scenario.order(scenario.service_type(schema))
    used = shell.run(scenario.provider, "pools", "remove", pool, "--value", "8100", "--yes", code=2)
    assert "8100" in used.stderr
    assert shell.run(scenario.provider, "pools", "remove", pool, "--yes", code=2).stderr


def test_a_subnet_pool_is_created_and_shown(shell: Shell, scenario: Scenario) -> None:
    name = unique("net")
    words = ["pools", "create", name, "--type", "ip", "--agent", scenario.agent_id, "--subnet", "2001:db8::/64"]
    created = as_json(shell, scenario.provider, *words, "--exclude-first", "1")
    assert created["usage"]["total"] == 2**64 - 1
    shown = shell.run(scenario.provider, "pools", name).stdout
    assert "2001:db8::/64" in shown
    sets = as_json(shell, scenario.provider, "pools", "sets")
    assert [each["id"] for each in sets] == [created["servicePoolSetId"]]
    shell.run(scenario.provider, "pools", "remove", name, "--yes")
    shell.run(scenario.provider, "agents", "change", scenario.agent_id, "--pool-set", "none")
    shell.run(scenario.provider, "pools", "remove-set", sets[0]["name"], "--yes")
    assert as_json(shell, scenario.provider, "pools", "sets") == []


def test_config_pools_are_filled_shown_and_removed(shell: Shell, scenario: Scenario) -> None:
    name, kind = unique("keys"), unique("key")
    words = ["config-pools", "add", name, "--type", kind, "--value", "10-12"]
    assert "--global or --for PARTICIPANT" in shell.run(scenario.admin, *words, code=2).stderr
    shell.run(scenario.provider, *words)
    again = as_json(shell, scenario.provider, *words)
    assert [each["value"] for each in again["values"]] == [10, 11, 12]
    schema = {"key": {"type": "integer", "generator": {"type": "pool", "config": {"poolType": kind}}}}
    agent = scenario.new_agent(agentTypeId=scenario.agent_type(configurationSchema=schema)["id"])
    shown = shell.run(scenario.provider, "config-pools", name).stdout
    assert agent["name"] in shown
    assert shell.run(scenario.provider, "config-pools", "remove", name, "--value", "10", "--yes", code=2).stderr
    shell.run(scenario.provider, "config-pools", "remove", name, "--value", "11-12", "--yes")
    scenario.admin.delete(f"/agents/{agent['id']}")
    shell.run(scenario.provider, "config-pools", "remove", name, "--yes")
    assert "There is no config pool yet" in shell.run(scenario.provider, "config-pools").stdout
    shell.run(scenario.admin, "config-pools", "add", name, "--type", kind, "--global", "--value", "a")
    assert "all providers" in shell.run(scenario.admin, "config-pools", name).stdout


def test_an_install_command_is_created_renewed_and_removed(shell: Shell, scenario: Scenario, tmp_path: Path) -> None:
    templates = {"configTemplate": "name: x", "cmdTemplate": "get {{.configUrl}} {{.authToken}}"}
    agent = scenario.new_agent(agentTypeId=scenario.agent_type(**templates)["id"])
    words = ["agents", "install-command", agent["name"]]
    done = shell.run(scenario.provider, *words)
    assert "\n  get http" in done.stdout
    assert "--renew" in shell.run(scenario.provider, *words, code=2).stderr
    file = tmp_path / "command"
    renewed = as_json(shell, scenario.provider, *words, "--renew", "--output", str(file))
    assert "installCommand" not in renewed
    assert file.read_text().startswith("get http")
    assert file.stat().st_mode & 0o777 == 0o600
    assert "expires at" in shell.run(scenario.provider, *words, "--status").stdout
    shell.run(scenario.provider, *words, "--remove", "--yes")
    shell.run(scenario.provider, *words, "--status", code=2)


def test_options_and_their_types_are_added_changed_and_removed(shell: Shell, scenario: Scenario) -> None:
    kind, name = unique("image").replace("-", "_"), unique("debian")
    shell.run(scenario.admin, "options", "add-type", kind, "--description", "images")
    added = as_json(shell, scenario.provider, "options", "add", kind, name, '{"id": 12}')
    assert added["value"] == {"id": 12}
    changed = as_json(shell, scenario.provider, "options", "change", name, "--value", "debian-12", "--disable")
    assert (changed["value"], changed["enabled"]) == ("debian-12", False)
    (row,) = [each for each in shell.run(scenario.provider, "options").stdout.splitlines() if name in each]
    assert "disabled" in row
    assert kind in row
    shell.run(scenario.admin, "options", "remove-type", kind, "--yes", code=2)
    shell.run(scenario.provider, "options", "remove", name, "--yes")
    renamed = as_json(shell, scenario.admin, "options", "change-type", kind, "--name", "Images")
    assert renamed["name"] == "Images"
    shell.run(scenario.admin, "options", "remove-type", "Images", "--yes")
    assert all(each["type"] != kind for each in as_json(shell, scenario.admin, "options", "types"))


def test_groups_are_added_renamed_and_removed(shell: Shell, scenario: Scenario) -> None:
    name, other = unique("team"), unique("team")
    shell.run(scenario.consumer, "groups", "add", name)
    assert "already exists" in shell.run(scenario.consumer, "groups", "add", name, code=2).stderr
    assert "--for PARTICIPANT" in shell.run(scenario.admin, "groups", "add", name, code=2).stderr
    shell.run(scenario.consumer, "groups", "rename", name, other)
    consumer = scenario.admin.get(f"/participants/{scenario.consumer_id}")["name"]
    (row,) = [each for each in shell.run(scenario.admin, "groups").stdout.splitlines() if other in each]
    assert consumer in row
    shell.run(scenario.consumer, "groups", "remove", other, "--yes")
    assert "There is no group yet" in shell.run(scenario.consumer, "groups").stdout


@pytest.mark.parametrize(
    ("command", "noun", "table"),
    [
        ("agents", "agents", "agents"),
        ("participants", "participants", "participants"),
        ("groups", "service-groups", "service_groups"),
    ],
)
def test_hostile_names_of_the_server_are_escaped(
    server: Server, shell: Shell, scenario: Scenario, command: str, noun: str, table: str
) -> None:
    rows = {"agents": scenario.agent_id, "participants": scenario.consumer_id, "service-groups": scenario.group_id}
    server.store_name(table, rows[noun], "evil\x1b]0;owned\x07\x1b[2J\u202e")
    for words in ([command], [command, "remove", rows[noun]]):
        done = shell.run(scenario.admin, *words, code=None)
        assert "\x1b" not in done.stdout + done.stderr
        assert "\u202e" not in done.stdout + done.stderr
        assert "\\x1b" in done.stdout + done.stderr


def test_a_type_is_added_changed_and_removed(shell: Shell, scenario: Scenario, tmp_path: Path) -> None:
    name, file = unique("vm"), tmp_path / "type.yaml"
    file.write_text(f"name: {name}\npropertySchema: {{cpu: {{type: integer}}}}\n")
    kind = as_json(shell, scenario.admin, "types", "add", str(file))
    scenario.admin.patch(f"/agent-types/{scenario.agent_type_id}", {"serviceTypeIds": [kind["id"]]})
    service = scenario.order(kind, {"cpu": 8})
    file.write_text(
        f"name: {name}\npropertySchema: {{cpu: {{type: integer, validators: [{{type: max, value: 4}}]}}}}\n"
    )
    words = ["types", "change", str(file)]
    done = shell.run(scenario.admin, *words, "--dry-run", code=1)
    assert done.stdout.startswith("1 service does not fit the new definition:\n")
    assert f"  {service['name']} ({service['id'][:8]}): " in done.stdout
    assert scenario.admin.get(f"/service-types/{kind['id']}") == kind
    assert "--force" in shell.run(scenario.admin, *words, code=2).stderr
    assert "--yes" in shell.run(scenario.admin, *words, "--force", code=2).stderr
    shell.run(scenario.admin, *words, "--force", "--yes")
    assert scenario.admin.get(f"/service-types/{kind['id']}")["propertySchema"]["cpu"]["validators"]
    assert service["id"] in shell.run(scenario.admin, "types", "remove", name, "--yes", code=2).stderr
    scenario.admin.delete(f"/services/{service['id']}?force=true")
    scenario.admin.patch(f"/agent-types/{scenario.agent_type_id}", {"serviceTypeIds": []})
    shell.run(scenario.admin, "types", "remove", name, "--yes")
    scenario.admin.get(f"/service-types/{kind['id']}", expect=404)
    assert shell.run(scenario.provider, *words, code=2).stderr


def test_blueprints_are_listed_and_unused_versions_removed(shell: Shell, scenario: Scenario) -> None:
    name = unique("web")
    old, new = (push(scenario.admin, blueprint(name, version)) for version in ("1.0.0", "1.1.0"))
    (listed,) = [each for each in as_json(shell, scenario.admin, "blueprint", "list") if each["name"] == name]
    assert (listed["version"], listed["versions"]) == ("1.1.0", 2)
    versions = shell.run(scenario.admin, "blueprint", "versions", name).stdout.splitlines()
    assert [line.split()[0] for line in versions] == ["VERSION", "1.1.0", "1.0.0"]
    refused = shell.run(scenario.admin, "blueprint", "remove", f"{name}@1.1.0", "--yes", code=2)
    assert new["serviceType"]["id"] in refused.stderr
    shell.run(scenario.admin, "blueprint", "remove", f"{name}@1.0.0", "--yes")
    assert [each["version"] for each in as_json(shell, scenario.admin, "blueprint", "versions", name)] == ["1.1.0"]
    scenario.admin.get(f"/blueprints/{old['digest']}", expect=404)


def test_services_name_owner_provider_group_and_version(shell: Shell, scenario: Scenario) -> None:
    pushed = push(scenario.admin, blueprint(unique("web")))
    service = scenario.order(serve_type(scenario, pushed), {"size": 1})
    names = [
        scenario.admin.get(path)["name"]
        for path in (
            f"/participants/{scenario.consumer_id}",
            f"/participants/{scenario.provider_id}",
            f"/service-groups/{scenario.group_id}",
        )
    ]
    words = ["services", "--name", service["name"], "--group", scenario.group_id]
    (_, row) = shell.run(scenario.consumer, *words).stdout.splitlines()
    assert all(word in row for word in [*names, "1.0.0"])
    shown = shell.run(scenario.consumer, "show", service["id"]).stdout
    for label, name in zip(("owner", "provider", "group"), names, strict=True):
        assert [each.split() for each in shown.splitlines() if each.startswith(label)] == [[label, name]]
    assert f"1.0.0 ({pushed['digest']})" in shown
    # The groups of a consumer are not the provider's concern.
    assert names[2] not in shell.run(scenario.provider, "show", service["id"]).stdout
    assert names[0] in shell.run(scenario.provider, "services", "--name", service["name"]).stdout
