"""`mainstay type`: valid files, invalid files, and helpful messages."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from mainstay.cli.main import main
from seed_text import block

ORDER = {"instanceName": "web-01", "region": "us-east-1", "cpu": 4, "memory": 8, "diskSize": 50, "imageId": "ami-1"}


@pytest.fixture
def vm(tmp_path: Path) -> str:
    document = {"name": "VM", "propertySchema": block("VM Service Type with Mixed Authorizers")}
    return write(tmp_path / "vm.json", document)


def write(path: Path, document: object) -> str:
    path.write_text(document if isinstance(document, str) else json.dumps(document), encoding="utf-8")
    return str(path)


def test_a_valid_type_can_have_warnings(vm: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["type", "check", vm]) == 0
    out = capsys.readouterr().out
    assert f"{vm}: valid, 8 warnings" in out
    assert "warning: action start in state Stopped: a failure has no transition" in out


def test_every_fault_of_a_type_is_printed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    document: dict[str, Any] = {
        "propertySchema": {
            "cpu": {"type": "int"},
            "p": {"type": "string", "updatable": "statuses", "updatableIn": ["Off"]},
        },
        "lifecycleSchema": {"states": [{"name": "New"}], "initialState": "New", "actions": []},
    }
    assert main(["type", "check", write(tmp_path / "t.json", document)]) == 1
    assert capsys.readouterr().out.splitlines() == [
        "cpu.type: unknown type 'int' (did you mean 'integer'?)",
        "lifecycleSchema.actions: there is no action 'create'",
    ]
    del document["lifecycleSchema"]
    assert main(["type", "check", write(tmp_path / "t.json", document)]) == 1
    assert "p.updatableIn[0]: state 'Off' is not in the lifecycle" in capsys.readouterr().out


def test_properties_are_validated_as_an_order(vm: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    order = write(tmp_path / "order.yaml", "".join(f"{key}: {value}\n" for key, value in ORDER.items()))
    assert main(["type", "validate", vm, order]) == 0
    assert capsys.readouterr().out == "valid\n"
    assert main(["type", "validate", vm, write(tmp_path / "bad.json", {"cpu": 3, "publicIp": "x"})]) == 1
    lines = capsys.readouterr().out.splitlines()
    assert "cpu: value is not in allowed enum values" in lines
    assert "publicIp: property can only be set by: [system]" in lines
    assert "region: required field is missing" in lines


def test_properties_are_validated_as_an_update(vm: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    old, new = write(tmp_path / "old.json", ORDER), write(tmp_path / "new.json", {"cpu": 8})
    assert main(["type", "validate", vm, new, "--old", old, "--state", "Stopped"]) == 0
    assert main(["type", "validate", vm, new, "--old", old, "--state", "Started"]) == 1
    assert "cpu: property cannot be updated in state 'Started'" in capsys.readouterr().out
    report = write(tmp_path / "report.json", {"instanceId": "i-1"})
    assert main(["type", "validate", vm, report, "--old", old, "--state", "New", "--actor", "agent"]) == 0


def test_checks_that_need_a_server_are_listed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    document = {
        "propertySchema": {
            "os": {"type": "string", "validators": [{"type": "serviceOption", "value": "os"}]},
            "db": {"type": "reference"},
            "key": {"type": "string", "secret": {"type": "persistent"}},
            "size": {"type": "integer"},
        }
    }
    kind = write(tmp_path / "t.json", document)
    service = "33333333-3333-4333-8333-333333333333"
    given = {"os": "linux", "db": service, "key": "k"}
    old = write(tmp_path / "old.json", {"key": "vault://1"})
    assert (
        main(["type", "validate", kind, write(tmp_path / "p.json", given), "--old", old, "--state", "Stopped"]) == 0
    )
    assert capsys.readouterr().out.splitlines() == [
        f"not checked without a server: whether service {service} exists",
        "not checked without a server: which options of type 'os' the provider offers",
        "valid",
    ]
    assert main(["type", "validate", kind, write(tmp_path / "p.json", {**given, "size": "x"})]) == 1
    assert capsys.readouterr().out == "size: expected integer, got string\n"


@pytest.mark.parametrize(("form", "start"), [("svg", "<svg "), ("mermaid", "stateDiagram-v2"), ("json-schema", "{")])
def test_a_type_is_drawn(vm: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], form: str, start: str) -> None:
    assert main(["type", "draw", vm, "--format", form]) == 0
    printed = capsys.readouterr().out
    assert printed.startswith(start)
    assert ("VM" in printed) == (form != "mermaid")
    target = tmp_path / "out"
    assert main(["type", "draw", vm, "--format", form, "--output", str(target)]) == 0
    assert target.read_text(encoding="utf-8") == printed


MISTAKES: list[tuple[str, str, str]] = [
    ("t.yaml", "a: 1\na: 2\n", "t.yaml:2:1: duplicate key 'a'"),
    ("t.yaml", "a: [1\n", "t.yaml:2:1: not valid YAML: "),
    ("t.yaml", "a: *x\n", "t.yaml:1:4: the alias *x has no complete anchor before it"),
    ("t.yaml", "1: a\n", "has unknown keys: 1 "),
    ("t.yaml", "? {a: 1}\n: b\n", "t.yaml:1:3: a key must be text"),
    ("t.json", '{"a": 1, "a": 2}', "t.json:1:1: not valid JSON: duplicate key 'a'"),
    ("t.json", "{", "t.json:1:2: not valid JSON: "),
    ("t.json", "[]", "is not a service type"),
    ("t.json", '{"cpu": {"type": "integer"}}', "a bare property schema goes below `propertySchema`"),
    ("t.yaml", "name: VM\npropertyschema: {}\n", "has unknown keys: propertyschema"),
]


@pytest.mark.parametrize(("name", "text", "words"), MISTAKES)
def test_a_file_that_cannot_be_used_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str, text: str, words: str
) -> None:
    assert main(["type", "check", write(tmp_path / name, text)]) == 2
    message = capsys.readouterr().err
    assert words in message
    assert name in message


def test_typical_mistakes_are_answered_with_a_hint(
    vm: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    order = write(tmp_path / "order.json", ORDER)
    mistakes = {
        ("check", str(tmp_path / "missing.json")): "No such file",
        ("validate", vm, order, "--state", "Started"): "use --old FILE",
        ("validate", vm, order, "--old", order): "use --state",
        (
            "validate",
            vm,
            order,
            "--old",
            order,
            "--state",
            "Off",
        ): "there is no state 'Off'; the lifecycle has: New, Stopped",
        (
            "validate",
            vm,
            order,
            "--actor",
            "root",
        ): "--actor cannot be 'root'; it takes user, admin, participant, agent",
        ("draw", vm, "--output", str(tmp_path / "no" / "where.svg")): "cannot write",
        ("chek", vm): "`mainstay type` has no sub-command 'chek' (did you mean 'check'?)",
    }
    for arguments, words in mistakes.items():
        assert main(["type", *arguments]) == 2
        assert words in capsys.readouterr().err


def test_yaml_dates_stay_strings(tmp_path: Path) -> None:
    kind = write(tmp_path / "t.yaml", "propertySchema:\n  day: {type: string}\n  n: {type: integer}\n")
    assert main(["type", "validate", kind, write(tmp_path / "p.yaml", "day: 2026-01-01\nn: 5\n")]) == 0


def test_a_too_large_file_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["type", "check", write(tmp_path / "t.yaml", "#" * (5 * 1024 * 1024))]) == 2
    assert "is larger than" in capsys.readouterr().err
