"""Every JSON example of the specification, taken from its own text, behaves as the text says."""

from __future__ import annotations

import json

import pytest

import orders
from seed import Block, block, json_blocks

# Patterns with dots or remarks in place of values; they show a shape and are not JSON.
SHAPES = 5


def test_the_text_holds_as_many_shapes_as_we_know_of() -> None:
    assert sum(not each.is_json for each in json_blocks()) == SHAPES
    assert len(json_blocks()) == 79


def is_definition(value: object) -> bool:
    return isinstance(value, dict) and isinstance(value.get("type"), str)


def property_schemas() -> list[object]:
    """Blocks that are property schemas, and blocks that carry one."""
    found: list[object] = []
    for each in json_blocks():
        if not each.is_json:
            continue
        document = each.parse()
        if not isinstance(document, dict) or each.heading.startswith("API"):
            continue
        if isinstance(document.get("propertySchema"), dict):
            found.append(pytest.param(document["propertySchema"], id=f"line {each.line}"))
        elif document and all(map(is_definition, document.values())):
            found.append(pytest.param(document, id=f"line {each.line}"))
    return found


@pytest.mark.parametrize("document", property_schemas())
def test_a_property_schema_of_the_text_is_accepted(document: object) -> None:
    assert orders.schema_faults(document) == {}


def validator_blocks() -> list[Block]:
    return [each for each in json_blocks() if each.text.startswith('{\n  "validators"')]


FITTING = {
    "minLength": "string", "maxLength": "string", "pattern": "string", "enum": "string",
    "min": "integer", "max": "integer", "minItems": "array", "maxItems": "array", "uniqueItems": "array",
}  # fmt: skip


@pytest.mark.parametrize("each", validator_blocks(), ids=lambda each: f"line {each.line}")
def test_a_validator_of_the_text_is_accepted_on_the_type_it_is_for(each: Block) -> None:
    document = json.loads(each.text)
    name = document["validators"][0]["type"]
    assert orders.schema_faults({"value": {"type": FITTING[name], **document}}) == {}
    wrong = "boolean" if name != "enum" else "string"
    refused = orders.schema_faults({"value": {"type": wrong, **document}})
    assert bool(refused) == (name != "enum")


def test_the_vm_is_created_with_its_public_address() -> None:
    vm = block("VM Service Type with Mixed Authorizers")
    world = orders.World(pools={"public_ip": ("string", ["185.123.45.10"])})
    given = {
        "instanceName": "web-01",
        "region": "us-east-1",
        "cpu": 4,
        "memory": 8,
        "diskSize": 50,
        "imageId": "ami-1",
    }
    stored = orders.create(vm, given, world)
    assert stored == {**given, "publicIp": "185.123.45.10"}
