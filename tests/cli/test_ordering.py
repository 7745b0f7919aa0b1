"""Orders from a shell: values get the types of the schema, all faults are reported at once, nothing is ordered twice."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest

from command_line import Shell, faulty_proxy_to, working_agent
from control_plane import Server
from mainstay.cli.remote.job_progress import default_timeout_seconds
from scenario import Scenario, unique

SCHEMA = {
    "cpu": {"type": "integer", "required": True, "validators": [{"type": "max", "value": 16}]},
    "image": {"type": "string"},
    "ratio": {"type": "number"},
    "debug": {"type": "boolean"},
    "size": {"type": "string", "validators": [{"type": "enum", "values": ["small", "large"]}]},
    "password": {"type": "string", "secret": {"type": "persistent"}},
    "tags": {"type": "array", "items": {"type": "string"}},
    "extra": {"type": "json"},
    "db": {"type": "object", "properties": {"host": {"type": "string"}, "port": {"type": "integer"}}},
    "peer": {"type": "reference"},
}


@pytest.fixture
def kind(scenario: Scenario) -> str:
    return str(scenario.service_type(SCHEMA)["name"])


def find_service(scenario: Scenario, name: str) -> Any:
    (found,) = scenario.consumer.get("/services", query={"name": name})["items"]
    return found


def order(shell: Shell, scenario: Scenario, kind: str, *words: str, **more: Any) -> Any:
    """Orders without waiting. Returns the service, or the process if the order fails."""
    name = unique("shop")
    done = shell.run(
        scenario.consumer, "order", kind, name, "--agent", scenario.agent_id, "--no-wait", *words, **more
    )
    return find_service(scenario, name) if done.returncode == 0 else done


def test_values_get_the_types_of_the_schema(shell: Shell, scenario: Scenario, kind: str) -> None:
    words = ["cpu=4", "image=80", "ratio=0.5", "debug=true", 'tags=["a", "b"]', "extra={a: [1, x]}", "db.port=5432"]
    made = order(shell, scenario, kind, *(word for text in words for word in ("-p", text)), "-p", "db.host=1.2")
    assert made["properties"] == {
        "cpu": 4,
        "image": "80",
        "ratio": 0.5,
        "debug": True,
        "tags": ["a", "b"],
        "extra": {"a": [1, "x"]},
        "db": {"host": "1.2", "port": 5432},
    }


def test_without_a_schema_values_are_parsed_by_their_syntax(shell: Shell, scenario: Scenario) -> None:
    free = scenario.service_type()["name"]
    made = order(shell, scenario, free, "-p", "a.b=1", "-p", "c=yes", "-p", "d=@@x", "-p", "e=[1, y]")
    assert made["properties"] == {"a": {"b": 1}, "c": "yes", "d": "@x", "e": [1, "y"]}


def test_single_properties_override_properties_from_files(
    shell: Shell, scenario: Scenario, kind: str, tmp_path: Path
) -> None:
    (tmp_path / "many.yaml").write_text("cpu: 2\nimage: old\ndb: {host: h}\n")
    (tmp_path / "more.json").write_text('{"debug": false}')
    (tmp_path / "image").write_text("new\n")
    files = ["-p", f"@{tmp_path}/many.yaml", "--properties", f"{tmp_path}/more.json"]
    made = order(shell, scenario, kind, *files, "-p", f"image=@{tmp_path}/image", "-p", "db.port=1")
    assert made["properties"] == {"cpu": 2, "image": "new", "db": {"host": "h", "port": 1}, "debug": False}


def test_a_secret_from_standard_input_or_a_file_is_never_shown(
    shell: Shell, scenario: Scenario, kind: str, tmp_path: Path
) -> None:
    (tmp_path / "secret").write_text("canary-1\n")
    made = order(shell, scenario, kind, "-p", "cpu=1", "--secret-file", f"password={tmp_path}/secret")
    again = order(shell, scenario, kind, "-p", "cpu=1", "-p", "password=-", stdin="canary-2\n")
    for service, value in ((made, "canary-1"), (again, "canary-2")):
        reference = service["properties"]["password"]
        assert scenario.agent.get(f"/vault/secrets/{reference.removeprefix('vault://')}")["value"] == value
        shown = shell.run(scenario.consumer, "show", service["id"][:8], "-v")
        assert "password  (secret)" in shown.stdout
        assert "canary" not in shown.stdout + shown.stderr
        assert reference not in shown.stdout


def test_an_empty_standard_input_is_no_secret(shell: Shell, scenario: Scenario, kind: str) -> None:
    words = ("order", kind, unique("shop"), "--agent", scenario.agent_id, "-p", "cpu=1", "-p", "password=-")
    for nothing in ("", "\n"):
        done = shell.run(scenario.consumer, *words, code=2, stdin=nothing)
        assert done.stderr == "mainstay: password: no value was entered; -p password= sets an empty text\n"


def test_a_secret_on_the_command_line_causes_a_warning(shell: Shell, scenario: Scenario, kind: str) -> None:
    name = unique("shop")
    words = ["order", kind, name, "--agent", scenario.agent_id, "-p", "cpu=1", "-p", "password=canary", "--no-wait"]
    done = shell.run(scenario.consumer, *words)
    assert "password is a secret" in done.stderr
    assert "canary" not in done.stdout + done.stderr


def test_all_faults_are_reported_at_once_with_suggestions(shell: Shell, scenario: Scenario, kind: str) -> None:
    words = ["-p", "cpu=four", "-p", "imgae=x", "-p", "size=huge", "-p", "db.prot=1", "-p", "debug=maybe"]
    done = order(shell, scenario, kind, *words, code=2)
    assert "5 properties are invalid:" in done.stderr
    assert "  imgae: unknown property (did you mean 'image'?)\n" in done.stderr
    assert "  cpu: expected integer, got string\n" in done.stderr
    assert "  debug: expected boolean, got string\n" in done.stderr
    assert "  size: value is not in allowed enum values: small | large\n" in done.stderr
    assert "  db.prot: unknown property (did you mean 'db.port'?)\n" in done.stderr
    assert f"`mainstay types {kind}` lists its properties." in done.stderr


def test_an_invalid_name_is_not_called_a_property(shell: Shell, scenario: Scenario, kind: str) -> None:
    done = shell.run(scenario.consumer, "order", kind, "", "-p", "cpu=1", code=2)
    assert done.stderr == "mainstay: the server rejected the request:\n  name: expected string of length >= 1\n"


@pytest.mark.parametrize("text", ["cpu", "=4", "db..port=1"])
def test_a_malformed_property_is_refused(shell: Shell, scenario: Scenario, kind: str, text: str) -> None:
    assert "takes NAME=VALUE" in order(shell, scenario, kind, "-p", text, code=2).stderr


def test_a_reference_accepts_the_name_of_a_service(shell: Shell, scenario: Scenario, kind: str) -> None:
    first = order(shell, scenario, kind, "-p", "cpu=1")
    second = order(shell, scenario, kind, "-p", "cpu=1", "-p", f"peer={first['name']}")
    assert second["properties"]["peer"] == first["id"]


def test_an_order_is_followed_until_it_completes(shell: Shell, scenario: Scenario, kind: str) -> None:
    with working_agent(scenario):
        done = shell.run(scenario.consumer, "order", kind, "shop", "-p", "cpu=1", "--agent", scenario.agent_id)
    assert done.stdout.splitlines()[-1].startswith("shop: Stopped, create completed in ")


def test_a_failed_order_prints_the_reason_and_exits_1(shell: Shell, scenario: Scenario, kind: str) -> None:
    with working_agent(scenario, lambda _job: {"errorMessage": "no \x1b[31mroute"}):
        done = shell.run(
            scenario.consumer, "order", kind, "shop", "-p", "cpu=1", "--agent", scenario.agent_id, code=1
        )
    assert "shop: New, create failed in " in done.stdout
    assert "no \\x1b[31mroute" in done.stdout
    assert "`mainstay jobs show " in done.stdout
    assert "\x1b" not in done.stdout


def test_json_prints_the_outcome_as_one_document(shell: Shell, scenario: Scenario, kind: str) -> None:
    words = ["order", kind, "shop", "-p", "cpu=1", "--agent", scenario.agent_id, "--json"]
    with working_agent(scenario, lambda _job: {"errorMessage": "no route"}):
        done = shell.run(scenario.consumer, *words, code=1)
    outcome = json.loads(done.stdout)
    assert (outcome["name"], outcome["lastJob"]["errorMessage"]) == ("shop", "no route")
    refused = shell.run(scenario.consumer, *words, "--another", "-p", "cpu=99", code=2)
    assert json.loads(refused.stdout)["errors"][0]["path"] == "cpu"
    assert refused.stderr == ""


def test_an_admin_must_name_the_customer(shell: Shell, scenario: Scenario, kind: str) -> None:
    words = ["order", kind, "shop", "-p", "cpu=1", "--agent", scenario.agent_id, "--no-wait"]
    assert "--for PARTICIPANT" in shell.run(scenario.admin, *words, code=2).stderr
    name = scenario.admin.get(f"/participants/{scenario.consumer_id}")["name"]
    forecast = [*words[:-1], "--for", name, "--dry-run"]
    shell.run(scenario.admin, *forecast)
    assert "there is no group staging" in shell.run(scenario.admin, *forecast, "--group", "staging", code=2).stderr
    assert scenario.consumer.get("/service-groups")["items"] == [], "a dry run creates no group"
    shell.run(scenario.admin, *words, "--for", name)
    (group,) = scenario.consumer.get("/service-groups")["items"]
    assert group["name"] == "default"
    assert find_service(scenario, "shop")["groupId"] == group["id"]
    shell.run(scenario.consumer, "order", kind, "second", *words[3:], "--group", "staging")
    assert {each["name"] for each in scenario.consumer.get("/service-groups")["items"]} == {"default", "staging"}


def test_a_customer_who_may_not_list_agents_can_choose_them_by_name_or_tag(
    shell: Shell, scenario: Scenario, kind: str
) -> None:
    tagged = scenario.new_agent(tags=["eu"])
    shell.run(scenario.consumer, "order", kind, "one", "-p", "cpu=1", "--no-wait", "--agent", tagged["name"])
    shell.run(scenario.consumer, "order", kind, "two", "-p", "cpu=1", "--no-wait", "--tag", "eu")
    assert [find_service(scenario, name)["agentId"] for name in ("one", "two")] == [tagged["id"]] * 2
    done = shell.run(scenario.consumer, "order", kind, "x", "-p", "cpu=1", "--tag", "moon", code=2)
    assert "no agent found" in done.stderr
    assert "mainstay types" in done.stderr


def test_a_customer_names_the_provider_where_several_offer_the_type(
    shell: Shell, scenario: Scenario, kind: str
) -> None:
    agents = [scenario.new_agent(), scenario.new_agent(providerId=scenario.participant("rival"))]
    names = [scenario.admin.get(f"/participants/{each['providerId']}")["name"] for each in agents]
    words = ["-p", "cpu=1", "--no-wait"]
    refused = shell.run(scenario.consumer, "order", kind, "one", *words, code=2)
    assert "choose a provider" in refused.stderr
    assert "--provider" in refused.stderr
    assert all(name in refused.stderr for name in names)
    consumer = scenario.admin.get(f"/participants/{scenario.consumer_id}")["name"]
    shell.run(scenario.consumer, "order", kind, "one", *words, "--provider", names[1])
    shell.run(scenario.admin, "order", kind, "two", *words, "--for", consumer, "--provider", agents[0]["providerId"])
    assert [find_service(scenario, name)["agentId"] for name in ("one", "two")] == [agents[1]["id"], agents[0]["id"]]
    (row,) = (line for line in shell.run(scenario.consumer, "types").stdout.splitlines() if line.startswith(kind))
    assert row.endswith(", ".join(sorted(names)))
    # A stranger that calls itself like a provider is not in the catalogue, and two of a name are not guessed.
    scenario.admin.patch(f"/participants/{agents[1]['providerId']}", {"name": names[0]})
    refused = shell.run(scenario.consumer, "order", kind, "three", *words, "--provider", names[0], code=2)
    assert "use an id" in refused.stderr
    unknown = shell.run(scenario.consumer, "order", kind, "three", *words, "--provider", "nowhere", code=2)
    assert f"there is no provider of {kind} 'nowhere'" in unknown.stderr


def test_a_lost_response_does_not_order_twice(shell: Shell, server: Server, scenario: Scenario, kind: str) -> None:
    lost = iter([None])

    def spoil(method: str, path: str) -> bool | None:
        return next(lost, True) if (method, path) == ("POST", "/api/v1/services") else True

    with faulty_proxy_to(server, spoil) as proxy:
        words = ["order", kind, "shop", "-p", "cpu=1", "--agent", scenario.agent_id, "--no-wait"]
        shell.run(scenario.consumer, *words, url=proxy.url)
    assert proxy.requests.count("POST /api/v1/services") == 2
    assert find_service(scenario, "shop")


def test_an_order_without_a_response_can_be_repeated_safely(
    shell: Shell, server: Server, scenario: Scenario, kind: str
) -> None:
    words = ["order", kind, "shop", "-p", "cpu=1", "--agent", scenario.agent_id, "--no-wait"]
    with faulty_proxy_to(server, lambda method, _path: None if method == "POST" else True) as proxy:
        done = shell.run(scenario.consumer, *words, url=proxy.url, code=1)
    assert "The order may have arrived." in done.stderr
    key = done.stderr.split("--idempotency-key ")[1].split()[0]
    again = shell.run(scenario.consumer, *words, "--idempotency-key", key)
    assert find_service(scenario, "shop")["id"][:8] in again.stdout


def test_a_dry_run_prints_the_result_and_stores_nothing(
    shell: Shell, scenario: Scenario, kind: str, tmp_path: Path
) -> None:
    (tmp_path / "secret").write_text("canary")
    words = ["order", kind, "shop", "-p", "cpu=1", "--secret-file", f"password={tmp_path}/secret"]
    done = shell.run(scenario.consumer, *words, "--agent", scenario.agent_id, "--dry-run")
    assert done.stdout == (
        "states  New → Stopped\nproperties\n  cpu       1\n  password  (secret)\nDry run, nothing was changed.\n"
    )
    assert scenario.consumer.get("/services")["items"] == []


PLAN = {
    "properties": {"cpu": 1},
    "path": ["New", "Stopped"],
    "poolValues": [{"path": "ip", "value": "10.0.0.1"}],
    "planDigest": "sha256:abc",
    "expiresAt": "2030-01-01T00:00:00Z",
    "host": {
        "events": [
            {
                "type": "file",
                "name": "/etc/shop",
                "outcome": "changed",
                "noop_message": "Would have created the file",
                "reason": "path is absent",
                "diff": "@@ -0,0 +1 @@\n+hello",
            },
            {"type": "service", "name": "shop", "outcome": "stable"},
        ],
        "summary": {"total": 2, "changed": 1, "stable": 1, "duration_seconds": 0.5},
    },
}


def test_a_plan_shows_the_changes_and_the_digest(shell: Shell, server: Server, scenario: Scenario, kind: str) -> None:
    def spoil(_method: str, path: str) -> bytes | bool:
        return json.dumps(PLAN).encode() if "plan=true" in path else True

    words = ["order", kind, "shop", "-p", "cpu=1", "--plan"]
    with faulty_proxy_to(server, spoil) as proxy:
        done = shell.run(scenario.consumer, *words, url=proxy.url)
        as_json = shell.run(scenario.consumer, *words, "--json", url=proxy.url)
    # A server without plans must treat the request as a dry run, not as an order.
    request = next(each for each in proxy.requests if "plan=true" in each)
    assert parse_qs(urlsplit(request).query) == {"plan": ["true"], "dryRun": ["true"]}
    assert "changed   file#/etc/shop  Would have created the file: path is absent\n" in done.stdout
    assert "    +hello\n" in done.stdout
    assert "service#shop" not in done.stdout
    assert "Dry run, nothing was touched: 1 changed, 1 stable in 0.50 s" in done.stdout
    assert "--plan-digest sha256:abc\n" in done.stdout
    assert json.loads(as_json.stdout) == PLAN


def test_a_plan_that_would_fail_exits_1(shell: Shell, server: Server, scenario: Scenario, kind: str) -> None:
    failing = {**PLAN, "host": {"events": [{"type": "exec", "name": "x", "outcome": "failed", "errors": ["no"]}]}}

    def spoil(_method: str, path: str) -> bytes | bool:
        return json.dumps(failing).encode() if "plan=true" in path else True

    with faulty_proxy_to(server, spoil) as proxy:
        done = shell.run(scenario.consumer, "order", kind, "shop", "-p", "cpu=1", "--plan", code=1, url=proxy.url)
    assert "failed    exec#x" in done.stdout
    assert done.stdout.endswith("\nThe run would fail. Correct the cause, then plan again.\n")
    assert "--plan-digest" not in done.stdout


def test_a_similar_name_is_suggested(shell: Shell, scenario: Scenario, kind: str) -> None:
    done = shell.run(scenario.consumer, "order", kind[:-1], "shop", code=2)
    assert f"there is no service type '{kind[:-1]}' (did you mean" in done.stderr


def test_a_name_that_a_living_service_has_is_refused(shell: Shell, scenario: Scenario, kind: str) -> None:
    name = unique("shop")
    words = ("order", kind, name, "--agent", scenario.agent_id, "-p", "cpu=4")
    with working_agent(scenario):
        shell.run(scenario.consumer, *words)
        for more in ((), ("--dry-run",), ("--group", "other")):
            refused = shell.run(scenario.consumer, *words, *more, code=2)
            assert f"service {name} exists already: {kind}, Stopped" in refused.stderr
            assert "--another" in refused.stderr
        shell.run(scenario.admin, *words, "--for", scenario.consumer_id, code=2)
        # Of another customer, the name is free.
        shell.run(scenario.admin, *words, "--for", scenario.participant())
        shell.run(scenario.consumer, *words, "--another")
        both = scenario.consumer.get("/services", query={"name": name})["items"]
        assert len(both) == 2
        for service in both:
            shell.run(scenario.consumer, "do", service["id"], "delete")
        # The name of a deleted service is free.
        shell.run(scenario.consumer, *words)


def test_waiting_ends_after_the_timeout(shell: Shell, scenario: Scenario, kind: str) -> None:
    name = unique("shop")
    words = ("order", kind, name, "--agent", scenario.agent_id, "-p", "cpu=4")
    done = shell.run(scenario.consumer, *words, "--timeout", "300ms", code=4)
    assert f"{name}: New, create is queued" in done.stdout
    assert "Timed out. The job continues; follow it with `mainstay watch " in done.stdout
    shown = done.stdout.splitlines()
    assert len(shown) == len(set(shown)), "the last line is printed once"
    done = shell.run(scenario.consumer, "watch", name, "--timeout", "300ms", code=4)
    assert "Timed out." in done.stdout
    shell.run(scenario.consumer, "watch", name, "--follow", "--timeout", "300ms", code=4)
    with working_agent(scenario):
        shell.run(scenario.consumer, "watch", name, "--timeout", "1m")
    document = shell.run(scenario.consumer, "do", name, "delete", "--timeout", "300ms", "--json", code=4)
    assert json.loads(document.stdout)["lastJob"]["status"] == "Pending"
    assert "Timed out. The job continues; follow it with `mainstay watch " in document.stderr
    assert "--timeout: " in shell.run(scenario.consumer, "watch", name, "--timeout", "soon", code=2).stderr


def test_the_environment_limits_waiting_unless_an_option_does(
    shell: Shell, scenario: Scenario, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = unique("shop")
    words = ("order", kind, name, "--agent", scenario.agent_id, "-p", "cpu=4")
    # Refused before anything is ordered.
    monkeypatch.setenv("MAINSTAY_TIMEOUT", "soon")
    refused = shell.run(scenario.consumer, *words, code=2)
    assert 'MAINSTAY_TIMEOUT: "soon" is not a duration' in refused.stderr
    monkeypatch.setenv("MAINSTAY_TIMEOUT", "300ms")
    shell.run(scenario.consumer, *words, code=4)
    shell.run(scenario.consumer, "watch", name, code=4)
    monkeypatch.setenv("MAINSTAY_TIMEOUT", "1ms")
    with working_agent(scenario):
        shell.run(scenario.consumer, "watch", name, "--timeout", "0")
    monkeypatch.delenv("MAINSTAY_TIMEOUT")
    assert default_timeout_seconds() == 600


def test_a_value_from_a_file_loses_one_final_newline(
    shell: Shell, scenario: Scenario, kind: str, tmp_path: Path
) -> None:
    for content, value in ((b"web:1\n", "web:1"), (b"web:1", "web:1"), (b"web:1\r\n", "web:1"), (b"a\n\n", "a\n")):
        (tmp_path / "image").write_bytes(content)
        made = order(shell, scenario, kind, "-p", "cpu=1", "-p", f"image=@{tmp_path / 'image'}")
        assert made["properties"]["image"] == value


def test_bytes_that_are_not_utf8_are_refused_by_name(shell: Shell, scenario: Scenario, kind: str) -> None:
    refused = order(
        shell, scenario, kind, "-p", "cpu=1", "-p", b"password=canary\xff".decode(errors="surrogateescape"), code=2
    )
    assert refused.stderr.endswith("mainstay: the value of password is not UTF-8 text\n")
    assert "canary" not in refused.stderr
    refused = shell.run(scenario.consumer, "show", b"shop\xff".decode(errors="surrogateescape"), code=2)
    assert refused.stderr == "mainstay: an argument is not UTF-8 text\n"
