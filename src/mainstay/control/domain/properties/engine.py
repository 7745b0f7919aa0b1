"""Decides what becomes of the properties that a request gives: accepted as a whole, or rejected with every fault.

Deciding may take two passes. The first collects all that must be known about the outside and returns `Questions`;
the caller answers them in one go and calls again. A request that asks nothing is decided in the first pass."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import NamedTuple

from mainstay.control.domain.faults import PathFault
from mainstay.control.domain.properties.contract import Answers, EvaluationContext, Operation, Questions, Unknown
from mainstay.control.domain.properties.evaluation import Evaluation, PoolTake, SecretSlot, ValueSource
from mainstay.control.domain.properties.schema import PropertySchema
from mainstay.control.domain.properties.traversal import StoredReference, pool_values_in, references_in, secrets_in
from mainstay.control.domain.properties.update import find_own_references, revise_root
from mainstay.control.domain.values import Properties, comparable, equal, json_problem, type_name


class Accepted(NamedTuple):
    """What the service's properties become, and what must happen in the same transaction for that to be true."""

    # A `SecretSlot` stands wherever a value must be sealed first; `fill` puts the references there.
    properties: Properties
    changed: bool
    secrets: tuple[SecretSlot, ...] = ()
    # To be deleted once the change has succeeded.
    retired_references: tuple[str, ...] = ()
    pool_takes: tuple[PoolTake, ...] = ()
    pool_releases: tuple[PoolTake, ...] = ()
    # Every service that the properties refer to, not only the new ones.
    references: tuple[StoredReference, ...] = ()
    # The paths whose value nobody gave.
    made: Mapping[str, ValueSource] = MappingProxyType({})


class Rejected(NamedTuple):
    faults: tuple[PathFault, ...]


Outcome = Accepted | Rejected | Questions


def decide(
    schema: PropertySchema,
    given: object,
    situation: EvaluationContext,
    *,
    stored: Properties | None = None,
    answers: Answers | None = None,
) -> Outcome:
    """`given` is what the request brings, `stored` what the service has; a creation has nothing stored."""
    if type(given) is not dict:
        return Rejected((PathFault("", f"expected object, got {type_name(given)}"),))
    run = Evaluation(situation, answers)
    before = stored or {}
    if schema.members is None:
        properties = _merge_free_form(given, before, run)
    elif situation.operation is Operation.CREATE:
        properties = schema.root.admit(given, run, "")
    else:
        if json_problem(given) is not None:
            given = {name: comparable(value) for name, value in given.items()}
        run.own_references = find_own_references(schema, before)
        properties = revise_root(schema.root, given, before, run)
    if run.asked is not None:
        return run.asked.questions()
    for comparison in schema.comparisons:
        run.faults += comparison.compare(properties)
    if run.faults:
        return Rejected(tuple(run.faults))
    return _accept(schema, properties, before, run)


def _accept(schema: PropertySchema, properties: Properties, before: Properties, run: Evaluation) -> Accepted:
    for container, name in run.counted:
        if isinstance(container.get(name), Unknown):
            del container[name]
    return Accepted(
        properties,
        run.situation.operation is Operation.CREATE or bool(run.secrets) or not equal(properties, before),
        tuple(run.secrets),
        _retired(schema, properties, before) if before and schema.has_secrets else (),
        tuple(run.takes),
        _released(schema, properties, before) if before and schema.has_pools else (),
        references_in(schema, properties) if schema.has_references else (),
        run.made,
    )


def _retired(schema: PropertySchema, properties: Properties, before: Properties) -> tuple[str, ...]:
    kept = {reference for _, reference in secrets_in(schema, properties)}
    return tuple(reference for _, reference in secrets_in(schema, before) if reference not in kept)


def _released(schema: PropertySchema, properties: Properties, before: Properties) -> tuple[PoolTake, ...]:
    now = {take.path: take.value for take in pool_values_in(schema, properties)}
    return tuple(
        take
        for take in pool_values_in(schema, before)
        if take.path not in now or not equal(now[take.path], take.value)
    )


def _merge_free_form(given: Properties, before: Properties, run: Evaluation) -> Properties:
    """Without a schema every name is an optional property of any JSON value, open to everybody."""
    problem = json_problem(given)
    if problem is not None:
        run.refuse("", f"expected object, got {problem}")
        return before
    merged = {**before, **given}
    return {name: value for name, value in merged.items() if value is not None}


def fill(properties: Properties, references: Mapping[str, str]) -> Properties:
    """The properties with the vault's reference (by path) in place of each value that was sealed."""
    return {name: _filled(value, references) for name, value in properties.items()}


def _filled(value: object, references: Mapping[str, str]) -> object:
    if isinstance(value, SecretSlot):
        return references[value.path]
    if isinstance(value, dict):
        return fill(value, references)
    if isinstance(value, list):
        return [_filled(item, references) for item in value]
    return value
