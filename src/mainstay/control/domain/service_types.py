"""A service type: its two schemas are checked together, because properties name states of the lifecycle."""

from __future__ import annotations

from dataclasses import dataclass, replace

from mainstay.control.domain.faults import PathFault, below
from mainstay.control.domain.lifecycle.default import DEFAULT_LIFECYCLE_SCHEMA
from mainstay.control.domain.lifecycle.graph import reachable
from mainstay.control.domain.lifecycle.parse import parse_lifecycle
from mainstay.control.domain.lifecycle.report import report_lifecycle
from mainstay.control.domain.lifecycle.schema import Lifecycle
from mainstay.control.domain.lint import Finding
from mainstay.control.domain.properties.contract import Rulebook
from mainstay.control.domain.properties.parse import parse_property_schema
from mainstay.control.domain.properties.report import report_properties
from mainstay.control.domain.properties.schema import PropertySchema
from mainstay.control.domain.refusals import InvalidDefinition

# The source is None: the service type has no lifecycle document of its own.
DEFAULT_LIFECYCLE = replace(parse_lifecycle(DEFAULT_LIFECYCLE_SCHEMA), source=None)


@dataclass(frozen=True, slots=True)
class ServiceTypeDefinition:
    properties: PropertySchema
    lifecycle: Lifecycle


def parse_service_type(
    property_schema: object, lifecycle_schema: object, rulebook: Rulebook
) -> ServiceTypeDefinition:
    """A schema of None means free-form properties or the built-in lifecycle."""
    faults: list[PathFault] = []
    lifecycle = _lifecycle(lifecycle_schema, faults)
    # The states in authorizers cannot be checked against an invalid lifecycle.
    states = None if lifecycle is None else frozenset(lifecycle.states)
    try:
        properties = parse_property_schema(property_schema, rulebook, states=states)
    except InvalidDefinition as refusal:
        raise InvalidDefinition((*refusal.faults, *faults)) from None
    if lifecycle is None:
        raise InvalidDefinition(faults)
    return ServiceTypeDefinition(properties, lifecycle)


def _lifecycle(document: object, faults: list[PathFault]) -> Lifecycle | None:
    if document is None:
        return DEFAULT_LIFECYCLE
    try:
        return parse_lifecycle(document)
    except InvalidDefinition as refusal:
        faults += below("lifecycleSchema", refusal.faults)
        return None


def report_service_type(definition: ServiceTypeDefinition) -> tuple[Finding, ...]:
    return (
        *report_lifecycle(definition.lifecycle),
        *report_properties(definition.properties, reachable(definition.lifecycle)),
    )
