"""Who set each value, and why: told for the values that a change has touched."""

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
    """By path. Members of objects count one by one; an array or a free-form value counts as one."""
    old = {value.path: value for value in values_in(schema, before)}
    return {
        value.path: _origin(value, accepted, actor)
        for value in values_in(schema, accepted.properties)
        if value.path not in old or not equal(old[value.path].value, value.value)
    }


def _origin(value: StoredValue, accepted: Accepted, actor: Actor) -> Origin:
    """What stands in an object that was made as a whole was made with it."""
    for path in (value.path, *value.around):
        if path in accepted.made:
            return Origin(Actor.SYSTEM, accepted.made[path])
    return Origin(actor, ValueSource.GIVEN)
