"""The sentences below a field: what its rules require, and where a value comes from that the user does not set."""

from __future__ import annotations

import json
from collections.abc import Iterator

from mainstay.control.domain.properties.contract import Actor, PropertyType, SecretKind
from mainstay.control.domain.properties.declaration import PropertyDeclaration
from mainstay.control.domain.properties.schema import PropertyComparison
from mainstay.control.web.forms.choices import enumerated, option_type, reference_types
from mainstay.control.web.forms.form_state import GROUP_RULES, FormPlace, PlaceAccess

MAX_SHOWN = 200
RELATIONS = {
    "<": ("less than", "greater than"),
    "<=": ("at most", "at least"),
    ">": ("greater than", "less than"),
    ">=": ("at least", "at most"),
    "==": ("equal to", "equal to"),
    "!=": ("different from", "different from"),
}


def hints_of(place: FormPlace) -> tuple[str, ...]:
    """Rows of an array have none: their rules are the same for all rows, and the array names them once."""
    if place.in_row:
        return ()
    if place.access is PlaceAccess.FIXED:
        return (_why_fixed(place),)
    if place.access is PlaceAccess.FILLED:
        return ()
    return tuple(_hints(place))


def _hints(place: FormPlace) -> Iterator[str]:
    declared = place.declared
    if declared.secret is not None:
        yield from _secret_hints(place)
    elif declared.default is not None and place.new:
        yield f"Default {show_value(declared.default)}"
    if declared.generate is not None:
        yield f"Leave it empty. {describe_source(place)}"
    yield from _rule_hints(declared)
    if declared.items is not None:
        yield from (f"Each: {hint[:1].lower()}{hint[1:]}" for hint in _rule_hints(declared.items))
    yield from _relations(place)
    if declared.type is PropertyType.JSON and declared.secret is None:
        yield "JSON, kept as it is"
    if declared.immutable:
        yield "Cannot be changed later"
    for permission in declared.permissions:
        if permission.states is not None and place.scope.creating:
            yield f"Can be changed later only in {_either(permission.states)}"


def _why_fixed(place: FormPlace) -> str:
    state = place.scope.state
    for permission in place.declared.permissions:
        if permission.states is not None and state not in permission.states:
            return f"Can be changed only in {_either(permission.states)}, not in {state}"
    return "Cannot be changed"


def _either(states: tuple[str, ...]) -> str:
    return states[0] if len(states) == 1 else f"{', '.join(states[:-1])} or {states[-1]}"


def _secret_hints(place: FormPlace) -> Iterator[str]:
    if place.before is not None:
        yield "Leave it empty to keep the stored value"
    if place.declared.secret is SecretKind.EPHEMERAL:
        yield "Sealed when it arrives, deleted after its use"
    else:
        yield "Sealed when it arrives and never shown again"
    if place.declared.type is not PropertyType.STRING:
        yield {PropertyType.BOOLEAN: "true or false", PropertyType.JSON: "JSON"}.get(place.declared.type, "A number")


def _rule_hints(declared: PropertyDeclaration) -> Iterator[str]:
    keywords = declared.keywords
    characters = _between(keywords.get("minLength"), keywords.get("maxLength"))
    if characters:
        yield f"{characters[:1].upper()}{characters[1:]} characters"
    if isinstance(keywords.get("pattern"), str) and enumerated(declared) is None:
        yield f"Must match {_short(str(keywords['pattern']))}"
    if keywords.get("uniqueItems") is True:
        yield "No value twice"
    if (offered := option_type(declared)) is not None:
        yield f"An option of type {offered} that the provider offers"
    if declared.refers:
        types = reference_types(declared)
        yield "A living service" if types is None else f"A living service of type {_either(tuple(sorted(types)))}"


def number_range(declared: PropertyDeclaration) -> str:
    return _between(declared.keywords.get("minimum"), declared.keywords.get("maximum"))


def count_limits(declared: PropertyDeclaration) -> str:
    return _between(declared.keywords.get("minItems"), declared.keywords.get("maxItems"))


def _between(least: object, most: object) -> str:
    if least is None and most is None:
        return ""
    if most is None:
        return f"at least {show_value(least)}"
    return f"at most {show_value(most)}" if least is None else f"{show_value(least)} to {show_value(most)}"


def _relations(place: FormPlace) -> Iterator[str]:
    for comparison in place.scope.schema.comparisons:
        if comparison.rule.name not in GROUP_RULES or not place.is_grouped:
            yield from _relation(comparison, place.declared.schema_path)


def _relation(comparison: PropertyComparison, path: str) -> Iterator[str]:
    config = comparison.config
    named = config.get("properties")
    others = [str(each) for each in named if each != path] if isinstance(named, list) and path in named else []
    if comparison.rule.name == "compare":
        words, reverse = RELATIONS[str(config.get("operator"))]
        if config.get("left") == path:
            yield f"Must be {words} {config.get('right')}"
        elif config.get("right") == path:
            yield f"Must be {reverse} {config.get('left')}"
    elif comparison.rule.name == "requiredIf":
        required = config.get("required")
        if isinstance(required, list) and path in required:
            value = config.get("value")
            when = "is set" if value is None else f"is {show_value(value)}"
            yield f"Required when {config.get('property')} {when}"
    elif comparison.rule.name == "uniqueValues" and others:
        yield f"Must differ from {', '.join(others)}"
    elif comparison.rule.name in GROUP_RULES and others:
        yield f"Excludes {', '.join(others)}"


def describe_source(place: FormPlace) -> str:
    """Where a value comes from that the user need not set."""
    declared = place.declared
    if declared.pool_type is not None:
        return f"Next free of {declared.pool_type}"
    if declared.generator is not None:
        return _generated(declared.generator.name, declared.generator.config.get("prefix"))
    if declared.default is not None and declared.secret is None:
        return f"Default {show_value(declared.default)}"
    return "Reported by the agent" if Actor.AGENT in declared.actors else "Set by the system"


def _generated(name: str, prefix: object) -> str:
    known = {
        "hostname": f"Made: {prefix}- and the id of the service",
        "uuid": "Made: a random uuid",
        "timestamp": "Made: the time of the order",
    }
    return known.get(name, f"Made by the generator {name}")


def source_icon(place: FormPlace) -> str:
    """The name of the icon for the source of a value."""
    if place.access is PlaceAccess.FIXED:
        return "lock"
    if place.declared.pool_type is not None:
        return "pool"
    return "info" if place.declared.generator is not None or Actor.AGENT not in place.declared.actors else "agent"


def show_value(value: object) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return _short(value if isinstance(value, str) else json.dumps(value, ensure_ascii=False))


def _short(text: str) -> str:
    return text if len(text) <= MAX_SHOWN else f"{text[:MAX_SHOWN]}…"
