"""Data, facts and additional roots from options: syntax and precedence."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

Program = Callable[..., "subprocess.CompletedProcess[str]"]
MANIFEST = """
data: {a: manifest, deep: {x: manifest, y: manifest}, list: [1, 2]}
overrides: {default: {b: hierarchy, a: hierarchy}}
resources: [{exec: ["true"]}]
"""


def data(mainstay: Program, *options: str, manifest: str = MANIFEST) -> dict[str, Any]:
    """The data of a manifest after all layers."""
    shown = 'outputs: {data: "{{ Data }}"}\n' + manifest
    done = mainstay("apply", "-", "--json", *options, stdin=shown)
    assert done.returncode == 0, done.stdout + done.stderr
    found: dict[str, Any] = json.loads(done.stdout)["outputs"]["data"]
    return found


def test_each_layer_overrides_the_one_before(mainstay: Program, root: Path) -> None:
    (root / "one.yaml").write_text("a: file\ndeep: {x: file}\nlist: [3]\n")
    (root / "two.json").write_text('{"deep": {"x": "second file"}}')
    assert data(mainstay) == {
        "a": "hierarchy",
        "b": "hierarchy",
        "deep": {"x": "manifest", "y": "manifest"},
        "list": [1, 2],
    }
    assert data(mainstay, "--data", "one.yaml", "--data", "two.json") == {
        "a": "file",
        "b": "hierarchy",
        "deep": {"x": "second file", "y": "manifest"},
        "list": [3],
    }
    assert data(mainstay, "--set", "deep.x=option", "--set", "a=1", "--set", "a=2", "--data", "one.yaml") == {
        "a": 2,
        "b": "hierarchy",
        "deep": {"x": "option", "y": "manifest"},
        "list": [3],
    }


@pytest.mark.parametrize(
    ("written", "value"),
    [
        *(("v=80", 80), ("v=080", 80), ("v=0x10", 16), ("v=1e3", 1000.0), ("v=-1.5", -1.5), ("v=true", True)),
        *(("v=yes", "yes"), ("v=", None), ("v=~", None), ("v=null", None), ("v=a=b", "a=b"), ("v= x ", " x ")),
        *(('v="80"', "80"), ("v='[1, 2]'", "[1, 2]"), ('v="', '"'), ("v={{ 1 }}", "{{ 1 }}")),
    ],
)  # fmt: skip
def test_values_of_set_are_core_scalars(mainstay: Program, written: str, value: Any) -> None:
    assert data(mainstay, "--set", written, manifest="resources: [{exec: ['true']}]\n") == {"v": value}


@pytest.mark.parametrize("written", ["v=[1, 2]", "v={a: 1}"])
def test_set_takes_one_value_and_points_to_data_for_more(mainstay: Program, written: str, root: Path) -> None:
    (root / "m.yaml").write_text(MANIFEST)
    done = mainstay("validate", "m.yaml", "--set", written)
    assert done.returncode == 2
    assert "--set v takes one value; put lists and maps into a file for --data" in done.stderr


def test_dotted_keys_of_set_nest(mainstay: Program) -> None:
    manifest = "data: {web: {port: 80, host: a}, flat: 1}\nresources: [{exec: ['true']}]\n"
    assert data(
        mainstay, "--set", "web.port=81", "--set", "flat.deep=2", "--set", "new.a.b=3", manifest=manifest
    ) == {
        "web": {"port": 81, "host": "a"},
        "flat": {"deep": 2},
        "new": {"a": {"b": 3}},
    }


@pytest.mark.parametrize("option", ["--set", "--fact"])
@pytest.mark.parametrize("written", ["a", "", "=1", ".a=1", "a.=1", "a..b=1"])
def test_a_malformed_assignment_is_refused(mainstay: Program, option: str, written: str) -> None:
    done = mainstay("apply", "-", option, written, stdin="- exec: ['true']\n")
    assert done.returncode == 2
    assert done.stderr == (
        f"mainstay: {option} takes KEY=VALUE with a dotted key, such as web.port=80; got {written!r}\n"
    )


def test_additional_roots_come_from_files(mainstay: Program, root: Path) -> None:
    (root / "values.yaml").write_text("service: {name: web}\nports: [80, 81]\nword: plain\n")
    manifest = "outputs: {all: \"{{ lookup('service.name') }} {{ Ports[1] }} {{ word }} {{ lookup('word') }}\"}\nresources: [{exec: ['true']}]\n"
    done = mainstay("apply", "-", "--json", "--values", "values.yaml", stdin=manifest)
    assert json.loads(done.stdout)["outputs"] == {"all": "web 81 plain plain"}


@pytest.mark.parametrize("name", ["data", "facts", "environ"])
def test_an_additional_root_cannot_have_a_reserved_name(mainstay: Program, root: Path, name: str) -> None:
    (root / "values.yaml").write_text(f"{name}: {{}}\n")
    done = mainstay("apply", "-", "--values", "values.yaml", stdin="- exec: ['true']\n")
    assert done.returncode == 2
    assert done.stderr.startswith(
        f"mainstay: --values: {name} is a reserved root; use --data, --facts or another name"
    )


@pytest.mark.parametrize("option", ["--data", "--facts", "--values"])
def test_a_broken_values_file_is_reported_with_its_position(mainstay: Program, root: Path, option: str) -> None:
    (root / "v.yaml").write_text("a: 1\nb: [\n")
    for name, message in (
        ("nope.yaml", "nope.yaml: cannot be read: No such file or directory"),
        ("v.yaml", "v.yaml:3:1: not valid YAML: did not find expected node content (while parsing a flow node)"),
    ):
        done = mainstay("apply", "-", option, name, stdin="- exec: ['true']\n")
        assert (done.returncode, done.stderr) == (2, f"{message}\n1 fault; nothing was touched.\n")
        as_json = mainstay("apply", "-", "--json", option, name, stdin="- exec: ['true']\n")
        assert as_json.returncode == 2
        assert json.loads(as_json.stdout)["faults"][0]["file"] == name
