"""Reads properties and lifecycle from a service type document of the API. Needs no server packages.

Validates nothing: the server validated the document when it stored it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from mainstay.cli.views.tables import format_value

Definition = Mapping[str, Any]
Members = Mapping[str, Definition]


OLD_SOURCES = {"input": "user", "agent": "agent", "system": "system"}
LIMITS = {"min": "≥ ", "max": "≤ ", "minLength": "length ≥ ", "maxLength": "length ≤ "}
LIMITS |= {"minItems": "items ≥ ", "maxItems": "items ≤ ", "pattern": "matches ", "serviceOption": "option "}
SECRET = "(secret)"  # noqa: S105 (a placeholder)


def members_of(service_type: Mapping[str, Any]) -> Members | None:
    """The properties by name; None if the type accepts any properties."""
    from mainstay.agent.blueprint import schema_members

    schema = service_type.get("propertySchema")
    if schema is None:
        return None
    given = {key: value for key, value in schema.items() if value is not None}
    return {name: each for name, each in schema_members(given).items() if isinstance(each, dict)}


def inner_members(definition: Definition) -> Members:
    """The properties of an object, or of the objects of a list."""
    return definition.get("properties") or (definition.get("items") or {}).get("properties") or {}


def walk_properties(members: Members, outer: str = "") -> Iterator[tuple[str, Definition]]:
    """Yields every property with its path. Properties of list items have paths like `name[].inner`."""
    for name, definition in members.items():
        path = f"{outer}{name}"
        yield path, definition
        inside = "[]." if definition.get("items") else "."
        yield from walk_properties(inner_members(definition), path + inside)


def find_definition(members: Members | None, path: list[str]) -> Definition | None:
    found: Definition | None = None
    for name in path:
        found = (members or {}).get(name)
        if found is None:
            return None
        members = inner_members(found)
    return found


def type_of(definition: Definition) -> str:
    kind = str(definition.get("type") or "json")
    if kind == "array" and definition.get("items"):
        return f"array of {type_of(definition['items'])}"
    return kind


def is_reference(definition: Definition) -> bool:
    return definition.get("type") == "reference" or any(
        each.get("type") == "serviceReference" for each in definition.get("validators") or ()
    )


def is_secret(definition: Definition) -> bool:
    return definition.get("secret") is not None


def set_by(definition: Definition) -> str:
    for authorizer in definition.get("authorizers") or ():
        if authorizer.get("type") == "actor":
            return ", ".join((authorizer.get("config") or authorizer).get("actors") or ())
    if definition.get("servicePoolType"):
        return "system"
    return OLD_SOURCES.get(str(definition.get("source")), "user")


def default_text(definition: Definition) -> str:
    """The source of a value that the order omits; empty if there is none."""
    if definition.get("default") is not None:
        return SECRET if is_secret(definition) else format_value(definition["default"])
    pool = definition.get("servicePoolType")
    generator = definition.get("generator") or {}
    if generator.get("type") == "pool":
        pool = (generator.get("config") or {}).get("poolType")
    if pool:
        return f"from pool {pool}"
    return f"generated: {generator['type']}" if generator else ""


def allowed_text(definition: Definition) -> str:
    parts = []
    for validator in definition.get("validators") or ():
        kind, config = validator.get("type"), validator.get("config") or validator
        if kind == "enum":
            parts.append(" | ".join(format_value(value) for value in config.get("values") or ()))
        elif kind in LIMITS:
            parts.append(
                LIMITS[kind] + format_value(config.get("pattern") if kind == "pattern" else config.get("value"))
            )
        else:
            parts.append(str(kind))
    return ", ".join(parts)


def allowed_values(definition: Definition) -> list[str]:
    """The values of an enum or a boolean; empty for other properties."""
    if definition.get("type") == "boolean":
        return ["true", "false"]
    validators = definition.get("validators") or ()
    enums = (each.get("config") or each for each in validators if each.get("type") == "enum")
    return [format_value(value) for config in enums for value in config.get("values") or ()]


def updatable_text(definition: Definition) -> str:
    """When the value can be updated."""
    if definition.get("immutable") or definition.get("updatable") == "never":
        return "never"
    states = definition.get("updatableIn") if definition.get("updatable") == "statuses" else None
    for authorizer in definition.get("authorizers") or ():
        if authorizer.get("type") == "state":
            states = (authorizer.get("config") or authorizer).get("allowedStates")
    return f"in {', '.join(states)}" if states else "always"


def hide_secrets(properties: Mapping[str, Any], members: Members | None) -> dict[str, Any]:
    """Replaces the vault references of secrets by a placeholder."""
    return {name: hide_secret_value(value, (members or {}).get(name)) for name, value in properties.items()}


def hide_secret_value(value: Any, definition: Definition | None) -> Any:
    if definition is None or value is None:
        return value
    if is_secret(definition):
        return SECRET
    if isinstance(value, dict):
        return hide_secrets(value, inner_members(definition))
    if isinstance(value, list):
        return [hide_secret_value(each, definition.get("items")) for each in value]
    return value


def lifecycle_of(service_type: Mapping[str, Any]) -> Mapping[str, Any]:
    from mainstay.control.domain.lifecycle.default import DEFAULT_LIFECYCLE_SCHEMA

    return service_type.get("lifecycleSchema") or DEFAULT_LIFECYCLE_SCHEMA


def state_names(lifecycle: Mapping[str, Any]) -> list[str]:
    return [str(each["name"]) for each in lifecycle.get("states") or ()]


def terminal_states(service_type: Mapping[str, Any]) -> frozenset[str]:
    return frozenset(lifecycle_of(service_type).get("terminalStates") or ())
