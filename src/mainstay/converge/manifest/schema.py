"""The JSON Schema (2020-12) of a manifest, derived from the types; editors complete and check with it. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from mainstay.converge.contract import HealthCheckKind, Property, ResourceType
from mainstay.converge.manifest.data_schema import TYPES
from mainstay.converge.manifest.resource_reading import COMMON, HEALTH_CHECK, STRUCTURED
from mainstay.converge.value_kinds import SCALAR_SCHEMA, or_template
from mainstay.foundation import Any

DIALECT = "https://json-schema.org/draft/2020-12/schema"
EXPRESSION = {"type": ["string", "boolean"], "description": "an expression that gives true or false"}
CONTROL = {
    "type": "object",
    "properties": {"if": EXPRESSION, "unless": EXPRESSION},
    "additionalProperties": False,
    "description": STRUCTURED["control"],
}


def manifest_schema(types: Sequence[ResourceType], kinds: Sequence[HealthCheckKind]) -> dict[str, Any]:
    """The schema of a whole manifest: a map, a bare list, or a map with `ccm`."""
    sections = {
        "data": {"type": ["object", "null"], "description": "input values, read by lookup('data.…')"},
        "data_schema": {"$ref": "#/$defs/data_schema", "description": "a JSON Schema of `data`"},
        "hierarchy": {
            "type": "object",
            "additionalProperties": False,
            "properties": {
                "order": {
                    "type": "array",
                    "items": SCALAR_SCHEMA,
                    "description": "override keys, templated with facts",
                },
                "merge": {"enum": ["first", "deep"], "description": "the first override found, or all of them"},
            },
        },
        "overrides": {"type": ["object", "null"], "additionalProperties": {"type": ["object", "null"]}},
        "resources": {"$ref": "#/$defs/resources"},
        "fail_on_error": {"type": "boolean", "description": "stop after the first resource that fails"},
        "pre_message": {"type": "string", "description": "shown before the run"},
        "post_message": {"type": "string", "description": "shown after a run without failures"},
        "outputs": {"type": "object", "description": "evaluated after a run without failures"},
    }
    definitions: dict[str, Any] = {
        "resources": {
            "type": "array",
            "minItems": 1,
            "items": {
                "type": "object",
                "minProperties": 1,
                "maxProperties": 1,
                "additionalProperties": False,
                "properties": {resource_type.name: _body(resource_type) for resource_type in types},
            },
        }
    }
    definitions["data_schema"] = _data_schema()
    definitions["health_checks"] = {
        "type": "array",
        "description": STRUCTURED["health_checks"],
        "items": {"type": "object", **_one_of_kinds(kinds)},
    }
    for resource_type in types:
        definitions[resource_type.name] = _properties_of(resource_type, with_name=False)
        definitions[f"{resource_type.name}_flat"] = _properties_of(resource_type, with_name=True)
    return {
        "$schema": DIALECT,
        "title": "Mainstay manifest",
        # Conditions instead of `anyOf`, here and below: a validator then names the wrong key.
        "if": {"type": "array"},
        "then": {"$ref": "#/$defs/resources"},
        "else": {
            "type": "object",
            "additionalProperties": False,
            "properties": {
                **sections,
                "ccm": {"type": "object", "additionalProperties": False, "properties": sections},
            },
            "if": {"required": ["ccm"], "not": {"required": ["resources"]}},
            "then": {"properties": {"ccm": {"required": ["resources"]}}},
            "else": {"required": ["resources"]},
        },
        "$defs": definitions,
    }


def _data_schema() -> dict[str, Any]:
    """The schema of `data_schema`: the part of JSON Schema that the loader knows."""
    below = {"$ref": "#/$defs/data_schema"}
    names = list(TYPES)
    return {
        "type": "object",
        "additionalProperties": False,
        "properties": {
            "type": {
                "if": {"type": "array"},
                "then": {"items": {"enum": [*names, None]}},
                "else": {"enum": [*names, None]},
            },
            "properties": {"type": "object", "additionalProperties": below},
            "items": below,
            "required": {"type": "array", "items": SCALAR_SCHEMA},
            "enum": {"type": "array", "minItems": 1},
            "minimum": {"type": "number"},
            "maximum": {"type": "number"},
            "pattern": SCALAR_SCHEMA,
        },
    }


def _body(resource_type: ResourceType) -> dict[str, Any]:
    """What is below a type: a list of names with properties, or one flat map."""
    named = {
        "minProperties": 1,
        "maxProperties": 1,
        "additionalProperties": {"$ref": f"#/$defs/{resource_type.name}"},
    }
    return {
        "type": ["array", "object"],
        "if": {"type": "array"},
        "then": {
            "minItems": 1,
            "items": {"type": ["string", "number", "boolean", "object"], "if": {"type": "object"}, "then": named},
        },
        "else": {"$ref": f"#/$defs/{resource_type.name}_flat"},
    }


def _one_of_kinds(kinds: Sequence[HealthCheckKind]) -> dict[str, Any]:
    """A check has the property that its kind is named after."""
    first, *rest = kinds
    return {
        "if": {"required": [first.name]},
        "then": _health_check(first),
        "else": _one_of_kinds(rest) if rest else {"required": [kinds[0].name]},
    }


def _properties_of(resource_type: ResourceType, *, with_name: bool) -> dict[str, Any]:
    table: dict[str, Property] = {**COMMON, **resource_type.properties}
    described = {name: _described_property(entry) for name, entry in table.items()}
    described["ensure"] = _ensure_schema(resource_type)
    described["control"] = CONTROL
    described["for_each"] = {"type": ["array", "object", "string"], "description": STRUCTURED["for_each"]}
    described["health_checks"] = {"$ref": "#/$defs/health_checks"}
    if with_name:
        described = {"name": {**SCALAR_SCHEMA, "description": "the resource's name"}, **described}
    kinds = "object" if with_name else ["object", "null"]
    schema: dict[str, Any] = {"type": kinds, "additionalProperties": False, "properties": described}
    if with_name:
        schema["required"] = ["name"]
    return schema


def _health_check(kind: HealthCheckKind) -> dict[str, Any]:
    table = {**kind.properties, **HEALTH_CHECK}
    return {
        "type": "object",
        "required": [kind.name],
        "additionalProperties": False,
        "properties": {name: _described_property(entry) for name, entry in table.items()},
    }


def _described_property(entry: Property) -> dict[str, Any]:
    schema = dict(entry.kind.schema)
    if entry.choices:
        schema = or_template({"enum": [*entry.choices, None]})
    if entry.secret:
        return {**schema, "description": f"{entry.summary}; secret: never shown", "writeOnly": True}
    hidden = "; private: hidden when `sensitive` is true" if entry.private else ""
    return {**schema, "description": entry.summary + hidden}


def _ensure_schema(resource_type: ResourceType) -> dict[str, Any]:
    if resource_type.open_ensure:
        return {
            **SCALAR_SCHEMA,
            "description": f"{', '.join(resource_type.ensures)}, or another value that the type accepts",
        }
    return {**or_template({"enum": [*resource_type.ensures, None]}), "description": "the desired state"}
