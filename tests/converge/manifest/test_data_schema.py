"""`data_schema` checks the data of a manifest after all layers are merged."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from loading import faults_of
from mainstay.converge.manifest.hierarchy import DataLayer
from mainstay.foundation.text import Tainted

Program = Callable[..., "subprocess.CompletedProcess[str]"]
ONE = "resources: [{exec: ['true']}]"


def manifest_of(schema: dict[str, Any], data: dict[str, Any]) -> str:
    return yaml.safe_dump({"data": data, "data_schema": schema, "resources": [{"exec": ["true"]}]})


@pytest.mark.parametrize(
    ("schema", "fitting", "unfit"),
    [
        ({"type": "string"}, ["a", "", "1"], [1, True, None, [], {}]),
        ({"type": "integer"}, [1, -1, 3.0], ["1", 1.5, True, None]),
        ({"type": "number"}, [1, 1.5], ["1", True]),
        ({"type": "boolean"}, [True, False], ["true", 1, 0, None]),
        ({"type": "object"}, [{}, {"a": 1}], [[], "a", None]),
        ({"type": "array"}, [[], [1]], [{}, "a", None]),
        ({"type": "null"}, [None], ["", 0, False]),
        ({"type": ["string", "null"]}, ["a", None], [1]),
        ({}, [1, "a", None, [], {}], []),
        ({"enum": [1, "a", None, True]}, [1, "a", None, True], [2, "b", False, [1]]),
        ({"enum": [0]}, [0, 0.0], [False]),
        ({"minimum": 1, "maximum": 3}, [1, 2.5, 3, "zzz", None], [0, 3.1]),
        ({"pattern": "b+"}, ["abc", 1], ["a", ""]),
        ({"items": {"type": "integer"}}, [[], [1, 2], "ab"], [["a"], [1, None]]),
        ({"required": ["a"]}, [{"a": None}, [], "x"], [{}, {"b": 1}]),
        (
            {"properties": {"a": {"properties": {"b": {"type": "string"}}}}},
            [{}, {"a": {}}, {"c": 1}],
            [{"a": {"b": 1}}],
        ),
    ],
)
def test_a_value_fits_or_has_a_fault(
    schema: dict[str, Any], fitting: list[Any], unfit: list[Any], root: Path
) -> None:
    outer = {"properties": {"value": schema}}
    for value in fitting:
        assert faults_of(manifest_of(outer, {"value": value}), root) == [], value
    for value in unfit:
        assert len(faults_of(manifest_of(outer, {"value": value}), root)) == 1, value


def test_values_from_outside_are_checked_and_named(root: Path) -> None:
    text = f"data: {{port: 1, web: {{}}}}\ndata_schema: {{properties: {{port: {{type: integer}}, web: {{properties: {{n: {{maximum: 3}}}}}}}}}}\n{ONE}\n"
    layers = [DataLayer({"port": "x", "web": {"n": 4}}, "--data site.yaml"), DataLayer({"port": "y"}, "--set port")]
    assert faults_of(text, root, data_layers=layers) == [
        "2:14 data.port must be an integer, got the text 'y' (--set port)",
        "2:14 data.web.n must be at most 3, got 4 (--data site.yaml)",
    ]
    assert faults_of(text.replace("port: 1", "port: x"), root, data_layers=[{"port": 2}]) == []


def test_the_command_line_names_its_options(root: Path, mainstay: Program) -> None:
    manifest = root / "m.yaml"
    manifest.write_text(f"data_schema: {{required: [name], properties: {{port: {{minimum: 1}}}}}}\n{ONE}\n")
    (root / "site.yaml").write_text("port: 0\n")
    refused = mainstay("validate", str(manifest), "--data", str(root / "site.yaml"))
    assert refused.returncode == 2
    assert "m.yaml:1:14: data.port must be at least 1, got 0 (--data" in refused.stderr
    assert "data.name is required" in refused.stderr
    assert mainstay("validate", str(manifest), "--set", "name=x", "--set", "port=1").returncode == 0


def test_a_secret_is_checked_and_never_shown(root: Path) -> None:
    text = f"""
data: {{port: "{{{{ vault.port }}}}", token: "{{{{ vault.token }}}}", all: "{{{{ vault }}}}"}}
data_schema:
  properties:
    port: {{type: integer, maximum: 10000}}
    token: {{pattern: "^x", enum: [a]}}
    all: {{items: {{}}, type: array}}
{ONE}
"""
    roots = {"vault": {"port": Tainted("80443"), "token": Tainted("s3cret-token")}}
    found = faults_of(text, root, roots=roots)
    assert found == [
        "2:14 data.port must be at most 10000, got [redacted]",
        "2:41 data.token must be one of 'a', got [redacted]",
        "2:41 data.token must match ^x, got [redacted]",
        "2:67 data.all must be an array, got a map",
    ]
    for old, new in (("10000", "99999"), ("^x", "^s"), ("[a]", "[s3cret-token]"), ("array", "object")):
        text = text.replace(old, new)
    assert faults_of(text, root, roots=roots) == []


@pytest.mark.parametrize(
    ("pattern", "problem"), [("(a+)+$", "repeated group must not contain an unbounded"), (r"(a)\1", "back-reference")]
)
def test_a_pattern_that_cannot_be_searched_in_linear_time_is_a_fault(pattern: str, problem: str, root: Path) -> None:
    """Values may come from customers."""
    (fault,) = faults_of(manifest_of({"properties": {"n": {"pattern": pattern}}}, {"n": "a" * 40 + "!"}), root)
    assert problem in fault


def test_a_value_of_a_customer_does_not_hang_the_load(root: Path) -> None:
    (fault,) = faults_of(manifest_of({"properties": {"n": {"pattern": "^(a|aa)+$"}}}, {"n": "a" * 45 + "b"}), root)
    assert "data.n must match ^(a|aa)+$" in fault


def test_many_unfit_values_are_not_all_listed(root: Path) -> None:
    found = faults_of(
        manifest_of({"properties": {"n": {"items": {"type": "string"}}}}, {"n": list(range(500))}), root
    )
    assert len(found) == 101
    assert any("more than 100 values" in fault for fault in found)
