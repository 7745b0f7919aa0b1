"""Reads a service type as the server shows it, for people: its properties and its lifecycle. Needs no server parts.

Checks nothing: what the server keeps has been checked when it was written."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from typing import Any

    Definition = Mapping[str, Any]
    Members = Mapping[str, Definition]

OLD_SOURCES = {"input": "user", "agent": "agent", "system": "system"}
LIMITS = {"min": "≥ ", "max": "≤ ", "minLength": "length ≥ ", "maxLength": "length ≤ "}
LIMITS |= {"minItems": "items ≥ ", "maxItems": "items ≤ ", "pattern": "matches ", "serviceOption": "option "}
SECRET = "(secret)"  # noqa: S105 (what is shown instead of one)


def members_of(service_type: Mapping[str, Any]) -> Members | None:
    """The properties by name; None if the type takes any."""
    schema = service_type.get("propertySchema")
    if schema is None:
        return None
    keys = {key for key, value in schema.items() if value is not None}
    inner = schema.get("properties")
    wrapped = keys <= {"properties", "validators"} and not (isinstance(inner, dict) and _is_text(inner.get("type")))
    found = (inner or {}) if wrapped else schema
    return {name: definition for name, definition in found.items() if isinstance(definition, dict)}


def _is_text(value: object) -> bool:
    return isinstance(value, str)


def _inner_members(definition: Definition) -> Members:
    """What an object, or each object of a list, is made of."""
    return definition.get("properties") or (definition.get("items") or {}).get("properties") or {}


def walk(members: Members, outer: str = "") -> Iterator[tuple[str, Definition]]:
    """Every property with its path; what is in the objects of a list stands below `name[]`."""
    for name, definition in members.items():
        path = f"{outer}{name}"
        yield path, definition
        inside = "[]." if definition.get("items") else "."
        yield from walk(_inner_members(definition), path + inside)


def find_definition(members: Members | None, path: list[str]) -> Definition | None:
    found: Definition | None = None
    for name in path:
        found = (members or {}).get(name)
        if found is None:
            return None
        members = _inner_members(found)
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


def made_by(definition: Definition) -> str:
    """What the value is when nobody gives one; empty if nothing makes it."""
    from mainstay.cli.views.tables import plain

    if definition.get("default") is not None:
        return SECRET if is_secret(definition) else plain(definition["default"])
    pool = definition.get("servicePoolType")
    generator = definition.get("generator") or {}
    if generator.get("type") == "pool":
        pool = (generator.get("config") or {}).get("poolType")
    if pool:
        return f"from pool {pool}"
    return f"made: {generator['type']}" if generator else ""


def allowed(definition: Definition) -> str:
    from mainstay.cli.views.tables import plain

    said = []
    for validator in definition.get("validators") or ():
        kind, config = validator.get("type"), validator.get("config") or validator
        if kind == "enum":
            said.append(" | ".join(plain(value) for value in config.get("values") or ()))
        elif kind in LIMITS:
            said.append(LIMITS[kind] + plain(config.get("pattern") if kind == "pattern" else config.get("value")))
        else:
            said.append(str(kind))
    return ", ".join(said)


def allowed_values(definition: Definition) -> list[str]:
    """The values of an enum; empty if there is none."""
    from mainstay.cli.views.tables import plain

    if definition.get("type") == "boolean":
        return ["true", "false"]
    validators = definition.get("validators") or ()
    enums = (each.get("config") or each for each in validators if each.get("type") == "enum")
    return [plain(value) for config in enums for value in config.get("values") or ()]


def may_change(definition: Definition) -> str:
    """When the value may be changed; empty if always."""
    if definition.get("immutable") or definition.get("updatable") == "never":
        return "once"
    states = definition.get("updatableIn") if definition.get("updatable") == "statuses" else None
    for authorizer in definition.get("authorizers") or ():
        if authorizer.get("type") == "state":
            states = (authorizer.get("config") or authorizer).get("allowedStates")
    return f"in {', '.join(states)}" if states else ""


def conceal(properties: Mapping[str, Any], members: Members | None) -> dict[str, Any]:
    """The properties without the references that stand for secrets."""
    return {name: conceal_value(value, (members or {}).get(name)) for name, value in properties.items()}


def conceal_value(value: Any, definition: Definition | None) -> Any:
    if definition is None or value is None:
        return value
    if is_secret(definition):
        return SECRET
    if isinstance(value, dict):
        return conceal(value, _inner_members(definition))
    if isinstance(value, list):
        return [conceal_value(each, definition.get("items")) for each in value]
    return value


def lifecycle_of(service_type: Mapping[str, Any]) -> Mapping[str, Any]:
    from mainstay.control.domain.lifecycle.default import DEFAULT_LIFECYCLE_SCHEMA

    return service_type.get("lifecycleSchema") or DEFAULT_LIFECYCLE_SCHEMA


def state_names(lifecycle: Mapping[str, Any]) -> list[str]:
    return [str(each["name"]) for each in lifecycle.get("states") or ()]


def terminal_states(service_type: Mapping[str, Any]) -> frozenset[str]:
    return frozenset(lifecycle_of(service_type).get("terminalStates") or ())
