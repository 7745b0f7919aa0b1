"""Exports a property schema as JSON Schema 2020-12: what a user may send at creation.

Null means "not given", so an optional property also accepts null. JSON Schema cannot express authorizers, references,
options and pools; such properties are marked `readOnly` or described by their type alone. The rule that only secrets may
read as vault references is left out as well: it would be repeated at every text."""

from __future__ import annotations

from typing import Any

from mainstay.control.domain.properties.contract import Actor, PropertyType
from mainstay.control.domain.properties.declaration import NamedProperties, PropertyDeclaration
from mainstay.control.domain.properties.schema import PropertySchema
from mainstay.control.domain.values import MAX_INTEGER, Properties

DIALECT = "https://json-schema.org/draft/2020-12/schema"
UUID_PATTERN = "^[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{12}$"
JSON_TYPES = {PropertyType.REFERENCE: "string", PropertyType.UUID: "string"}


def export_json_schema(schema: PropertySchema, title: str | None = None) -> Properties:
    exported: Properties = {"$schema": DIALECT}
    if title:
        exported["title"] = title
    if schema.members is None:
        return {**exported, "type": "object"}
    exported |= _object(schema.members)
    rules = _relations(schema, schema.members)
    return {**exported, "allOf": rules} if rules else exported


def _object(members: tuple[PropertyDeclaration, ...]) -> Properties:
    exported: Properties = {
        "type": "object",
        "properties": {member.name: _member(member) for member in members},
        "additionalProperties": False,
    }
    required = [member.name for member in members if _is_required(member)]
    return {**exported, "required": required} if required else exported


def _is_required(declared: PropertyDeclaration) -> bool:
    """Whether the user must send it at creation: not if it has a default or a generator, or others set it."""
    return declared.required and not _has_own_value(declared) and Actor.USER in declared.actors


def _has_own_value(declared: PropertyDeclaration) -> bool:
    return declared.default is not None or declared.generate is not None


def _member(declared: PropertyDeclaration) -> Properties:
    exported = _value(declared)
    if declared.label:
        exported = {"title": declared.label, **exported}
    if declared.default is not None and declared.secret is None:
        exported["default"] = declared.default
    if Actor.USER not in declared.actors:
        exported["readOnly"] = True
    if declared.secret is not None:
        exported["writeOnly"] = True
    if not _is_required(declared):
        return _or_null(exported)
    # Null means "not given"; only a schema without a type must exclude it.
    return exported if "type" in exported else {**exported, "not": {"type": "null"}}


def _value(declared: PropertyDeclaration) -> Properties:
    kind = declared.type
    exported: Properties = {} if kind is PropertyType.JSON else {"type": JSON_TYPES.get(kind, str(kind))}
    if kind in JSON_TYPES:
        exported |= {"format": "uuid", "pattern": UUID_PATTERN}
    if declared.members is not None:
        exported |= _object(declared.members)
    if declared.items is not None:
        exported["items"] = _value(declared.items)
    exported |= declared.keywords
    # An enumeration is narrower than any range.
    if kind is PropertyType.INTEGER and "enum" not in exported:
        exported |= _integer_range(exported)
    return exported


def _integer_range(exported: Properties) -> Properties:
    """The narrower of the validators' range and that of all integers."""
    least: Any = exported.get("minimum", -MAX_INTEGER)
    most: Any = exported.get("maximum", MAX_INTEGER)
    return {"minimum": max(least, -MAX_INTEGER), "maximum": min(most, MAX_INTEGER)}


def _or_null(exported: Properties) -> Properties:
    if "type" in exported:
        exported = {**exported, "type": [exported["type"], "null"]}
    return _enum_or_null(exported)


def _enum_or_null(exported: Properties) -> Properties:
    """Of the keywords of validators only `enum` excludes null."""
    if isinstance(values := exported.get("enum"), list):
        exported = {**exported, "enum": [*values, None]}
    if isinstance(also := exported.get("allOf"), list):
        exported = {**exported, "allOf": [_enum_or_null(each) for each in also]}
    return exported


def _relations(schema: PropertySchema, members: tuple[PropertyDeclaration, ...]) -> list[Properties]:
    """The schema validators that JSON Schema can express; the server checks the others."""
    scope = NamedProperties(members)
    provided = frozenset(declared.schema_path for declared in schema.every() if _has_own_value(declared))

    def present(path: str) -> Properties:
        named = scope.find(path)
        return {} if named is None or path in provided else _present(named.names)

    # Only top-level names: whether a nested property is set may depend on defaults of enclosing objects.
    return [
        comparison.rule.keywords(comparison.config, present)
        for comparison in schema.comparisons
        if comparison.rule.keywords is not None and not _names_nested(comparison.config, members)
    ]


def _names_nested(config: object, members: tuple[PropertyDeclaration, ...]) -> bool:
    names = {member.schema_path for member in members}
    paths = config.get("properties") if isinstance(config, dict) else None
    return not isinstance(paths, list) or not names.issuperset(paths)


def _present(names: tuple[str, ...]) -> Properties:
    (name,) = names
    return {"required": [name], "properties": {name: {"not": {"type": "null"}}}}
