"""Checks stored properties against another schema, before a service type changes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from mainstay.control.domain.faults import PathFault, locate
from mainstay.control.domain.properties.compile import MISSING, UNKNOWN
from mainstay.control.domain.properties.contract import ASSUMED, EvaluationContext, Operation
from mainstay.control.domain.properties.declaration import PropertyDeclaration
from mainstay.control.domain.properties.evaluation import Evaluation
from mainstay.control.domain.properties.schema import PropertySchema
from mainstay.control.domain.properties.update import find_own_references
from mainstay.control.domain.values import Properties


def misfits(schema: PropertySchema, properties: Properties, context: EvaluationContext) -> tuple[PathFault, ...]:
    """Faults of types, required properties and validators that need no lookup. Authorizers are not applied.

    A property that the schema no longer declares is not a fault: it stays until it is removed."""
    if schema.members is None:
        return ()
    # Options of the provider are not checked, so any provider id will do.
    update_context = replace(context, operation=Operation.UPDATE, in_create_chain=False, dry=True, provider_id="")
    evaluation = Evaluation(update_context, ASSUMED)
    evaluation.actor = None
    evaluation.own_references = find_own_references(schema, properties)
    schema.root.admit(properties, evaluation, "")
    found = [fault for fault in evaluation.faults if fault.message != UNKNOWN]
    return (*found, *_missing(schema.members, properties, ""))


def _missing(members: tuple[PropertyDeclaration, ...], properties: Properties, path: str) -> Iterator[PathFault]:
    """A default applies only at creation, so a missing required property would be a fault at the next update."""
    for member in members:
        value = properties.get(member.name)
        where = locate(path, member.name)
        if value is None and member.required and member.default is not None:
            yield PathFault(where, MISSING)
        elif member.members is not None and isinstance(value, dict):
            yield from _missing(member.members, value, where)
