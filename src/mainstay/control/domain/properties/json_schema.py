"""Says a property schema again as JSON Schema 2020-12, as far as that language goes: what a user may send at creation.

Null means "not given", so an optional property also takes null. Who may set a property, references, options and pools
are not for JSON Schema to say; such properties are marked `readOnly` or described by their type alone."""

from __future__ import annotations

from mainstay.control.domain.properties.contract import Actor, PropertyType
from mainstay.control.domain.properties.declaration import NamedProperties, PropertyDeclaration
from mainstay.control.domain.properties.schema import PropertySchema
from mainstay.control.domain.values import Properties

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
    required = [member.name for member in members if _is_demanded(member)]
    return {**exported, "required": required} if required else exported


def _is_demanded(declared: PropertyDeclaration) -> bool:
    """At creation, of the user: what is made by the schema, or set by others, need not be sent."""
    return declared.required and not _is_made(declared) and Actor.USER in declared.actors


def _is_made(declared: PropertyDeclaration) -> bool:
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
    if not _is_demanded(declared):
        return _or_null(exported)
    # Null would be "not given", which only a type that takes everything has to be told.
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
    return exported | declared.keywords


def _or_null(exported: Properties) -> Properties:
    if "type" in exported:
        exported = {**exported, "type": [exported["type"], "null"]}
    return _enum_or_null(exported)


def _enum_or_null(exported: Properties) -> Properties:
    """Of the keywords that validators speak of, only `enum` says anything about null."""
    if isinstance(values := exported.get("enum"), list):
        exported = {**exported, "enum": [*values, None]}
    if isinstance(also := exported.get("allOf"), list):
        exported = {**exported, "allOf": [_enum_or_null(each) for each in also]}
    return exported


def _relations(schema: PropertySchema, members: tuple[PropertyDeclaration, ...]) -> list[Properties]:
    """The schema validators that can be said; the others are left to the server."""
    scope = NamedProperties(members)
    made = frozenset(declared.schema_path for declared in schema.every() if _is_made(declared))

    def present(path: str) -> Properties:
        named = scope.find(path)
        return {} if named is None or path in made else _present(named.names)

    # Whether something inside an object is set can hang on defaults on the way; only plain names are said.
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
