"""A property schema as rows of a table: one for each property, with its rules in words. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice

from mainstay.control.domain.properties.contract import Actor, PropertyType
from mainstay.control.domain.properties.declaration import PropertyDeclaration
from mainstay.control.domain.properties.schema import PropertyComparison, PropertySchema
from mainstay.control.web.forms.choices import enumerated, option_type, reference_types
from mainstay.control.web.forms.hints import count_limits, number_range, show_value

MAX_ROWS = 2000
DEEPEST = 6


@dataclass(frozen=True, slots=True)
class SchemaRow:
    name: str
    label: str
    depth: int
    type: str
    # "required", "cannot change"
    rules: tuple[str, ...]
    secret: bool
    default: str
    # Where the value comes from, if the user need not set it.
    source: str
    allowed: str
    pattern: str
    set_by: str


def schema_rows(schema: PropertySchema) -> list[SchemaRow]:
    return list(islice(_rows(schema.members or (), 0), MAX_ROWS))


def schema_rules(schema: PropertySchema) -> list[tuple[str, str]]:
    """(name, members) of each rule between properties."""
    return [(each.rule.name, _rule_words(each)) for each in schema.comparisons]


def _rows(members: tuple[PropertyDeclaration, ...], depth: int) -> Iterator[SchemaRow]:
    for declared in members:
        yield _row(declared, depth)
        inner = declared
        while inner.items is not None:
            inner = inner.items
        yield from _rows(inner.members or (), min(depth + 1, DEEPEST))


def _row(declared: PropertyDeclaration, depth: int) -> SchemaRow:
    rules = [
        *(["required"] if declared.required and not declared.agent_only else []),
        *(["cannot change"] if declared.immutable else []),
    ]
    is_shown = declared.default is not None and declared.secret is None
    pattern = declared.keywords.get("pattern")
    return SchemaRow(
        name=declared.name,
        label=declared.label or "",
        depth=depth,
        type=_type_words(declared),
        rules=tuple(rules),
        secret=declared.secret is not None,
        default=show_value(declared.default) if is_shown else "",
        source=_source(declared),
        allowed=", ".join(_allowed(declared)),
        pattern=pattern if isinstance(pattern, str) else "",
        set_by=_set_by(declared),
    )


def _type_words(declared: PropertyDeclaration) -> str:
    if declared.items is not None:
        return f"array of {_type_words(declared.items)}"
    return "reference" if declared.refers else str(declared.type)


def _source(declared: PropertyDeclaration) -> str:
    if declared.pool_type is not None:
        return f"from pool {declared.pool_type}"
    return "" if declared.generator is None else f"made: {declared.generator.name}"


def _allowed(declared: PropertyDeclaration) -> Iterator[str]:
    values = enumerated(declared)
    if values is not None:
        yield ", ".join(show_value(each) for each in values)
    if offered := option_type(declared):
        yield f"option of {offered}"
    if declared.refers:
        types = reference_types(declared)
        yield "any living service" if types is None else f"type {' or '.join(sorted(types))}"
    if declared.type in (PropertyType.INTEGER, PropertyType.NUMBER) and (limits := number_range(declared)):
        yield limits
    if limits := count_limits(declared):
        yield f"{limits} items"
    least, most = declared.keywords.get("minLength"), declared.keywords.get("maxLength")
    if least is not None or most is not None:
        yield f"{'' if least is None else f'{least} '}to {most} characters" if most else f"{least} characters or more"
    if declared.keywords.get("uniqueItems") is True:
        yield "no value twice"


def _set_by(declared: PropertyDeclaration) -> str:
    actors = [actor.value for actor in (Actor.USER, Actor.AGENT, Actor.SYSTEM) if actor in declared.actors]
    if actors == [Actor.USER.value, Actor.SYSTEM.value]:
        actors = [Actor.USER.value]
    states = [each.states for each in declared.permissions if each.states is not None]
    return ", ".join(actors) + "".join(f", in {' or '.join(each)}" for each in states)


def _rule_words(comparison: PropertyComparison) -> str:
    config = comparison.config
    if comparison.rule.name == "compare":
        return f"{config.get('left')} {config.get('operator')} {config.get('right')}"
    if comparison.rule.name == "requiredIf":
        required = config.get("required")
        names = ", ".join(map(str, required)) if isinstance(required, list) else str(required)
        value = config.get("value")
        when = "" if value is None else f" is {show_value(value)}"
        return f"{config.get('property')}{when} then {names}"
    named = config.get("properties")
    return ", ".join(map(str, named)) if isinstance(named, list) else show_value(dict(config))
