"""The origin of each value that a change has set: the actor and the source."""

from __future__ import annotations

from dataclasses import dataclass

from mainstay.control.domain.properties.contract import Actor
from mainstay.control.domain.properties.engine import Accepted
from mainstay.control.domain.properties.evaluation import ValueSource
from mainstay.control.domain.properties.schema import PropertySchema
from mainstay.control.domain.properties.traversal import StoredValue, values_in
from mainstay.control.domain.values import Properties, equal


@dataclass(frozen=True, slots=True)
class Origin:
    actor: Actor
    how: ValueSource


def provenance(schema: PropertySchema, before: Properties, accepted: Accepted, actor: Actor) -> dict[str, Origin]:
    """By path. Members of objects have their own origin; an array or a free-form value has one."""
    old = {value.path: value for value in values_in(schema, before)}
    return {
        value.path: _origin(value, accepted, actor)
        for value in values_in(schema, accepted.properties)
        if value.path not in old or not equal(old[value.path].value, value.value)
    }


def _origin(value: StoredValue, accepted: Accepted, actor: Actor) -> Origin:
    """Values in an object that was generated or defaulted as a whole have its origin."""
    for path in (value.path, *value.enclosing):
        if path in accepted.sources:
            return Origin(Actor.SYSTEM, accepted.sources[path])
    return Origin(actor, ValueSource.GIVEN)
