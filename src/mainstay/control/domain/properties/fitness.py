"""Would properties that are already stored fit another schema? Asked before a service type is changed under its services."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from mainstay.control.domain.faults import Fault, locate
from mainstay.control.domain.properties.compile import MISSING, UNKNOWN
from mainstay.control.domain.properties.contract import ASSUMED, Operation, Situation
from mainstay.control.domain.properties.declared import Property
from mainstay.control.domain.properties.revise import find_own_references
from mainstay.control.domain.properties.run import Run
from mainstay.control.domain.properties.schema import PropertySchema
from mainstay.control.domain.values import Properties


def misfits(schema: PropertySchema, properties: Properties, situation: Situation) -> tuple[Fault, ...]:
    """Faults of type, of required properties and of the validators that need nobody else; who set a value does not matter.

    A property that the schema no longer knows is no fault: it stays until somebody removes it."""
    if schema.members is None:
        return ()
    # Whatever a provider offers is its own affair, so any provider will do.
    asked_in = replace(situation, operation=Operation.UPDATE, create_run=False, dry=True, provider_id="")
    run = Run(asked_in, ASSUMED)
    run.actor = None
    run.own_references = find_own_references(schema, properties)
    schema.root.admit(properties, run, "")
    found = [fault for fault in run.faults if fault.message != UNKNOWN]
    return (*found, *_missing(schema.members, properties, ""))


def _missing(members: tuple[Property, ...], properties: Properties, path: str) -> Iterator[Fault]:
    """A default fills in at creation only, so a required property that is not there will be missed at the next update."""
    for member in members:
        value = properties.get(member.name)
        where = locate(path, member.name)
        if value is None and member.required and member.default is not None:
            yield Fault(where, MISSING)
        elif member.members is not None and isinstance(value, dict):
            yield from _missing(member.members, value, where)
