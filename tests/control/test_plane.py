"""The plane as code on real servers and both databases: exports, plans, applies, refusals and interruptions."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

import seed_text
from blueprint_samples import blueprint, push, serve_type
from command_line import Shell, faulty_proxy_to, on_terminal, working_agent
from control_plane import Server, running
from fork_server import PROGRAM
from mainstay.foundation.documents import read_yaml
from random_planes import RandomPlane
from scenario import Scenario, unique
from torture import count_of

SIMPLE: Any = seed_text.block("Example 1: Simple VM Lifecycle")
# Agents enroll, so an empty server has none, and no orders without them.
WITHOUT_HOSTS = "participants,optionTypes,metricTypes,serviceTypes,agentTypes,options,poolSets,pools,configPools,globalConfigPools,groups"


@pytest.fixture
def shell(server: Server) -> Shell:
    return Shell(server)


@pytest.fixture
def two_servers(request: pytest.FixtureRequest, server: Server, tmp_path: Path) -> Iterator[list[Server]]:
    """New servers on the same kind of database."""
    with ExitStack() as stack:
        yield [
            stack.enter_context(
                running(
                    tmp_path / name / "data",
                    database_url=request.getfixturevalue("postgresql").new_database()
                    if server.database_url
                    else None,
                )
            )
            for name in ("one", "two")
        ]


OUTDATED = "mainstay: another apply changed the server after this plan was made; nothing was changed: run the command again\n"


def write(folder: Path, text: str, name: str = "plane.yaml") -> str:
    place = folder / name
    place.write_text(text)
    return str(place)


def plan(shell: Shell, caller: Any, *files: str, code: int = 0) -> Any:
    done = shell.run(caller, "plane", "plan", *files, "--json", code=code)
    return json.loads(done.stdout)


def apply(shell: Shell, caller: Any, *words: str, code: int = 0) -> subprocess.CompletedProcess[str]:
    return shell.run(caller, "plane", "apply", *words, code=code)


def named(scenario: Scenario, kind: str, name: str) -> list[Any]:
    """The rows of a kind with this name. Numbers of events would not do: the server's own tasks write events, too."""
    found: list[Any] = scenario.admin.get(f"/{kind}?name={name}")["items"]
    return found


@pytest.mark.parametrize("seed", range(count_of(20)))
def test_the_plan_of_an_export_is_empty_and_an_empty_server_becomes_the_same(
    two_servers: list[Server], tmp_path: Path, seed: int
) -> None:
    server, empty = two_servers
    plane = RandomPlane(server.admin, seed)
    shell, other = Shell(server), Shell(empty)
    file = str(tmp_path / "whole.yaml")
    shell.run(server.admin, "plane", "export", file, "--only", WITHOUT_HOSTS)
    done = shell.run(server.admin, "plane", "plan", file, "--detailed-exitcodes", "--prune")
    assert done.stdout == "The server is as the files say.\n"
    apply(other, empty.admin, file)
    copied = other.run(empty.admin, "plane", "export", "--only", WITHOUT_HOSTS).stdout
    assert copied == Path(file).read_text()
    plane.add_agents_and_orders()
    everything = shell.run(server.admin, "plane", "export").stdout
    assert "canary" not in everything
    whole = write(tmp_path, everything)
    words = ("plane", "plan", whole, "--detailed-exitcodes", "--prune", "--prune-orders")
    assert shell.run(server.admin, *words).stdout == "The server is as the files say.\n"


def test_a_plan_shows_old_and_new_values_and_changes_nothing(
    shell: Shell, scenario: Scenario, tmp_path: Path
) -> None:
    name = scenario.admin.get(f"/participants/{scenario.consumer_id}")["name"]
    new = unique("new")
    file = write(tmp_path, f"participants:\n  {name}: {{status: Disabled}}\n  {new}:\n")
    done = shell.run(scenario.admin, "plane", "plan", file, "--detailed-exitcodes", code=2)
    assert done.stdout.splitlines() == [
        f"~ participants  {name}",
        "    status: Enabled → Disabled",
        f"+ participants  {new}",
        "1 to create, 1 to change, 0 to delete.",
    ]
    assert shell.run(scenario.admin, "plane", "plan", file).returncode == 0
    assert named(scenario, "participants", new) == []
    assert [row["status"] for row in named(scenario, "participants", name)] == ["Enabled"]


def test_a_fault_anywhere_applies_nothing(shell: Shell, scenario: Scenario, tmp_path: Path) -> None:
    new, pool = unique("new"), unique("pool")
    text = f"participants:\n  {new}:\npools:\n  {new}:\n    s:\n      {pool}: {{type: t, propertyType: integer, values: [1, text]}}\n"
    refused = apply(shell, scenario.admin, write(tmp_path, text), code=1)
    assert "plane.yaml:6:" in refused.stderr
    # A fault that only the server finds, in a chain of new rows.
    subnet = text.replace(
        "propertyType: integer, values: [1, text]", "propertyType: string, subnet: {cidr: nonsense}"
    )
    refused = apply(shell, scenario.admin, write(tmp_path, subnet), code=1)
    place = subnet.splitlines()[5].index("cidr") + 1
    assert f"plane.yaml:6:{place}: pool {new} / s / {pool}: generatorConfig.cidr is not a network" in refused.stderr
    assert "1 fault; nothing was touched." in refused.stderr
    assert named(scenario, "participants", new) == []
    assert named(scenario, "service-pools", pool) == []
    applied = text.replace("[1, text]", "[1, 2]")
    apply(shell, scenario.admin, write(tmp_path, applied))
    assert len(named(scenario, "participants", new)) == len(named(scenario, "service-pools", pool)) == 1


def test_all_faults_of_all_files_are_reported_at_once_each_at_its_line(tmp_path: Path) -> None:
    # Among the names of other tests there may be closer ones.
    with running(tmp_path / "data") as server:
        check_faults(Shell(server), Scenario(server.admin), tmp_path)


def check_faults(shell: Shell, scenario: Scenario, tmp_path: Path) -> None:
    schema = {"cpu": {"type": "integer", "validators": [{"type": "max", "value": 8}]}, "note": {"type": "string"}}
    kind = scenario.service_type(schema, SIMPLE)
    assert scenario.agent_id
    consumer = scenario.admin.get(f"/participants/{scenario.consumer_id}")["name"]
    new = unique("new")
    orders = (
        f"orders:\n  {consumer}:\n    team:\n"
        f"      one:\n        type: {kind['name']}\n        properties:\n          cpu: 99\n          noet: x\n"
        f"      two:\n        type: {kind['name']}x\n"
        f"      three: {{type: {kind['name']}, propertes: {{cpu: 1}}}}\n"
        f"  {consumer}x:\n    team:\n      four: {{type: {kind['name']}}}\n"
    )
    others = (
        f"participants:\n  {new}: {{status: On}}\nserviceTypes:\n  {new}:\n    propertySchema:\n"
        "      size: {type: integr}\n"
    )
    files = [write(tmp_path, orders, "orders.yaml"), write(tmp_path, others, "others.yaml")]
    done = shell.run(scenario.admin, "plane", "plan", *files, code=1)
    *shown, count = done.stderr.replace(f"{tmp_path}/", "").splitlines()
    expected = [
        "orders.yaml:7:11: cpu: value 99 exceeds maximum 8",
        "orders.yaml:8:11: noet: unknown property (did you mean 'note'?)",
        f"orders.yaml:10:9: there is no service type '{kind['name']}x' (did you mean '{kind['name']}'?)",
        "orders.yaml:11:",
        f"orders.yaml:12:3: there is no participant '{consumer}x' (did you mean '{consumer}'?)",
        f"others.yaml:2:{len(new) + 6}: must be Enabled or Disabled",
        "others.yaml:6:14: size.type: unknown type 'integr' (did you mean 'integer'?)",
    ]
    assert len(shown) == len(expected), shown
    assert all(map(str.startswith, shown, expected)), shown
    assert "order has no 'propertes' (did you mean 'properties'?)" in shown[3]
    assert count == "7 faults; nothing was touched."
    listed = plan(shell, scenario.admin, *files, code=1)["faults"]
    assert [f"{each['file']}:{each['line']}".removeprefix(f"{tmp_path}/") for each in listed] == [
        ":".join(each.split(":")[:2]) for each in expected
    ]
    # A document that is not YAML hides what it defines, but not the faults of others.
    broken = write(tmp_path, "participants: {a\n", "broken.yaml")
    done = shell.run(scenario.admin, "plane", "plan", broken, files[1], code=1)
    assert "2 faults; nothing was touched." in done.stderr
    # Without the server, those of the files.
    alone = shell.run(scenario.admin, "plane", "plan", *files, code=1, url="http://127.0.0.1:9")
    assert "the server has not checked the files: http://127.0.0.1:9 cannot be reached" in alone.stderr
    assert "2 faults; nothing was touched." in alone.stderr


def test_orders_are_created_changed_and_deleted(shell: Shell, scenario: Scenario, tmp_path: Path) -> None:
    schema = {
        "cpu": {"type": "integer"},
        "key": {"type": "string", "secret": {"type": "persistent"}},
        "db": {"type": "reference"},
    }
    kind = scenario.service_type(schema, SIMPLE)
    assert scenario.agent_id
    consumer = scenario.admin.get(f"/participants/{scenario.consumer_id}")["name"]
    (tmp_path / "key.txt").write_text("canary-1\n")
    text = (
        f"orders:\n  {consumer}:\n    team:\n      app: {{type: {kind['name']}, properties: {{db: data}}}}\n"
        f"      data: {{type: {kind['name']}, properties: {{cpu: 1, key: {{file: key.txt}}}}}}\n"
    )
    file = write(tmp_path, text)
    shown = shell.run(scenario.consumer, "plane", "plan", file).stdout
    assert "canary" not in shown
    assert "(secret)" in shown
    apply(shell, scenario.consumer, file, "--no-wait")
    services = {each["name"]: each for each in scenario.consumer.get("/services?living=true")["items"]}
    assert services["app"]["properties"]["db"] == services["data"]["id"]
    # Nothing is left to do, and the secret is not sent again.
    assert plan(shell, scenario.consumer, file)["steps"] == []
    for name in ("data", "app"):
        scenario.complete(services[name])
    file = write(tmp_path, text.replace("cpu: 1", "cpu: 2"))
    apply(shell, scenario.consumer, file, "--no-wait")
    changed = scenario.complete(services["data"])
    assert changed["properties"]["cpu"] == 2
    assert changed["properties"]["key"] == services["data"]["properties"]["key"]
    apply(shell, scenario.consumer, file, "--set-secrets", "--no-wait")
    assert scenario.complete(services["data"])["properties"]["key"] != services["data"]["properties"]["key"]
    file = write(tmp_path, f"orders:\n  {consumer}:\n    team:\n      data: {{type: {kind['name']}}}\n")
    assert plan(shell, scenario.consumer, file, "--prune")["steps"] == []
    refused = apply(shell, scenario.consumer, file, "--prune-orders", code=1)
    assert "this deletes 1" in refused.stderr
    apply(shell, scenario.consumer, file, "--prune-orders", "--yes", "--no-wait")
    assert scenario.service(services["app"]["id"])["activeJob"]["action"] == "delete"


def test_an_apply_waits_for_its_jobs_and_names_those_that_fail(
    shell: Shell, scenario: Scenario, tmp_path: Path
) -> None:
    kind = scenario.service_type({"cpu": {"type": "integer"}}, SIMPLE)
    assert scenario.agent_id
    consumer = scenario.admin.get(f"/participants/{scenario.consumer_id}")["name"]
    text = (
        f"orders:\n  {consumer}:\n    team:\n      good: {{type: {kind['name']}, properties: {{cpu: 1}}}}\n"
        f"      bad: {{type: {kind['name']}, properties: {{cpu: 1}}}}\n"
    )
    file = write(tmp_path, text)

    def do(job: Any) -> dict[str, str]:
        return {"errorMessage": "disk is full"} if job["service"]["name"] == "bad" else {}

    with working_agent(scenario, do):
        failed = apply(shell, scenario.consumer, file, code=1)
        out = failed.stdout
        started = (
            f"Applied.\nStarted 2 jobs:\n  create of {consumer} / team / good\n  create of {consumer} / team / bad\n"
        )
        assert started in out
        assert "good: Stopped, create completed" in out
        assert "1 of 2 jobs completed.\n" in out
        assert failed.stderr == f"mainstay: create of {consumer} / team / bad failed: disk is full\n"
        file = write(tmp_path, text.replace("cpu: 1}}\n      bad", "cpu: 2}}\n      bad"))
        done = json.loads(apply(shell, scenario.consumer, file, "--json").stdout)
        assert [(each["path"][-1], each["action"], each["status"]) for each in done["jobs"]] == [
            ("good", "update", "Completed")
        ]
        assert json.loads(apply(shell, scenario.consumer, file, "--json").stdout)["jobs"] == []
    # Without an agent at work.
    file = write(tmp_path, text.replace("cpu: 1}}\n      bad", "cpu: 3}}\n      bad"))
    late = apply(shell, scenario.consumer, file, "--timeout", "1s", code=4)
    assert f"update of {consumer} / team / good did not finish in time and continues: `mainstay watch" in late.stderr
    file = write(tmp_path, f"orders:\n  {consumer}:\n    team:\n      third: {{type: {kind['name']}}}\n")
    left = apply(shell, scenario.consumer, file, "--no-wait").stdout
    assert left.endswith("They may still fail: `mainstay jobs` lists them with their outcome.\n")


def test_a_plan_shows_the_version_that_an_update_brings(shell: Shell, scenario: Scenario, tmp_path: Path) -> None:
    name = unique("web")
    schema = {"greeting": {"type": "string"}}
    actions = {"update": {"manifest": "manifests/all.yaml", "upgrades": True}}
    kind = serve_type(
        scenario, push(scenario.admin, blueprint(name, "0.2.0", schema=schema, lifecycle=SIMPLE, actions=actions))
    )
    service = scenario.order(kind, {"greeting": "hello"})
    scenario.complete(service)
    push(scenario.admin, blueprint(name, "0.3.0", schema=schema, lifecycle=SIMPLE, actions=actions))
    consumer = scenario.admin.get(f"/participants/{scenario.consumer_id}")["name"]
    group = scenario.admin.get(f"/service-groups/{scenario.group_id}")["name"]
    file = write(
        tmp_path,
        f"orders:\n  {consumer}:\n    {group}:\n      {service['name']}: {{properties: {{greeting: salut}}}}\n",
    )
    shown = shell.run(scenario.consumer, "plane", "plan", file).stdout
    assert "    properties.greeting: hello → salut\n    blueprint: 0.2.0 → 0.3.0\n" in shown
    (step,) = plan(shell, scenario.consumer, file)["steps"]
    assert {"attribute": "blueprint", "old": "0.2.0", "new": "0.3.0"} in step["changes"]
    (job,) = json.loads(apply(shell, scenario.consumer, file, "--no-wait", "--json").stdout)["jobs"]
    assert job["blueprintVersion"] == "0.3.0"
    scenario.complete(service)
    assert scenario.service(service["id"])["blueprintVersion"] == "0.3.0"
    # A new name starts no job.
    renamed = write(
        tmp_path,
        f"orders:\n  {consumer}:\n    {group}:\n      renamed: {{id: {service['id']}}}\n",
    )
    assert json.loads(apply(shell, scenario.consumer, renamed, "--json").stdout)["jobs"] == []


def test_prune_asks_for_the_number_of_deletions(shell: Shell, scenario: Scenario, tmp_path: Path) -> None:
    names = [unique("group") for _ in range(3)]
    for name in names:
        scenario.consumer.post("/service-groups", {"name": name, "consumerId": scenario.consumer_id})
    words = [str(PROGRAM), "plane", "apply", write(tmp_path, "groups:\n"), "--prune"]
    for typed, code, left in (("2\n", 1, 3), ("3\n", 0, 0)):
        with on_terminal(words, shell.environment(scenario.consumer.token)) as terminal:
            terminal.wait_for("Type the number of deletions (3)")
            terminal.type(typed)
            assert terminal.finish() == code
        assert len(scenario.consumer.get("/service-groups")["items"]) == left


def test_a_blueprint_directory_is_pushed_once_and_served(shell: Shell, scenario: Scenario, tmp_path: Path) -> None:
    name = unique("web")
    shell.run(scenario.admin, "blueprint", "new", name, "--dir", str(tmp_path / "web"))
    agents = unique("agents")
    file = write(
        tmp_path, f"blueprints:\n  {name}: {{directory: web}}\nagentTypes:\n  {agents}: {{serviceTypes: [{name}]}}\n"
    )
    apply(shell, scenario.admin, file)
    (found,) = scenario.admin.get(f"/agent-types?name={agents}")["items"]
    kind = scenario.admin.get(f"/service-types/{found['serviceTypeIds'][0]}")
    assert kind["name"] == name
    assert plan(shell, scenario.admin, file)["steps"] == []


def test_a_participant_sees_only_its_own_and_is_refused_clearly(
    shell: Shell, scenario: Scenario, tmp_path: Path
) -> None:
    scenario.order(scenario.service_type({"cpu": {"type": "integer"}}))
    scenario.new_agent()
    foreign = scenario.admin.get(f"/participants/{scenario.participant('foreign')}")["name"]
    own = scenario.admin.get(f"/participants/{scenario.consumer_id}")["name"]
    exported = read_yaml(shell.run(scenario.consumer, "plane", "export").stdout, "export")
    assert list(exported) == ["participants", "orders"]
    assert list(exported["participants"]) == list(exported["orders"]) == [own]
    file = write(tmp_path, f"groups:\n  {foreign}: {{g: }}\n")
    assert f"there is no participant '{foreign}'" in apply(shell, scenario.consumer, file, code=1).stderr
    file = write(tmp_path, f"serviceTypes:\n  {unique('type')}:\n")
    refused = apply(shell, scenario.consumer, file, code=1)
    assert "plane.yaml:2:3: service type" in refused.stderr
    assert "a token of role participant may not write a service type" in refused.stderr
    body = {"name": "r", "role": "participant", "scopeId": scenario.consumer_id, "readOnly": True}
    reader = scenario.admin.as_token(scenario.admin.post("/tokens", body)["value"])
    file = write(tmp_path, f"groups:\n  {own}: {{{unique('g')}: }}\n")
    assert shell.run(reader, "plane", "plan", file, code=1).stderr


def test_hostile_names_do_not_reach_the_terminal(embedded: Server, tmp_path: Path) -> None:
    shell, scenario = Shell(embedded), Scenario(embedded.admin)
    hostile = "evil\x1b]0;owned\x07\x1b[2J\u202e"
    group = scenario.consumer.post("/service-groups", {"name": unique("g"), "consumerId": scenario.consumer_id})
    shell.server.store_name("service_groups", group["id"], hostile)
    exported = shell.run(scenario.consumer, "plane", "export").stdout
    planned = shell.run(scenario.consumer, "plane", "plan", write(tmp_path, "groups:\n"), "--prune")
    for text in (exported, planned.stdout + planned.stderr):
        assert not {"\x1b", "\x07", "\u202e"} & set(text)
    assert "evil" in planned.stdout
    own = read_yaml(exported, "export")["groups"]
    assert hostile in next(iter(own.values()))


@pytest.mark.test_all
def test_kill_in_the_middle_of_an_apply_leaves_all_or_nothing(
    shell: Shell, scenario: Scenario, tmp_path: Path
) -> None:
    owner = unique("owner")
    pools = "".join(
        f"      p{number}: {{type: t{number}, propertyType: integer, values: [1-40]}}\n" for number in range(8)
    )
    file = write(tmp_path, f"participants:\n  {owner}:\npools:\n  {owner}:\n    s:\n{pools}")
    wanted = 1 + 1 + 8 + 8 * 40
    environment = {**os.environ, **shell.environment(scenario.admin.token)}
    for attempt in range(6):
        process = subprocess.Popen(
            [str(PROGRAM), "plane", "apply", file],
            env=environment,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        time.sleep(0.3 + 0.25 * attempt)
        process.send_signal(signal.SIGKILL)
        process.wait(30)
        assert rows_of(scenario, owner) in (0, wanted)
    # The server may still carry out the last one, which is then noticed.
    until = time.monotonic() + 60
    while (done := shell.run(scenario.admin, "plane", "apply", file, code=None)).returncode != 0:
        assert done.stderr == OUTDATED
        assert time.monotonic() < until
    assert rows_of(scenario, owner) == wanted
    assert plan(shell, scenario.admin, file)["steps"] == []


def test_applies_at_once_create_nothing_twice(shell: Shell, scenario: Scenario, tmp_path: Path) -> None:
    owner = unique("owner")
    file = write(
        tmp_path,
        f"participants:\n  {owner}:\npools:\n  {owner}:\n    s:\n      p: {{type: t, propertyType: integer, values: [1-40]}}\n",
    )
    environment = {**os.environ, **shell.environment(scenario.admin.token)}
    command = [str(PROGRAM), "plane", "apply", file]
    started = [
        subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        for _ in range(4)
    ]
    ended = [(*process.communicate(timeout=120), process.returncode) for process in started]
    assert {code for *_, code in ended} <= {0, 1}
    for out, errors, code in ended:
        if code == 0:
            # The second: this apply planned after another one had ended.
            assert out.endswith(("Applied.\n", "The server is as the files say.\n"))
        else:
            assert errors == OUTDATED
    assert rows_of(scenario, owner) == 1 + 1 + 1 + 40


def test_a_batch_that_names_an_older_revision_is_refused(scenario: Scenario) -> None:
    client, name = scenario.provider, unique("set")
    body = {"name": name, "providerId": scenario.provider_id}
    requests = [{"method": "POST", "path": "/service-pool-sets", "body": body}]
    revision = client.get("/batch")["revision"]
    batch = {"requests": requests, "ifRevision": revision}
    client.call("POST", "/api/v1/batch?dryRun=true", batch, expect=200)
    assert client.get("/batch")["revision"] == revision
    # Of another owner.
    admin_revision = scenario.admin.get("/batch")["revision"]
    client.call("POST", "/api/v1/batch", batch, expect=200)
    assert (client.get("/batch")["revision"], scenario.admin.get("/batch")["revision"]) == (
        revision + 1,
        admin_revision,
    )
    refused = client.call("POST", "/api/v1/batch", batch, expect=409).body
    assert refused["code"] == "batch_outdated"
    assert len(named(scenario, "service-pool-sets", name)) == 1
    client.call("POST", "/api/v1/batch", {"requests": requests}, expect=200)
    assert client.get("/batch")["revision"] == revision + 2


def rows_of(scenario: Scenario, owner: str) -> int:
    found = scenario.admin.get(f"/participants?name={owner}")["items"]
    if not found:
        return 0
    query = f"?providerId={found[0]['id']}&pageSize=1"
    paths = ("/service-pool-sets", "/service-pools", "/service-pool-values")
    return len(found) + sum(int(scenario.admin.get(path + query)["totalItems"]) for path in paths)


def test_a_lost_answer_is_finished_by_a_second_run(shell: Shell, scenario: Scenario, tmp_path: Path) -> None:
    name = unique("new")
    file = write(tmp_path, f"participants:\n  {name}:\n")
    with faulty_proxy_to(
        shell.server, lambda method, path: None if (method, path) == ("POST", "/api/v1/batch") else True
    ) as proxy:
        lost = shell.run(scenario.admin, "plane", "apply", file, code=1, url=proxy.url)
    assert "The server has applied all or nothing" in lost.stderr
    apply(shell, scenario.admin, file)
    assert len(scenario.admin.get(f"/participants?name={name}")["items"]) == 1


def test_agents_are_changed_never_created(shell: Shell, scenario: Scenario, tmp_path: Path) -> None:
    agent = scenario.new_agent()
    provider = scenario.admin.get(f"/participants/{scenario.provider_id}")["name"]
    text = f"poolSets:\n  {provider}:\n    s:\nagents:\n  {provider}:\n    {agent['name']}: {{tags: [eu], poolSet: s, capacity: 3, disabled: true}}\n"
    apply(shell, scenario.provider, write(tmp_path, text))
    found = scenario.admin.get(f"/agents/{agent['id']}")
    assert (found["tags"], found["status"], found["servicePoolSetId"] is None) == (["eu"], "Disabled", False)
    assert found["capacity"] == 3
    assert plan(shell, scenario.provider, write(tmp_path, text))["steps"] == []
    apply(shell, scenario.provider, write(tmp_path, text.replace("capacity: 3", "capacity: null")))
    assert scenario.admin.get(f"/agents/{agent['id']}")["capacity"] is None
    refused = apply(shell, scenario.provider, write(tmp_path, text.replace(agent["name"], "missing")), code=1)
    assert "agents enroll, they are not created by a file" in refused.stderr
