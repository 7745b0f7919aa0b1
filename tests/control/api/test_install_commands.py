"""Install commands: what a command contains, who may fetch a configuration with it, and for how long."""

from __future__ import annotations

import json
import shlex
import sqlite3
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from control_plane import Client, Server, running
from scenario import Scenario, unique

SECRET = {"type": "string", "secret": {"type": "persistent"}}
SCHEMA: Any = {
    "region": {"type": "string"},
    "port": {"type": "integer"},
    "password": SECRET,
    "other": SECRET,
    "free": {"type": "json"},
    "db": {"type": "object", "properties": {"host": {"type": "string"}, "pin": SECRET}},
}
CMD = "curl -H 'Authorization: Bearer {{.authToken}}' {{ .configUrl }} | install --region {{.region}}"
CONFIG = (
    "region={{.region}}\nport={{ .port }}\npassword={{\t.password }}\ndb={{.db}}\nhost={{.db.host}}\nfree={{.free}}\n"
)


def kind(scenario: Scenario, cmd: str = CMD, config: str = CONFIG, **more: Any) -> Any:
    return scenario.agent_type(configurationSchema=SCHEMA, cmdTemplate=cmd, configTemplate=config, **more)


def agent_of(scenario: Scenario, agent_type: Any, **configuration: Any) -> str:
    body = {"name": unique("agent"), "providerId": scenario.provider_id, "agentTypeId": agent_type["id"]}
    found: str = scenario.provider.post("/agents", {**body, "configuration": {"region": "eu", **configuration}})["id"]
    return found


def path_of(command: Any) -> str:
    path: str = command["url"].partition("/api/v1")[2]
    return path


def auth_of(scenario: Scenario, command: Any) -> Client:
    return scenario.admin.as_token(command["installCommand"].split("Bearer ")[1].split("'")[0])


def test_a_command_fetches_the_configuration_with_opened_secrets(scenario: Scenario, server: Server) -> None:
    db = {"host": "h", "pin": "canary-pin"}
    given = {"port": 80, "password": "canary {{.region}} \"'$(x)", "other": "canary-other", "db": db}
    agent_id = agent_of(scenario, kind(scenario), **given)
    command = scenario.provider.post(f"/agents/{agent_id}/install-command")
    assert set(command) == {"installCommand", "url", "expiresAt"}
    assert command["url"].startswith(f"{server.url}/api/v1/agents/install/")
    assert command["installCommand"].endswith(f"' {command['url']} | install --region eu")
    reply = auth_of(scenario, command).call("GET", f"/api/v1{path_of(command)}", expect=200)
    assert reply.headers["cache-control"] == "no-store"
    assert reply.headers["content-type"] == "text/plain; charset=utf-8"
    # A value that looks like a placeholder stays text.
    lines = reply.body.decode().splitlines()
    assert lines[:3] == ["region=eu", "port=80", "password=canary {{.region}} \"'$(x)"]
    assert json.loads(lines[3].removeprefix("db=")) == db
    assert lines[4:] == ["host=h", "free="]
    events = scenario.admin.get(f"/events?entityId={agent_id}&type=vault.read&pageSize=100")["items"]
    assert sorted(event["properties"]["schemaPath"] for event in events) == ["db.pin", "password"]
    auth_of(scenario, command).call("GET", f"/api/v1{path_of(command)}", expect=200)
    assert scenario.admin.get(f"/events?entityId={agent_id}&type=vault.read")["totalItems"] == 4
    shown = str(scenario.admin.get(f"/events?agentId={agent_id}&pageSize=100"))
    assert "canary" not in shown
    assert command["url"].split("/")[-2] not in shown


def test_no_log_or_metric_holds_the_token(scenario: Scenario, server: Server) -> None:
    agent_id = agent_of(scenario, kind(scenario), password="canary-log")
    command = scenario.provider.post(f"/agents/{agent_id}/install-command")
    client = auth_of(scenario, command)
    client.get(path_of(command))
    Client(server.url).get(path_of(command), expect=401)
    scenario.stranger.get(path_of(command), expect=404)
    client.call("POST", f"/api/v1{path_of(command)}")
    client.call("GET", f"/api/v1{path_of(command)}/more")
    known = server.log.read_text() + str(Client(server.url).call("GET", "/metrics").body)
    assert "/api/v1/agents/install/{token}/config" in known
    for secret in (command["url"].split("/")[-2], client.token, "canary-log"):
        assert str(secret) not in known


def test_only_the_agent_its_provider_and_admins_fetch_it_with_the_token(scenario: Scenario) -> None:
    agent_type = kind(scenario)
    agent_id, sibling_id = (agent_of(scenario, agent_type) for _ in range(2))
    command = scenario.provider.post(f"/agents/{agent_id}/install-command")
    sibling = scenario.token("agent", sibling_id)
    for client in (scenario.admin, scenario.provider, scenario.token("agent", agent_id)):
        client.get(path_of(command))
    for client in (scenario.consumer, scenario.stranger, sibling):
        client.get(path_of(command), expect=404)
        client.get("/agents/install/unknown/config", expect=404)
    for role, scope in (("admin", None), ("participant", scenario.provider_id)):
        body = {"name": "r", "role": role, "scopeId": scope, "readOnly": True}
        reader = scenario.admin.as_token(scenario.admin.post("/tokens", body)["value"])
        assert reader.get(path_of(command), expect=403)["code"] == "read_only"
        reader.post(f"/agents/{sibling_id}/install-command", expect=403)
        assert set(reader.get(f"/agents/{agent_id}/install-command")) == {"id", "expiresAt", "createdAt"}
    for client, status in ((scenario.stranger, 404), (sibling, 403)):
        client.post(f"/agents/{agent_id}/install-command", expect=status)
        client.get(f"/agents/{agent_id}/install-command", expect=status)
        client.post(f"/agents/{agent_id}/install-command/regenerate", expect=status)
        client.delete(f"/agents/{agent_id}/install-command", expect=status)


def test_a_command_is_created_once_regenerated_and_revoked(scenario: Scenario) -> None:
    agent_id = agent_of(scenario, kind(scenario))
    path = f"/agents/{agent_id}/install-command"
    scenario.provider.get(path, expect=404)
    scenario.provider.delete(path, expect=404)
    scenario.provider.post(f"{path}/regenerate", expect=404)
    first = scenario.provider.post(path)
    assert scenario.provider.post(path, expect=409)["code"] == "install_command_exists"
    state = scenario.provider.get(path)
    assert state["expiresAt"] == first["expiresAt"]
    second = scenario.provider.post(f"{path}/regenerate", expect=200)
    assert set(second) == set(first)
    assert second["url"] != first["url"]
    scenario.provider.get(path_of(first), expect=404)
    auth_of(scenario, first).get(path_of(second), expect=401)
    auth_of(scenario, second).get(path_of(second))
    assert scenario.provider.get(path)["id"] == state["id"]
    scenario.provider.delete(path)
    scenario.provider.get(path_of(second), expect=404)
    auth_of(scenario, second).get("/agents/me", expect=401)
    scenario.provider.get(path, expect=404)
    scenario.provider.post(path)


def test_the_command_ends_with_the_token_of_its_creator(scenario: Scenario) -> None:
    agent_id = agent_of(scenario, kind(scenario))
    soon = datetime.now(UTC) + timedelta(seconds=60)
    body = {"name": "t", "role": "participant", "scopeId": scenario.provider_id, "expireAt": soon.isoformat()}
    short = scenario.admin.as_token(scenario.admin.post("/tokens", body)["value"])
    command = short.post(f"/agents/{agent_id}/install-command")
    assert datetime.fromisoformat(command["expiresAt"]) <= soon
    listed = scenario.provider.get("/tokens?role=agent&name=install")["items"]
    assert [token["expireAt"] for token in listed if token["agentId"] == agent_id] == [command["expiresAt"]]


def test_disabled_and_deleted_agents_have_no_install_command(scenario: Scenario) -> None:
    agent_type = kind(scenario)
    agent_id, other_id = (agent_of(scenario, agent_type) for _ in range(2))
    command = scenario.provider.post(f"/agents/{agent_id}/install-command")
    scenario.admin.patch(f"/agents/{agent_id}", {"status": "Disabled"})
    for client in (scenario.admin, scenario.provider, auth_of(scenario, command)):
        assert client.get(path_of(command), expect=403)["code"] == "disabled"
    assert scenario.provider.post(f"/agents/{agent_id}/install-command/regenerate", expect=403)["code"] == "disabled"
    scenario.admin.patch(f"/agents/{agent_id}", {"status": "Disconnected"})
    scenario.admin.patch(f"/participants/{scenario.provider_id}", {"status": "Disabled"})
    scenario.admin.get(path_of(command), expect=403)
    scenario.admin.post(f"/agents/{other_id}/install-command", expect=403)
    scenario.admin.patch(f"/participants/{scenario.provider_id}", {"status": "Enabled"})
    scenario.provider.get(path_of(command))
    scenario.provider.delete(f"/agents/{agent_id}")
    scenario.provider.get(path_of(command), expect=404)
    auth_of(scenario, command).get(path_of(command), expect=401)


@pytest.mark.parametrize(
    "region",
    ["a b", "a;b", "$(id)", "`id`", "a\nb", "a'b", 'a"b', "a|b", "a&b", "a\\b", "ä", "a*", "~", "{a,b}", "a\n", "-x"],
)
def test_a_value_that_a_shell_reads_as_more_than_text_is_refused(scenario: Scenario, region: str) -> None:
    agent_id = agent_of(scenario, kind(scenario), region=region)
    refused = scenario.provider.post(f"/agents/{agent_id}/install-command", expect=400)
    assert [fault["path"] for fault in refused["errors"]] == ["region"]
    scenario.provider.get(f"/agents/{agent_id}/install-command", expect=404)
    assert scenario.provider.get(f"/tokens?name=install&agentId={agent_id}")["items"] == []


def test_plain_values_stay_one_argument(scenario: Scenario) -> None:
    region = "aZ09._:/@%+=,-"
    agent_id = agent_of(
        scenario, kind(scenario, "i {{.configUrl}} {{.authToken}} {{.region}} {{.port}}."), region=region
    )
    command = scenario.provider.post(f"/agents/{agent_id}/install-command")
    assert shlex.split(command["installCommand"])[3:] == [region, "."]


def test_a_value_behind_other_text_may_begin_with_a_dash(scenario: Scenario) -> None:
    agent_type = kind(scenario, "i {{.configUrl}} {{.authToken}} --offset={{.port}}")
    command = scenario.provider.post(f"/agents/{agent_of(scenario, agent_type, port=-1)}/install-command")
    assert shlex.split(command["installCommand"])[3:] == ["--offset=-1"]


@pytest.mark.parametrize(
    ("cmd", "config", "path", "message"),
    [
        (CMD, "{{.nothing}}", "configTemplate", "unknown property nothing"),
        (CMD, "{{.region.x}}", "configTemplate", "unknown property region.x"),
        (CMD, "{{.db.x}}", "configTemplate", "unknown property db.x"),
        (CMD, "{{.password.x}}", "configTemplate", "unknown property password.x"),
        (CMD, "{{.authToken}}", "configTemplate", "authToken is not available here"),
        (CMD, "{{if .region}}", "configTemplate", "only {{.name}} and {{.a.b}} are possible"),
        (CMD, "{{.region | js}}", "configTemplate", "only {{.name}}"),
        (CMD, "{{\n.region}}", "configTemplate", "only {{.name}}"),
        (CMD, "{{.}}", "configTemplate", "only {{.name}}"),
        (CMD, "{{.region", "configTemplate", "only {{.name}}"),
        (
            CMD,
            "{{.region}} {{if .port}}{{.port}}{{end}}",
            "configTemplate",
            "only {{.name}} and {{.a.b}} are possible, found '{{if .port}}{{.port}}{{end}}'",
        ),
        (CMD + " {{.password}}", "x", "cmdTemplate", "password is or contains a secret"),
        (CMD + " {{.db}}", "x", "cmdTemplate", "db is or contains a secret"),
        (CMD + " {{.db.pin}}", "x", "cmdTemplate", "db.pin is or contains a secret"),
        (CMD + " {{.configUrl.x}}", "x", "cmdTemplate", "configUrl.x is not available here"),
        ("{{.configUrl}}", "x", "cmdTemplate", "must contain {{.authToken}}"),
        ("{{.authToken}}", "x", "cmdTemplate", "must contain {{.configUrl}}"),
        (CMD, None, "configTemplate", "is missing"),
        (None, "x", "cmdTemplate", "is missing"),
        (CMD, "", "configTemplate", "is missing"),
    ],
)
def test_a_bad_template_is_refused_when_it_is_written(
    scenario: Scenario, cmd: Any, config: Any, path: str, message: str
) -> None:
    body = {"name": unique("t"), "configurationSchema": SCHEMA, "cmdTemplate": cmd, "configTemplate": config}
    refused = scenario.admin.post("/agent-types", body, expect=400)
    assert [fault["path"] for fault in refused["errors"]] == [path]
    assert refused["errors"][0]["message"].startswith(message)


def test_templates_are_checked_again_with_a_new_schema(scenario: Scenario) -> None:
    made = kind(scenario)
    path = f"/agent-types/{made['id']}"
    scenario.admin.patch(path, {"configurationSchema": {**SCHEMA, "region": SECRET}}, expect=400)
    scenario.admin.patch(path, {"configurationSchema": {"region": {"type": "string"}}}, expect=400)
    reserved = scenario.admin.patch(path, {"configurationSchema": {**SCHEMA, "authToken": SECRET}}, expect=400)
    assert reserved["errors"][0]["path"] == "configurationSchema.authToken"
    scenario.admin.patch(path, {"cmdTemplate": ""}, expect=400)
    changed = scenario.admin.patch(path, {"cmdTemplate": "", "configTemplate": "", "configContentType": ""})
    assert (changed["cmdTemplate"], changed["configTemplate"], changed["configContentType"]) == (None, None, None)
    agent_id = agent_of(scenario, made)
    refused = scenario.provider.post(f"/agents/{agent_id}/install-command", expect=400)
    assert refused["code"] == "no_install_templates"


@pytest.mark.parametrize(
    "text",
    [
        "x",
        "text/html\r\nX-Evil: 1",
        "text/plain\n",
        "text/",
        "a b/c",
        'a/b; x="y"',
        "a/b;c",
        "text/plä",
        "a/b\0",
        "a/b; charset=utf-16",
    ],
)
def test_a_content_type_cannot_leave_its_header(scenario: Scenario, text: str) -> None:
    body = {"name": unique("t"), "configContentType": text}
    refused = scenario.admin.post("/agent-types", body, expect=400)
    assert refused["errors"][0]["path"] == "configContentType"


@pytest.mark.parametrize("text", ["application/yaml; charset=utf-8", "text/x-ini; charset=utf-8", "application/json"])
def test_a_configuration_has_the_content_type_of_its_agent_type(scenario: Scenario, text: str) -> None:
    agent_id = agent_of(scenario, kind(scenario, config="{}", configContentType=text))
    command = scenario.provider.post(f"/agents/{agent_id}/install-command")
    reply = scenario.provider.call("GET", f"/api/v1{path_of(command)}", expect=200)
    assert reply.headers["content-type"] == text


@pytest.mark.parametrize("host", ["a b", "evil/x", "u@evil", "a;id", "$(id)", "[::1]:80", "a:b", "-x", "a#b", "a?b"])
def test_a_strange_host_is_refused(scenario: Scenario, host: str) -> None:
    agent_id = agent_of(scenario, kind(scenario))
    reply = scenario.provider.call("POST", f"/api/v1/agents/{agent_id}/install-command", headers={"Host": host})
    assert reply.status == 400, reply.body
    assert scenario.provider.get(f"/tokens?name=install&agentId={agent_id}")["items"] == []


def test_a_rendered_configuration_is_bounded(scenario: Scenario) -> None:
    agent_id = agent_of(scenario, kind(scenario, config="{{.free}}" * 2000), free=["x" * 1000])
    command = scenario.provider.post(f"/agents/{agent_id}/install-command")
    assert scenario.provider.get(path_of(command), expect=400)["code"] == "too_large"


def test_free_form_configurations_serve_any_property(scenario: Scenario) -> None:
    templates = {"cmdTemplate": "{{.configUrl}} {{.authToken}}", "configTemplate": "{{.a.b}}|{{.c}}|{{.d}}"}
    body = {"name": "a", "providerId": scenario.provider_id, "agentTypeId": scenario.agent_type(**templates)["id"]}
    given = {"a": {"b": True}, "c": [1, "ü"], "authToken": "forged", "configUrl": "http://evil"}
    agent_id = scenario.provider.post("/agents", {**body, "configuration": given})["id"]
    command = scenario.provider.post(f"/agents/{agent_id}/install-command")
    assert "forged" not in command["installCommand"]
    assert "evil" not in command["installCommand"]
    assert scenario.provider.get(path_of(command)).decode() == 'true|[1,"ü"]|'


def test_an_expired_command_is_shown_and_fetches_nothing(embedded: Server) -> None:
    scenario = Scenario(embedded.admin)
    agent_id = agent_of(scenario, kind(scenario))
    path = f"/agents/{agent_id}/install-command"
    command = scenario.provider.post(path)
    with closing(sqlite3.connect(embedded.data_dir / "mainstay.db", timeout=30)) as connection, connection:
        connection.execute("UPDATE install_commands SET expires_at = expires_at - 301000000")
        connection.execute("UPDATE tokens SET expire_at = expire_at - 301000000 WHERE name LIKE 'install %'")
        stored = str(connection.execute("SELECT * FROM install_commands").fetchall())
        stored += str(connection.execute("SELECT * FROM tokens").fetchall())
    assert command["url"].split("/")[-2] not in stored
    assert str(auth_of(scenario, command).token) not in stored
    scenario.provider.get(path_of(command), expect=404)
    assert auth_of(scenario, command).get(path_of(command), expect=401)["code"] == "token_expired"
    assert scenario.provider.get(path)["expiresAt"] < command["expiresAt"]
    scenario.provider.post(path, expect=409)
    scenario.provider.get(path_of(scenario.provider.post(f"{path}/regenerate", expect=200)))


def test_the_public_url_precedes_the_host(tmp_path: Path) -> None:
    with running(tmp_path / "data", environment={"MAINSTAY_PUBLIC_URL": "https://plane.example.org/x/"}) as server:
        scenario = Scenario(server.admin)
        agent_id = agent_of(scenario, kind(scenario))
        path = f"/api/v1/agents/{agent_id}/install-command"
        command = scenario.provider.call("POST", path, headers={"Host": "evil;"}, expect=201).body
        assert command["url"].startswith("https://plane.example.org/x/api/v1/agents/install/")


def test_of_many_requests_at_once_one_creates_the_command(scenario: Scenario) -> None:
    agent_id = agent_of(scenario, kind(scenario))
    path = f"/api/v1/agents/{agent_id}/install-command"
    with ThreadPoolExecutor(6) as threads:
        replies = list(threads.map(lambda _: scenario.provider.call("POST", path), range(6)))
    assert sorted(reply.status for reply in replies) == [201, 409, 409, 409, 409, 409]
    tokens = scenario.provider.get(f"/tokens?name=install&agentId={agent_id}")
    assert tokens["totalItems"] == 1
