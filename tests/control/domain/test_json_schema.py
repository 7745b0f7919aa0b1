"""The exported JSON Schema accepts the same documents as the engine, for rules that both support."""

from __future__ import annotations

from typing import Any

import jsonschema
import jsonschema_rs
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from documents import members, properties_for
from mainstay.control.domain.properties.compile import PLAIN_REFERENCE
from mainstay.control.domain.properties.json_schema import export_json_schema
from property_requests import faults, schema_of
from seed_text import block
from torture import count_of

RELATIONS: list[list[dict[str, Any]]] = [
    [],
    [{"type": "exactlyOne", "config": {"properties": ["a", "b"]}}],
    [{"type": "atMostOne", "config": {"properties": ["a", "b"]}}],
]


@settings(
    max_examples=count_of(2_500),
    deadline=None,
    derandomize=True,
    database=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much],
)
@given(data=st.data())
def test_the_engine_and_the_export_agree_on_random_documents(data: st.DataObject) -> None:
    declared = data.draw(members(plain=True))
    relations = [rules for rules in RELATIONS if {"a", "b"} <= set(declared) or not rules]
    document = {"properties": declared, "validators": data.draw(st.sampled_from(relations))}
    exported = export_json_schema(schema_of(document))
    validator = jsonschema_rs.Draft202012Validator(exported)
    for _ in range(10):
        properties = data.draw(properties_for(declared))
        # The export does not express the rule about texts that read as vault references.
        found = {path for path, message in faults(document, properties).items() if message != PLAIN_REFERENCE}
        assert (not found) == validator.is_valid(properties), (exported, properties, found)


def test_the_export_is_a_json_schema() -> None:
    for heading in ("VM Service Type with Mixed Authorizers", "Disk Service Type"):
        jsonschema.Draft202012Validator.check_schema(export_json_schema(schema_of(block(heading)), "VM"))


def test_the_export_contains_titles_defaults_and_access() -> None:
    document = {
        "name": {
            "type": "string",
            "label": "Name",
            "required": True,
            "validators": [{"type": "minLength", "value": 3}],
        },
        "size": {
            "type": "integer",
            "label": "",
            "default": 4,
            "required": True,
            "validators": [{"type": "enum", "values": [4, 8]}],
        },
        "ip": {"type": "string", "source": "agent", "required": True},
        "key": {"type": "string", "secret": {"type": "persistent"}},
        "db": {"type": "reference"},
    }
    exported = export_json_schema(schema_of(document), "VM")
    assert exported["title"] == "VM"
    assert exported["required"] == ["name"]
    properties: Any = exported["properties"]
    assert properties["name"] == {"title": "Name", "type": "string", "minLength": 3}
    assert properties["size"] == {"type": ["integer", "null"], "enum": [4, 8, None], "default": 4}
    assert properties["ip"] == {"type": ["string", "null"], "readOnly": True}
    assert properties["key"] == {"type": ["string", "null"], "writeOnly": True}
    assert properties["db"]["format"] == "uuid"


@pytest.mark.parametrize("document", [None, {}, {"properties": {}}])
def test_free_form_and_empty_schemas_differ(document: object) -> None:
    validator = jsonschema_rs.Draft202012Validator(export_json_schema(schema_of(document)))
    assert validator.is_valid({})
    assert validator.is_valid({"a": 1}) == (document is None)


def test_several_rules_of_one_kind_are_all_exported() -> None:
    twice = [
        {"type": "pattern", "pattern": "a"},
        {"type": "pattern", "pattern": "b"},
        {"type": "pattern", "pattern": "c"},
    ]
    validator = jsonschema_rs.Draft202012Validator(
        export_json_schema(schema_of({"p": {"type": "string", "validators": twice}}))
    )
    assert [validator.is_valid({"p": text}) for text in ("abc", "ab", "bc", "ac")] == [True, False, False, False]
