"""Findings about a property schema: properties that can never be set, unreachable states, secrets with a default."""

from __future__ import annotations

from collections.abc import Iterator

from mainstay.control.domain.lint import Finding
from mainstay.control.domain.properties.contract import Actor
from mainstay.control.domain.properties.declaration import PropertyDeclaration
from mainstay.control.domain.properties.schema import PropertySchema

# The system sends no requests; it sets values only through generators and defaults.
REQUESTERS = frozenset({Actor.USER, Actor.AGENT})


def report_properties(schema: PropertySchema, reachable_states: frozenset[str]) -> tuple[Finding, ...]:
    findings: list[Finding] = []
    for member in schema.members or ():
        findings += _unsettable(member, REQUESTERS)
    for declared in schema.every():
        findings += _unreachable_states(declared, reachable_states)
        findings += _open_secrets(declared)
    return tuple(findings)


def _unsettable(declared: PropertyDeclaration, outer: frozenset[Actor]) -> Iterator[Finding]:
    """A value must pass the rules of every enclosing object."""
    open_to = outer & declared.actors
    if declared.default is not None:
        return
    if declared.generate is None and not open_to:
        yield Finding(
            "unsettable-property",
            f"property {declared.schema_path}",
            "it can never be set: no user or agent may set it, and it has no default and no generator",
        )
        return
    for inner in (*(declared.members or ()), *((declared.items,) if declared.items is not None else ())):
        yield from _unsettable(inner, open_to)


def _unreachable_states(declared: PropertyDeclaration, reachable_states: frozenset[str]) -> Iterator[Finding]:
    for permission in declared.permissions:
        for state in permission.states or ():
            if state not in reachable_states:
                yield Finding(
                    "unreachable-allowed-state",
                    f"property {declared.schema_path}",
                    f"it may be updated in state '{state}', which no service can reach",
                )


def _open_secrets(declared: PropertyDeclaration) -> Iterator[Finding]:
    if declared.secret is not None and declared.default is not None:
        yield Finding(
            "open-secret",
            f"property {declared.schema_path}",
            "every caller that can read the service type can read the default of this secret",
        )
