"""Would properties that are already stored fit another schema? Asked before a service type is changed under its services."""

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


def misfits(schema: PropertySchema, properties: Properties, situation: EvaluationContext) -> tuple[PathFault, ...]:
    """Faults of type, of required properties and of the validators that need nobody else; who set a value does not matter.

    A property that the schema no longer knows is no fault: it stays until somebody removes it."""
    if schema.members is None:
        return ()
    # Whatever a provider offers is its own affair, so any provider will do.
    asked_in = replace(situation, operation=Operation.UPDATE, create_run=False, dry=True, provider_id="")
    run = Evaluation(asked_in, ASSUMED)
    run.actor = None
    run.own_references = find_own_references(schema, properties)
    schema.root.admit(properties, run, "")
    found = [fault for fault in run.faults if fault.message != UNKNOWN]
    return (*found, *_missing(schema.members, properties, ""))


def _missing(members: tuple[PropertyDeclaration, ...], properties: Properties, path: str) -> Iterator[PathFault]:
    """A default fills in at creation only, so a required property that is not there will be missed at the next update."""
    for member in members:
        value = properties.get(member.name)
        where = locate(path, member.name)
        if value is None and member.required and member.default is not None:
            yield PathFault(where, MISSING)
        elif member.members is not None and isinstance(value, dict):
            yield from _missing(member.members, value, where)
