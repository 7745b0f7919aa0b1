"""Commands that show a control plane: types, services, jobs, pools, events, agents and participants."""

from __future__ import annotations

import json
import os
import stat
import subprocess
from pathlib import Path

import pytest

from command_line import Shell, on_terminal
from control_plane import Client, Server, start
from fork_server import PROGRAM
from scenario import Scenario, unique

SCHEMA = {
    "cpu": {"type": "integer", "required": True, "validators": [{"type": "min", "value": 1}]},
    "size": {"type": "string", "default": "small", "validators": [{"type": "enum", "values": ["small", "large"]}]},
    "token": {"type": "string", "secret": {"type": "persistent"}, "immutable": True},
    "ip": {"type": "string", "servicePoolType": "public_ip"},
    "url": {"type": "string", "source": "agent"},
    "users": {"type": "array", "items": {"type": "object", "properties": {"name": {"type": "string"}}}},
}
LIFECYCLE = {
    "states": [{"name": name} for name in ("New", "Ready", "Broken", "Gone")],
    "initialState": "New",
    "terminalStates": ["Gone"],
    "runningStates": ["Ready"],
    "actions": [
        {
            "name": "create",
            "transitions": [
                {"from": "New", "to": "Ready"},
                {"from": "New", "to": "Broken", "onError": True, "onErrorRegexp": "disk"},
            ],
        },
        {"name": "delete", "transitions": [{"from": "Ready", "to": "Gone"}]},
    ],
}
REPORT = {
    "run_id": "r",
    "manifest": "deploy.yaml",
    "noop": False,
    "events": [
        {
            "type": "file",
            "name": "/etc/shop",
            "outcome": "changed",
            "reason": "content differs",
            "diff": "-old\n+new",
            "own": True,
        },
        {"type": "service", "name": "shop", "outcome": "stable", "errors": [], "warnings": []},
    ],
    "summary": {"total": 2, "changed": 1, "stable": 1, "duration_seconds": 1.5},
}


def lines(done: subprocess.CompletedProcess[str]) -> list[list[str]]:
    """The cells of a table, split at two spaces."""
    return [[cell.strip() for cell in line.split("  ") if cell.strip()] for line in done.stdout.splitlines()]


def test_a_type_shows_properties_lifecycle_and_agents(shell: Shell, scenario: Scenario) -> None:
    kind = scenario.service_type(SCHEMA, LIFECYCLE)
    scenario.agent.get("/agents/me")
    done = shell.run(scenario.consumer, "types", kind["name"])
    rows = lines(done)
    assert ["cpu", "integer", "yes", "user", "-", "≥ 1", "always"] in rows
    assert ["size", "string", "no", "user", "small", "small | large", "always"] in rows
    assert ["token", "string, secret", "no", "user", "-", "-", "never"] in rows
    assert ["ip", "string", "no", "system", "from pool public_ip", "-", "always"] in rows
    assert ["url", "string", "no", "agent", "-", "-", "always"] in rows
    assert ["users[].name", "string", "no", "user", "-", "-", "always"] in rows
    assert ["states", "New (initial), Ready (running), Broken, Gone (terminal)"] in rows
    assert ["New → Broken", "on failure matching disk"] in rows
    assert "(Connected)" in done.stdout
    # Without the column of providers, which the list has if other tests added some.
    listed = [row[:5] for row in lines(shell.run(scenario.consumer, "types")) if row[0] == kind["name"]]
    assert listed == [[kind["name"], "cpu, size, token, ip, url, users", "New, Ready, Broken, Gone", "1/1", "-"]]
    assert (
        json.loads(shell.run(scenario.consumer, "types", kind["name"], "--json").stdout)["propertySchema"] == SCHEMA
    )


def test_services_show_agent_condition_and_job(shell: Shell, scenario: Scenario) -> None:
    kind = scenario.service_type({"cpu": {"type": "integer"}})
    drifted = scenario.complete(scenario.order(kind, name="drifted"))
    found = {"type": "InSync", "status": "False", "reason": "Drifted", "message": "file#/etc/x differs\n-a\n+b"}
    scenario.agent.put(f"/services/{drifted['id']}/conditions", [found])
    busy = scenario.order(kind, name="busy")
    (job,) = scenario.agent.get(f"/jobs/pending?serviceId={busy['id']}")
    lease = scenario.agent.post(f"/jobs/{job['id']}/claim", {"leaseSeconds": 60}, expect=200)["leaseToken"]
    progress = {"leaseToken": lease, "progress": {"percent": 50, "text": "file 1 of 2"}}
    scenario.agent.post(f"/jobs/{job['id']}/renew", progress, expect=200)
    done = shell.run(scenario.consumer, "services")
    rows = lines(done)
    assert rows[0] == [
        "NAME",
        "TYPE",
        "VERSION",
        "STATUS",
        "OWNER",
        "PROVIDER",
        "AGENT",
        "IN SYNC",
        "JOB",
        "AGE",
        "ID",
    ]
    assert [row[0] for row in rows[1:]] == ["busy", "drifted"]
    assert rows[1][8] == "create running, 50%, file 1 of 2"
    assert rows[2][7] == "Drifted"
    only = shell.run(scenario.consumer, "services", "--name", "drift", "--type", kind["name"], "--status", "Stopped")
    assert [row[0] for row in lines(only)[1:]] == ["drifted"]
    documents = json.loads(shell.run(scenario.consumer, "services", "--json").stdout)
    assert documents[0]["activeJob"]["progress"] == {"percent": 50, "text": "file 1 of 2"}
    shown = shell.run(scenario.provider, "show", "drifted")
    assert "  InSync  False  Drifted  file#/etc/x differs\n    -a\n    +b\n" in shown.stdout
    shown = shell.run(scenario.consumer, "show", "drifted")
    assert "  InSync  False  Drifted  file#/etc/x differs\n" in shown.stdout
    assert "-a\n" not in shown.stdout
    assert ["actions", "start, update, delete"] in lines(shown)


def test_a_job_shows_its_report_in_the_format_of_a_run(shell: Shell, scenario: Scenario) -> None:
    service = scenario.order(scenario.service_type(), name="shop")
    job = scenario.next_job(service)
    scenario.agent.post(f"/jobs/{job['id']}/complete", {"report": REPORT}, expect=204)
    assert lines(shell.run(scenario.consumer, "jobs", "--service", "shop"))[1][:4] == [
        job["id"][:8],
        "shop",
        "create",
        "Completed",
    ]
    done = shell.run(scenario.consumer, "jobs", "show", job["id"][:8])
    assert done.stdout.endswith(
        "\nchanged   file#/etc/shop  content differs\n    -old\n    +new\nRun: 1 changed, 1 stable in 1.50 s\n"
    )
    assert "stable    service#shop" in shell.run(scenario.consumer, "jobs", "show", job["id"], "-v").stdout
    assert json.loads(shell.run(scenario.consumer, "jobs", "show", job["id"], "--json").stdout)["report"] == REPORT
    assert "there is no job 'ffffffff'" in shell.run(scenario.consumer, "jobs", "show", "ffffffff", code=2).stderr


def test_text_from_a_server_cannot_control_the_terminal(server: Server, shell: Shell, scenario: Scenario) -> None:
    kind = scenario.service_type()
    first = scenario.complete(scenario.order(kind, {"a": "\x1b[2J", "b": {"\x1b]0;x": ["\x07"]}}))
    server.store_name("services", first["id"], "evil\x1b[31m")
    failed = scenario.order(kind)
    server.store_name("services", failed["id"], "second\r\n")
    job = scenario.next_job(failed)
    report = {"errorMessage": "a\x1b[2J\nb", "report": {"events": [{"type": "\x1b", "name": "\x9b", "diff": "\x1b"}]}}
    scenario.agent.post(f"/jobs/{job['id']}/fail", report, expect=204)
    for words in (["services"], ["show", "evil\x1b[31m"], ["jobs"], ["jobs", "show", job["id"]], ["events"]):
        done = shell.run(scenario.consumer, *words)
        assert not set("\x1b\x07\x9b\r") & set(done.stdout + done.stderr), words


def test_pools_show_their_usage_and_the_services_of_their_values(shell: Shell, scenario: Scenario) -> None:
    pool_set = scenario.admin.post("/service-pool-sets", {"name": "fra", "providerId": scenario.provider_id})
    body = {"name": unique("ips"), "type": "public_ip", "propertyType": "string", "generatorType": "list"}
    pool = scenario.admin.post("/service-pools", {**body, "servicePoolSetId": pool_set["id"]})
    for value in ("10.0.0.1", "10.0.0.2"):
        scenario.admin.post("/service-pool-values", {"name": value, "value": value, "servicePoolId": pool["id"]})
    scenario.admin.patch(f"/agents/{scenario.agent_id}", {"servicePoolSetId": pool_set["id"]})
    scenario.order(scenario.service_type({"ip": {"type": "string", "servicePoolType": "public_ip"}}), name="shop")
    rows = lines(shell.run(scenario.provider, "pools"))
    bar = "█" * 10 + "░" * 10
    assert rows[1] == [pool["name"], "public_ip", "fra", "string, list", bar, "2", "1", "1"]
    rows = lines(shell.run(scenario.provider, "pools", pool["name"]))
    assert rows[1][2] == "fra"
    assert ["10.0.0.1", "10.0.0.1", "shop", "ip", "0s"] in [[*row[:4], "0s"] for row in rows if len(row) == 5]
    assert ["10.0.0.2", "10.0.0.2", "free", "-", "-"] in rows
    assert "There is no pool yet" in shell.run(scenario.consumer, "pools").stdout


def test_a_pool_is_created_and_filled_for_an_agent(shell: Shell, scenario: Scenario) -> None:
    words = ["pools", "add", "ports", "--type", "port", "--agent", scenario.agent_id, "--value"]
    done = shell.run(scenario.provider, *words, "8100-8101", "--value", "8200")
    assert "Created pool ports of type port.\n" in done.stdout
    kind = scenario.service_type({"port": {"type": "integer", "servicePoolType": "port"}})
    taken = [scenario.order(kind)["properties"]["port"] for _ in range(3)]
    assert sorted(taken) == [8100, 8101, 8200]
    rows = lines(shell.run(scenario.provider, *words, "8200-8201"))
    assert rows[1][5:] == ["4", "3", "1"]
    # The values that were just written are not repeated.
    assert len(rows) == 2
    refused = shell.run(scenario.provider, "pools", "add", "other", *words[3:], "1", code=2)
    assert "the agent already has pool 'ports' of type port" in refused.stderr


@pytest.mark.parametrize("words", [["a", "b"], ["add"], ["add", "x"], ["x", "--type", "y"], ["add", "x", "y"]])
def test_wrong_arguments_for_a_pool_are_refused(shell: Shell, scenario: Scenario, words: list[str]) -> None:
    shell.run(scenario.admin, "pools", *words, code=2)


@pytest.mark.parametrize("value", ["9-1", "1-99999"])
def test_an_invalid_range_creates_no_pool(shell: Shell, scenario: Scenario, value: str) -> None:
    words = ["pools", "add", unique("ports"), "--type", "port", "--agent", scenario.agent_id, "--value", value]
    assert f"--value {value}" in shell.run(scenario.admin, *words, code=2).stderr
    assert scenario.provider.get("/service-pools")["items"] == []


def test_events_of_a_service_include_its_jobs(shell: Shell, scenario: Scenario) -> None:
    kind = scenario.service_type()
    scenario.complete(scenario.order(kind, name="shop"))
    scenario.order(kind, name="other")
    kinds = [
        line.split()[2] for line in shell.run(scenario.consumer, "events", "--service", "shop").stdout.splitlines()
    ]
    assert kinds == ["service.created", "job.created", "job.claimed", "job.completed", "service.transitioned"]
    events = json.loads(shell.run(scenario.consumer, "events", "--type", "service.cr", "--json").stdout)
    assert [event["type"] for event in events] == ["service.created"] * 2
    assert "there is no service" in shell.run(scenario.stranger, "events", "--service", "shop", code=2).stderr


def test_events_are_followed_through_a_restart_without_a_gap(tmp_path: Path) -> None:
    folder = tmp_path / "plane" / "data"
    server = start(folder)
    try:
        scenario = Scenario(server.admin)
        kind = scenario.service_type()
        ordered = scenario.order(kind)
        words = [str(PROGRAM), "events", "--follow", "--type", "service.created", "--json"]
        with on_terminal(words, Shell(server).environment(scenario.consumer.token)) as terminal:
            # After the first event no event is missed.
            terminal.wait_for(ordered["id"])
            terminal.wait_for(scenario.order(kind)["id"])
            server.stop()
            terminal.wait_for("reconnecting")
            server = start(folder, port=int(server.url.rpartition(":")[2]))
            terminal.wait_for(scenario.order(kind)["id"])
            assert terminal.seen.count('"service.created"') == 3
    finally:
        server.process.kill()
        server.process.wait()


def test_adding_an_agent_creates_all_missing_objects(shell: Shell, scenario: Scenario) -> None:
    kinds = [scenario.service_type()["name"] for _ in range(2)]
    name, provider = unique("edge"), unique("hosting")
    words = ["agents", "add", name, "--serves", ",".join(kinds), "--provider", provider, "--tag", "eu"]
    done = shell.run(scenario.admin, *words)
    assert f"Created participant {provider}.\n" in done.stdout
    assert f"Created agent {name}, which serves {', '.join(kinds)}.\n" in done.stdout
    command = next(line for line in done.stdout.splitlines() if line.startswith("  mainstay agent enroll "))
    code = command.split()[-1]
    token = Client(scenario.admin.url).post("/enrol", {"code": code})["token"]
    (row,) = (row for row in lines(shell.run(scenario.admin, "agents")) if row[0] == name)
    assert row[1:3] == ["New", "never"]
    scenario.admin.as_token(token).get("/agents/me")
    (row,) = (row for row in lines(shell.run(scenario.admin, "agents")) if row[0] == name)
    assert [*row[:2], *row[3:]] == [name, "Connected", ", ".join(kinds), "eu", provider, "all"]
    again = shell.run(scenario.admin, *words)
    assert f"Agent {name} already exists.\n" in again.stdout
    fresh = json.loads(shell.run(scenario.admin, "agents", "code", name, "--json").stdout)
    assert fresh["enrolment"]["code"] != code
    other = scenario.admin.post("/service-types", {"name": unique("other")})["name"]
    refused = shell.run(scenario.admin, "agents", "add", name, "--serves", other, "--provider", provider, code=2)
    assert "does not serve all of" in refused.stderr


def test_an_agent_serves_only_the_requested_types(shell: Shell, scenario: Scenario) -> None:
    one, other = (scenario.service_type()["name"] for _ in range(2))
    provider = scenario.admin.get(f"/participants/{scenario.provider_id}")["name"]
    both, single, own = unique("edge"), unique("edge"), unique("edge")
    shell.run(scenario.admin, "agents", "add", both, "--serves", f"{one},{other}", "--provider", provider)
    # A provider cannot create an agent type, and gets a warning.
    done = shell.run(scenario.provider, "agents", "add", own, "--serves", other)
    assert f"serves more than {other}" in done.stderr
    shell.run(scenario.admin, "agents", "add", single, "--serves", other, "--provider", provider)
    rows = {row[0]: row[3] for row in lines(shell.run(scenario.admin, "agents"))}
    assert (rows[both], rows[own], rows[single]) == (f"{one}, {other}", f"{one}, {other}", other)


def test_adding_an_agent_names_the_grant_first(shell: Shell, scenario: Scenario) -> None:
    kind, provider = scenario.admin.post("/service-types", {"name": unique("t")})["name"], unique("hosting")
    words = ["--serves", kind, "--provider", provider]
    done = shell.run(scenario.admin, "agents", "add", unique("edge"), *words, "--no-grant")
    assert (
        f"serves its own participant only; an admin changes that with `mainstay agents grant '{kind}'" in done.stdout
    )
    done = shell.run(scenario.admin, "agents", "add", unique("edge"), *words)
    grant, created = done.stdout.index("may now serve all participants"), done.stdout.index("Created agent edge")
    assert grant < created
    done = shell.run(scenario.admin, "agents", "add", unique("edge"), *words)
    assert "may now serve" not in done.stdout
    own = scenario.token("participant", scenario.participant())
    done = shell.run(own, "agents", "add", unique("edge"), "--serves", kind)
    assert "serves its own participant only" in done.stdout


def test_a_participant_cannot_get_the_agents_of_an_admin_by_its_name(shell: Shell, scenario: Scenario) -> None:
    kind = scenario.admin.post("/service-types", {"name": unique("t")})["name"]
    hostile_id = scenario.stranger.get("/tokens/me")["participantId"]
    # The name of the provider that an admin does not have to give.
    scenario.stranger.patch(f"/participants/{hostile_id}", {"name": "operator"})
    try:
        refused = shell.run(scenario.admin, "agents", "add", unique("edge"), "--serves", kind, code=2)
        assert hostile_id in refused.stderr
        named = shell.run(
            scenario.admin, "agents", "add", unique("edge"), "--serves", kind, "--provider", hostile_id, "--json"
        )
        assert json.loads(named.stdout)["providerId"] == hostile_id
    finally:
        scenario.admin.patch(f"/participants/{hostile_id}", {"name": unique("renamed")})
    name = unique("same")
    twins = [scenario.admin.post("/participants", {"name": name})["id"] for _ in range(2)]
    words = ["agents", "add", unique("edge"), "--serves", kind, "--provider", name]
    refused = shell.run(scenario.admin, *words, code=2)
    assert all(each in refused.stderr for each in twins)


def test_an_admin_grants_and_withdraws(shell: Shell, scenario: Scenario) -> None:
    kind = scenario.agent_type()
    providers = [scenario.provider_id, scenario.participant()]
    names = [scenario.admin.get(f"/participants/{each}")["name"] for each in providers]
    for name in names:
        done = shell.run(scenario.admin, "agents", "grant", kind["name"], name)
        assert done.stdout == f"Agents of {name} with agent type {kind['name']} serve all participants.\n"
    shell.run(scenario.admin, "agents", "grant", kind["name"], providers[0])
    assert set(scenario.admin.get(f"/agent-types/{kind['id']}")["providerIds"]) == set(providers)
    done = shell.run(scenario.admin, "agents", "withdraw", kind["id"], names[1])
    assert "serve their own participant only; living services stay" in done.stdout
    written = json.loads(shell.run(scenario.admin, "agents", "withdraw", kind["id"], names[0], "--json").stdout)
    assert written["providerIds"] == []
    assert shell.run(scenario.provider, "agents", "grant", kind["id"], names[0], code=2).stderr


@pytest.mark.parametrize(
    "words",
    [["add"], ["add", "x"], ["code"], ["--serves", "x"], ["remove", "x"], ["grant", "x"], ["code", "x", "y"]],
)
def test_wrong_arguments_for_an_agent_are_refused(shell: Shell, scenario: Scenario, words: list[str]) -> None:
    shell.run(scenario.admin, "agents", *words, code=2)


def test_a_participant_gets_a_token_that_is_shown_once(shell: Shell, scenario: Scenario, tmp_path: Path) -> None:
    name, file = unique("acme"), tmp_path / "token"
    done = shell.run(scenario.admin, "participants", "add", name)
    value = next(line.strip() for line in done.stdout.splitlines() if line.startswith("  "))
    assert name in shell.run(scenario.admin.as_token(value), "login").stdout
    done = shell.run(scenario.admin, "participants", "token", name, "--token-file", str(file))
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert file.read_text().strip() not in done.stdout
    assert name in shell.run(scenario.admin.as_token(file.read_text().strip()), "login").stdout
    assert f"participants token {name}" in shell.run(scenario.admin, "participants", "add", name, code=2).stderr
    listed = json.loads(shell.run(scenario.admin, "participants", "--json").stdout)
    assert name in [each["name"] for each in listed]


@pytest.mark.parametrize("days", ["0", "-3", "99999999", "soon"])
def test_a_token_of_an_impossible_length_is_refused_before_the_participant_exists(
    shell: Shell, scenario: Scenario, days: str
) -> None:
    name = unique("acme")
    done = shell.run(scenario.admin, "participants", "add", name, "--days", days, code=2)
    assert f"--days: must be a whole number from 1 to 36500, not '{days}'" in done.stderr
    assert scenario.admin.get(f"/participants?name={name}")["items"] == []


def test_a_read_only_token_is_shown_as_such_and_a_refusal_names_the_account(
    shell: Shell, scenario: Scenario, tmp_path: Path
) -> None:
    name, file = unique("acme"), tmp_path / "token"
    words = ("--token-file", str(file), "--read-only", "--days", "2")
    done = shell.run(scenario.admin, "participants", "add", name, *words)
    assert f"Token of {name}, read-only, valid until " in done.stdout
    token = scenario.admin.as_token(file.read_text().strip())
    assert f" as participant {name}, read-only, until " in shell.run(token, "login").stdout
    shell.run(token, "services")
    refused = shell.run(token, "participants", "token", name, code=2)
    assert refused.stderr == "mainstay: this token may only read\n`mainstay login` shows the account in use.\n"


@pytest.mark.parametrize(
    ("value", "expanded"),
    [
        ("10.0.0.10-10.0.0.12", ["10.0.0.10", "10.0.0.11", "10.0.0.12"]),
        ("fd00::fffe-fd00::1:0", ["fd00::fffe", "fd00::ffff", "fd00::1:0"]),
        ("10.0.0.0/30", ["10.0.0.1", "10.0.0.2"]),
        ("10.0.0.7/32", ["10.0.0.7"]),
        ("fd00::/127", ["fd00::", "fd00::1"]),
        ("disk-a", ["disk-a"]),
        ("a/b", ["a/b"]),
    ],
)
def test_ranges_of_addresses_and_networks_are_expanded(
    shell: Shell, scenario: Scenario, value: str, expanded: list[str]
) -> None:
    words = ["pools", "add", unique("addresses"), "--type", "ip", "--agent", scenario.agent_id, "--value", value]
    shown = json.loads(shell.run(scenario.provider, *words, "--json").stdout)
    assert [each["value"] for each in shown["values"]] == expanded


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ("10.0.0.12-10.0.0.10", "the range ends before it begins"),
        ("10.0.0.0-10.0.255.255", "is not a range of 1 to 1000 values"),
        ("10.0.0.1-fd00::1", "mixes IPv4 and IPv6"),
        ("10.0.0.1/24", "is not a network such as 10.0.0.0/24: 10.0.0.1/24 has host bits set"),
        ("10.0.0.0/8", "has more than 1000 addresses; use a pool of type subnet"),
        ("fd00::/64", "has more than 1000 addresses; use a pool of type subnet"),
    ],
)
def test_a_range_that_cannot_be_expanded_is_refused(
    shell: Shell, scenario: Scenario, value: str, message: str
) -> None:
    words = ["pools", "add", unique("addresses"), "--type", "ip", "--agent", scenario.agent_id, "--value", value]
    refused = shell.run(scenario.provider, *words, code=2).stderr
    assert f"--value {value}" in refused
    assert message in refused


def test_a_code_for_many_hosts_enrolls_hosts_by_their_name(shell: Shell, scenario: Scenario, tmp_path: Path) -> None:
    agent_type = scenario.agent_type()["name"]
    provider = scenario.admin.get(f"/participants/{scenario.provider_id}")["name"]
    words = ["agents", "code", "--type", agent_type, "--provider", provider, "--count", "2", "--for", "30m"]
    prefix = f"{unique('fra')}-"
    done = shell.run(scenario.admin, *words, "--tag", "zone=a", "--prefix", prefix)
    assert f"an agent with the name {prefix}HOST; --name chooses another HOST." in done.stdout
    assert f"Agents of {provider} with agent type {agent_type} may now serve all participants" in done.stdout
    assert "Run this on 2 hosts before " in done.stdout
    command = next(line for line in done.stdout.splitlines() if line.startswith("  mainstay agent enroll ")).split()
    config = str(tmp_path / "one.json")
    named = shell.run(scenario.admin, *command[1:], "--config", config)
    assert f"Enrolled as agent {prefix}{os.uname().nodename} (" in named.stdout
    agent_id = json.loads(Path(config).read_text())["agentId"]
    agent = scenario.admin.get(f"/agents/{agent_id}")
    assert agent["name"].endswith(f"-{os.uname().nodename}")
    assert agent["tags"] == ["zone=a"]
    # The same host again: the refusal names the way out and takes no place.
    again = shell.run(scenario.admin, *command[1:], "--config", config, code=2)
    assert "Give another name with --name" in again.stderr
    other = shell.run(scenario.admin, *command[1:], "--name", "other", "--config", str(tmp_path / "two.json"))
    assert f"Enrolled as agent {prefix}other (" in other.stdout
    used_up = shell.run(scenario.admin, *command[1:], "--name", "third", "--config", config, code=2)
    assert "`mainstay agents code --type AGENT-TYPE --count N`" in used_up.stderr
    (row,) = (row for row in lines(shell.run(scenario.provider, "agents", "codes")) if agent_type in row)
    assert [row[1], row[2], row[3], row[5]] == ["used up", "0 of 2", agent_type, "zone=a"]
    assert "Revoked enrollment code" in shell.run(scenario.provider, "agents", "revoke-code", row[0], "--yes").stdout
    assert json.loads(shell.run(scenario.provider, "agents", "codes", "--json").stdout) == []
    quiet = shell.run(scenario.provider, "agents", "code", "--type", agent_type, "--quiet").stdout
    assert len(quiet.strip()) == 32
    # As with `agents add`, the default provider of an admin is `operator`.
    own = json.loads(shell.run(scenario.admin, "agents", "code", "--type", agent_type, "--json").stdout)
    assert scenario.admin.get(f"/participants/{own['providerId']}")["name"] == "operator"


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (["agents", "code"], "name an agent, or the type of new ones"),
        (["agents", "code", "a", "--count", "2"], "--count: only with --type"),
        (["agents", "code", "a", "--type", "t"], "give an agent or --type, not both"),
        (["agents", "code", "--type", "none"], "`mainstay agents add NAME --serves SERVICE-TYPE` creates the one of"),
        (["agents", "revoke-code", "0000"], "there is no enrollment code with id '0000'"),
    ],
)
def test_a_wrong_command_about_codes_names_the_way_out(
    shell: Shell, scenario: Scenario, words: list[str], text: str
) -> None:
    assert text in shell.run(scenario.provider, *words, code=2).stderr
