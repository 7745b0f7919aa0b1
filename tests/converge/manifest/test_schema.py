"""The JSON Schema is valid, accepts manifests that load, and refuses mistakes that an editor should underline."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

from mainstay.converge import health_checks, resources
from mainstay.converge.manifest.schema import manifest_schema

ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture(scope="module")
def validator() -> jsonschema.Draft202012Validator:
    types = [found for name in resources.names() if (found := resources.find(name)) is not None]
    schema = manifest_schema(types, list(health_checks.kinds().values()))
    jsonschema.Draft202012Validator.check_schema(schema)
    return jsonschema.Draft202012Validator(schema)


@pytest.mark.parametrize(
    "manifest", sorted((ROOT / "examples").rglob("manifest.yaml")), ids=lambda path: path.parent.name
)
def test_examples_are_accepted(validator: jsonschema.Draft202012Validator, manifest: Path) -> None:
    assert list(validator.iter_errors(yaml.safe_load(manifest.read_text()))) == []


@pytest.mark.parametrize(
    "document",
    [
        [{"exec": [{"/usr/bin/true": None}]}],
        [{"exec": ["/usr/bin/true"]}],
        [{"exec": {"name": "x", "command": "true", "returns": [0, 2], "timeout": "30s"}}],
        [{"file": [{"defaults": {"mode": "0644"}}, {"/a": {"ensure": "present", "mode": 420}}]}],
        {"ccm": {"resources": [{"file": [{"/a": {"ensure": "absent"}}]}]}},
        [{"file": [{"/a": {"ensure": "directory", "recurse": "{{ lookup('data.x') }}"}}]}],
    ],
)
def test_manifests_that_load_are_accepted(validator: jsonschema.Draft202012Validator, document: Any) -> None:
    assert list(validator.iter_errors(document)) == []


@pytest.mark.parametrize(
    "document",
    [
        [],
        {},
        {"resource": []},
        [{"fil": [{"/a": {"ensure": "absent"}}]}],
        [{"file": [{"/a": {"ensure": "absnt"}}]}],
        [{"file": [{"/a": {"ensure": "present", "contnet": "x"}}]}],
        [{"file": [{"/a": {"ensure": "present", "recurse": "yes"}}]}],
        [{"exec": [{"x": {"returns": "0"}}]}],
        [{"exec": [{"x": {"health_checks": [{"tries": 3}]}}]}],
        [{"file": [{"/a": {}, "/b": {}}]}],
        [{"file": {"ensure": "absent"}}],
        {"resources": [{"file": [{"/a": None}], "exec": ["x"]}]},
    ],
)
def test_mistakes_that_an_editor_should_underline_are_refused(
    validator: jsonschema.Draft202012Validator, document: Any
) -> None:
    assert not validator.is_valid(document)


@pytest.mark.parametrize(
    ("document", "path", "message"),
    [
        ([{"fil": [{"/a": None}]}], [0], "Additional properties are not allowed ('fil' was unexpected)"),
        (
            [{"file": [{"/a": {"ensure": "present", "contnet": "x"}}]}],
            [0, "file", 0, "/a"],
            "Additional properties are not allowed ('contnet' was unexpected)",
        ),
        (
            {"resources": [{"file": [{"/a": {"ensure": "absnt"}}]}]},
            ["resources", 0, "file", 0, "/a", "ensure"],
            "'absnt' is not one of ['present', 'absent', 'directory', 'link', None]",
        ),
        (
            [{"file": [{"/a": {"ensure": "present", "recurse": "yes"}}]}],
            [0, "file", 0, "/a", "recurse"],
            "'yes' is not of type 'boolean', 'null'",
        ),
        (
            {"resource": [], "resources": [{"exec": ["x"]}]},
            [],
            "Additional properties are not allowed ('resource' was unexpected)",
        ),
        ({"data": {}}, [], "'resources' is a required property"),
        ({"ccm": {"data": {}}}, ["ccm"], "'resources' is a required property"),
        (
            [{"exec": {"name": "x", "comand": "y"}}],
            [0, "exec"],
            "Additional properties are not allowed ('comand' was unexpected)",
        ),
        (
            [{"exec": [{"x": {"health_checks": [{"command": "true", "retries": 3}]}}]}],
            [0, "exec", 0, "x", "health_checks", 0],
            "Additional properties are not allowed ('retries' was unexpected)",
        ),
    ],
)
def test_a_validator_names_the_wrong_key(
    validator: jsonschema.Draft202012Validator, document: Any, path: list[str | int], message: str
) -> None:
    error = jsonschema.exceptions.best_match(validator.iter_errors(document))
    assert (list(error.absolute_path), error.message) == (path, message)
