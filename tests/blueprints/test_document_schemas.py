"""The JSON Schemas of blueprints, service types, orders and inventories accept what loads and name what is wrong."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from mainstay.blueprints.document_schemas import blueprint_schema, order_schema, service_type_schema
from mainstay.cli.commands.schema import DOCUMENTS
from mainstay.cli.main import main
from mainstay.control.rulebook import installed_rulebook
from mainstay.foundation.documents import read_yaml
from mainstay.push.inventory_schema import inventory_schema

EXAMPLES = Path(__file__).parents[2] / "examples" / "blueprints"
SCHEMAS = {
    "blueprint": blueprint_schema(),
    "service-type": service_type_schema(installed_rulebook()),
    "order": order_schema(),
    "inventory": inventory_schema(),
}
PLACES = {"blueprint": "*/blueprint.yaml", "service-type": "*/service-type.yaml", "order": "*/orders/*.yaml"}


def faults_of(kind: str, document: Any) -> list[tuple[list[str | int], str]]:
    validator = jsonschema.Draft202012Validator(SCHEMAS[kind])
    return [(list(error.absolute_path), error.message) for error in validator.iter_errors(document)]


@pytest.mark.parametrize("kind", SCHEMAS)
def test_a_schema_is_valid_itself(kind: str) -> None:
    jsonschema.Draft202012Validator.check_schema(SCHEMAS[kind])


@pytest.mark.parametrize("kind", PLACES)
def test_the_documents_of_all_examples_are_accepted(kind: str) -> None:
    files = sorted(EXAMPLES.glob(PLACES[kind]))
    assert files
    for file in files:
        assert faults_of(kind, read_yaml(file.read_text(), str(file))) == [], file


def test_an_inventory_is_accepted() -> None:
    inventory = {
        "hosts": {"web1": {"data": {"port": 1}, "python": "/usr/bin/python3.11"}, "web2": None},
        "groups": {"web": {"hosts": ["web1", "web2"], "data": {"port": 2}}},
    }
    assert faults_of("inventory", inventory) == []


@pytest.mark.parametrize(
    ("kind", "document", "path", "word"),
    [
        ("blueprint", {"name": "a", "version": "1.0.0", "actions": {}, "kepes": {}}, [], "'kepes'"),
        ("blueprint", {"name": "a", "version": "1", "actions": {}}, ["version"], "'1'"),
        (
            "blueprint",
            {"name": "a", "version": "1.0.0", "actions": {"create": {"manifst": "a"}}},
            ["actions", "create"],
            "'manifst'",
        ),
        ("service-type", {"propertySchema": {"a": {"typ": "string"}}}, ["propertySchema", "a"], "'typ'"),
        ("service-type", {"propertySchema": {"a": {"type": "strng"}}}, ["propertySchema", "a", "type"], "'strng'"),
        (
            "service-type",
            {"propertySchema": {"properties": {"a": {"lable": "x"}}}},
            ["propertySchema", "properties", "a"],
            "'lable'",
        ),
        (
            "service-type",
            {"propertySchema": {"a": {"validators": [{"type": "mni", "value": 1}]}}},
            ["propertySchema", "a", "validators", 0, "type"],
            "'mni'",
        ),
        ("service-type", {"lifecycleSchema": {"states": []}}, ["lifecycleSchema"], "'actions'"),
        ("order", {"propertys": {}}, [], "'propertys'"),
        ("order", {"pools": {"ip": 1}}, ["pools", "ip"], "1 is not"),
        ("inventory", {"hosts": {"a": {"dta": {}}}}, ["hosts", "a"], "'dta'"),
        ("inventory", {"groups": {}}, [], "'hosts'"),
    ],
)
def test_a_validator_names_the_wrong_key(kind: str, document: Any, path: list[str | int], word: str) -> None:
    error = jsonschema.exceptions.best_match(jsonschema.Draft202012Validator(SCHEMAS[kind]).iter_errors(document))
    assert list(error.absolute_path) == path
    assert word in error.message


@pytest.mark.parametrize("kind", DOCUMENTS)
def test_the_command_prints_every_schema(kind: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["schema", kind]) == 0
    assert json.loads(capsys.readouterr().out)["$schema"] == "https://json-schema.org/draft/2020-12/schema"
