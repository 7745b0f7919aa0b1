"""Secrets of all kinds in jobs that succeed, fail, drift and do not load: they appear only in the files of the manifest."""

from __future__ import annotations

import json
import os
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from bridge import Bridge, bridge_on, wait_until
from control_plane import running
from fault_lab import ROOT, FaultLab, file, run_script
from mainstay.agent.client import Client as AgentClient

MARK = "canary8Xw2"
NUMBER = 7390284651
# Every form of a secret contains one of these.
MARKS = (MARK.encode(), str(NUMBER).encode())
PERSISTENT = {"secret": {"type": "persistent"}}
SCHEMA = {
    "text": {"type": "string", **PERSISTENT},
    "lines": {"type": "string", **PERSISTENT},
    "number": {"type": "integer", **PERSISTENT},
    "document": {"type": "json", **PERSISTENT},
    "users": {
        "type": "array",
        "items": {"type": "object", "properties": {"password": {"type": "string", **PERSISTENT}}},
    },
    "once": {"type": "string", "secret": {"type": "ephemeral"}},
    "plain": {"type": "string"},
    "made": {"type": "string", **PERSISTENT, "authorizers": [{"type": "actor", "config": {"actors": ["agent"]}}]},
    "shown": {"type": "string", "authorizers": [{"type": "actor", "config": {"actors": ["agent"]}}]},
}
ORDER = {
    "text": f"{MARK} text",
    "lines": f"-----BEGIN {MARK}-----\n{MARK}/line/two\n{MARK}+line+three\n",
    "number": NUMBER,
    "document": {"user": f"{MARK}-json", "inner": [f"{MARK}-inner", NUMBER]},
    "users": [{"password": f"{MARK}-first"}, {"password": f"{MARK}-second"}],
    "once": f"{MARK}-once",
    "plain": "plain",
}


def lookup(name: str, more: str = "") -> str:
    return f"{{{{ lookup('properties.{name}'){more} }}}}"


FILES = [
    file(f"{ROOT}/text", lookup("text")),
    file(f"{ROOT}/lines", lookup("lines")),
    file(f"{ROOT}/number", f"pin={lookup('number')}"),
    file(f"{ROOT}/document", lookup("document", " | tojson")),
    file(f"{ROOT}/users", "{{ lookup('properties.users') | map(attribute='password') | join(' ') }}"),
    file(f"{ROOT}/once", "{{ lookup('properties.once', '') }}"),
    file(f"{ROOT}/template", "{{ template('../files/template') }}"),
]
INTENDED_FILES = ("text", "lines", "number", "document", "users", "once", "template", "environment")
EVERYTHING = {
    "TEXT": lookup("text"),
    "LINES": lookup("lines"),
    "NUMBER": lookup("number"),
    "DOCUMENT": lookup("document", " | tojson"),
    "USERS": "{{ lookup('properties.users') | map(attribute='password') | join(' ') }}",
    "ONCE": "{{ lookup('properties.once', '') }}",
}
ENVIRONMENT = [f"{name}={value}" for name, value in EVERYTHING.items()]
PRINT_ALL = "printenv TEXT LINES NUMBER DOCUMENT USERS ONCE"
RUN = run_script("run", f"umask 077; {PRINT_ALL}; printenv TEXT >{ROOT}/environment; true", environment=ENVIRONMENT)


@pytest.fixture
def lab(tmp_path: Path, root: Path) -> Iterator[FaultLab]:
    """With its own server, since the test searches the files of the server too."""
    debug = {"MAINSTAY_LOG_LEVEL": "debug"}
    with running(tmp_path / "own" / "data", environment=debug) as server, bridge_on(server, tmp_path / "b") as bridge:
        yield FaultLab(bridge, root)


def secrets_in(content: bytes) -> bool:
    return any(mark in content for mark in MARKS)


def check_files(*folders: Path) -> None:
    found = [
        path for folder in folders for path in folder.rglob("*") if path.is_file() and secrets_in(path.read_bytes())
    ]
    assert not found


def check_agent(bridge: Bridge) -> None:
    process = Path(f"/proc/{bridge.agents[-1].process.pid}")
    for name in ("cmdline", "environ"):
        assert not secrets_in((process / name).read_bytes())


def check_answers(lab: FaultLab) -> None:
    """Searches all services, jobs, reports and events in the API."""
    admin = lab.bridge.admin
    answers = [list(AgentClient(admin.url, admin.token).pages(path)) for path in ("/services", "/jobs", "/events")]
    answers += [admin.call("GET", f"/api/v1/jobs/{job['id']}/report").body for job in answers[1]]
    text = json.dumps(answers)
    found = [text[max(0, text.index(mark) - 500) :][:600] for mark in (MARK, str(NUMBER)) if mark in text]
    assert not found


def check_everything(lab: FaultLab) -> None:
    bridge = lab.bridge
    check_answers(lab)
    check_files(bridge.folder, bridge.server.data_dir.parent)
    with sqlite3.connect(bridge.server.data_dir / "mainstay.db") as database:
        dump = "\n".join(database.iterdump())
    database.close()
    assert not secrets_in(dump.encode("utf-8", "replace"))
    found = {path.name for path in lab.root.rglob("*") if path.is_file() and secrets_in(path.read_bytes())}
    assert found <= set(INTENDED_FILES)


def with_environment(name: str, script: str, **more: Any) -> list[dict[str, Any]]:
    return [run_script(name, script, environment=ENVIRONMENT, **more)]


@pytest.mark.parametrize("log_format", ["lines", "json"])
def test_secrets_appear_only_in_their_intended_files(lab: FaultLab, log_format: str) -> None:
    bridge, outputs = lab.bridge, {"properties": {"made": f"made of {lookup('text')}"}}
    (lab.blueprint / "files").mkdir(parents=True)
    (lab.blueprint / "files" / "template").write_text(
        "{% for user in lookup('properties.users') %}{{ user.password }}\n{% endfor %}{{ lookup('properties.text') }}\n"
    )
    health = [{"name": "health", "command": f"sh -c 'echo {lookup('text')} {lookup('number')}; exit 2'"}]
    manifests = {
        "create": [*FILES, RUN],
        "update": [*FILES, RUN],
        "start": [file(f"{ROOT}/text", f"{lookup('text')} now")],
        "failing": with_environment("fail", f"{PRINT_ALL}; {PRINT_ALL} >&2; exit 3"),
        "argument": [run_script("argument", f": {lookup('text')} {lookup('number')}; exit 4")],
        "guard": with_environment("guarded", "true", unless=f"sh -c '{PRINT_ALL}; exit 9'"),
        "missing": [run_script("missing", "true", cwd=f"/nowhere/{lookup('text')}")],
        "health": [file(f"{ROOT}/text", lookup("text"), health_checks=health)],
        "unloadable": [
            {
                "file": [
                    {f"{ROOT}/text": {"ensure": lookup("text"), "mode": lookup("number"), "owner": lookup("lines")}}
                ]
            }
        ],
        "nosuch": [file(f"{ROOT}/x", "{{ lookup('properties.document.' ~ lookup('properties.text')) }}")],
        "shown": [RUN],
        "instance": [RUN],
        "wide": [file(f"{ROOT}/text", lookup("lines"), owner=lookup("text"))],
    }
    actions = [name for name in manifests if name not in ("create", "update", "start")]
    states = ["New", "Stopped", "Started", "Deleted"]
    lifecycle = {
        "states": [{"name": name} for name in states],
        "actions": [
            {"name": "create", "transitions": [{"from": "New", "to": "Stopped"}]},
            {"name": "start", "transitions": [{"from": "Stopped", "to": "Started"}]},
            *(
                {
                    "name": name,
                    "requestSchemaType": "properties",
                    "transitions": [{"from": "Stopped", "to": "Stopped"}],
                }
                for name in ("update", *actions)
            ),
            {"name": "delete", "transitions": [{"from": "Started", "to": "Deleted"}]},
        ],
        "initialState": "New",
        "terminalStates": ["Deleted"],
    }
    lab.make(
        {**manifests, "delete": [RUN]},
        property_schema=SCHEMA,
        lifecycle_schema=lifecycle,
        outputs=outputs,
        keeps={"Started": "manifests/create.yaml"},
    )
    for name, wrong in (
        ("shown", {"properties": {"shown": lookup("number")}}),
        ("instance", {"instance_id": lookup("text"), "instance_data": {"list": [lookup("document")]}}),
    ):
        text = json.dumps({"resources": manifests[name], "outputs": wrong})
        (lab.blueprint / "manifests" / f"{name}.yaml").write_text(text)
    agent = lab.start("--log-format", log_format, "--drift-interval", "500ms", command=[])
    service = bridge.wait_for(lab.order(ORDER), "Stopped")

    # The intended files contain the secrets and only their owner can read them.
    assert (lab.root / "text").read_text() == ORDER["text"]
    assert (lab.root / "lines").read_text() == ORDER["lines"]
    assert (lab.root / "number").read_text() == f"pin={NUMBER}"
    # In a manifest every secret is a text, numbers too.
    assert json.loads((lab.root / "document").read_text()) == {
        "user": f"{MARK}-json",
        "inner": [f"{MARK}-inner", str(NUMBER)],
    }
    assert (lab.root / "users").read_text() == f"{MARK}-first {MARK}-second"
    assert (lab.root / "once").read_text() == ORDER["once"]
    assert (lab.root / "template").read_text() == f"{MARK}-first\n{MARK}-second\n{MARK} text\n"
    for name in INTENDED_FILES:
        found = os.stat(lab.root / name)
        assert (found.st_mode & 0o777, found.st_uid) == (0o600, os.geteuid()), name
    assert service["properties"]["made"].startswith("vault://")
    check_everything(lab)

    for action in actions:
        bridge.scenario.do(service, action, {"properties": {"once": f"{MARK}-{action}", "plain": action}})
        bridge.wait_for(service, "Stopped")
        check_agent(bridge)
        wanted = "Completed" if action == "guard" else "Failed"
        assert lab.job(service, action)["status"] == wanted, f"{action}\n{bridge.logs()}"
    check_everything(lab)
    jobs = {action: lab.job(service, action)["id"] for action in actions}
    messages = {action: bridge.scenario.provider.get(f"/jobs/{job}")["errorMessage"] for action, job in jobs.items()}
    assert "[redacted]" in messages["failing"]
    assert "carries a secret" in messages["shown"]
    assert "carries a secret" in messages["instance"]
    assert messages["unloadable"].startswith("the manifest does not load")

    # The difference of a secret file in a drift report is redacted too.
    bridge.scenario.do(service, "start")
    bridge.wait_for(service, "Started")

    def reason() -> object:
        return [each["reason"] for each in bridge.scenario.service(service["id"])["conditions"]]

    wait_until(lambda: reason() == ["Drifted"], "drift is reported", lambda: f"{reason()}{bridge.logs()}")
    check_everything(lab)
    check_agent(bridge)
    bridge.scenario.consumer.delete(f"/services/{service['id']}")
    bridge.wait_for(service, "Deleted")
    assert agent.stop() == 0
    check_everything(lab)
    lab.check_nothing_is_left()
