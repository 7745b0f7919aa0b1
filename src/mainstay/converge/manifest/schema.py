"""The JSON Schema (2020-12) of a manifest, derived from the types; editors complete and check with it. Pure."""

from __future__ import annotations

from mainstay.converge.manifest.data_schema import TYPES
from mainstay.converge.manifest.entries import COMMON, HEALTH_CHECK, STRUCTURED
from mainstay.converge.value_kinds import SCALAR_SCHEMA, TEMPLATE_SCHEMA

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

    from mainstay.converge.contract import HealthCheckKind, Property, ResourceType

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
            "items": {"oneOf": [_entry(resource_type) for resource_type in types]},
        }
    }
    definitions["data_schema"] = _data_schema()
    definitions["health_checks"] = {
        "type": "array",
        "description": STRUCTURED["health_checks"],
        "items": {"anyOf": [_health_check(kind) for kind in kinds]},
    }
    for resource_type in types:
        definitions[resource_type.name] = _properties_of(resource_type, with_name=False)
        definitions[f"{resource_type.name}_flat"] = _properties_of(resource_type, with_name=True)
    return {
        "$schema": DIALECT,
        "title": "Mainstay manifest",
        "anyOf": [
            {"$ref": "#/$defs/resources"},
            {
                "type": "object",
                "additionalProperties": False,
                "properties": {
                    **sections,
                    "ccm": {"type": "object", "additionalProperties": False, "properties": sections},
                },
                "anyOf": [
                    {"required": ["resources"]},
                    {"required": ["ccm"], "properties": {"ccm": {"required": ["resources"]}}},
                ],
            },
        ],
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
            "type": {"anyOf": [{"enum": [*names, None]}, {"type": "array", "items": {"enum": [*names, None]}}]},
            "properties": {"type": "object", "additionalProperties": below},
            "items": below,
            "required": {"type": "array", "items": SCALAR_SCHEMA},
            "enum": {"type": "array", "minItems": 1},
            "minimum": {"type": "number"},
            "maximum": {"type": "number"},
            "pattern": SCALAR_SCHEMA,
        },
    }


def _entry(resource_type: ResourceType) -> dict[str, Any]:
    """One item of `resources`: a type with a list of names, or flat."""
    named = {
        "type": "object",
        "minProperties": 1,
        "maxProperties": 1,
        "additionalProperties": {"anyOf": [{"type": "null"}, {"$ref": f"#/$defs/{resource_type.name}"}]},
    }
    body = {
        "anyOf": [
            {"type": "array", "minItems": 1, "items": {"anyOf": [{"type": "string"}, named]}},
            {"$ref": f"#/$defs/{resource_type.name}_flat"},
        ]
    }
    return {
        "type": "object",
        "required": [resource_type.name],
        "additionalProperties": False,
        "properties": {resource_type.name: body},
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
    schema: dict[str, Any] = {"type": "object", "additionalProperties": False, "properties": described}
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
        schema = {"anyOf": [{"enum": [*entry.choices, None]}, TEMPLATE_SCHEMA]}
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
    return {"anyOf": [{"enum": [*resource_type.ensures, None]}, TEMPLATE_SCHEMA], "description": "the desired state"}
