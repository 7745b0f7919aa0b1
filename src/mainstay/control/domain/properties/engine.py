"""Decides about the properties of a request: accepted as a whole, or rejected with all faults.

A decision may take two passes. The first pass collects all lookups and returns `Questions`; the caller answers them
at once and calls again. A request without questions is decided in the first pass."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import NamedTuple

from mainstay.control.domain.faults import PathFault
from mainstay.control.domain.properties.compile import refuse_references
from mainstay.control.domain.properties.contract import Answers, EvaluationContext, Operation, Questions, Unknown
from mainstay.control.domain.properties.evaluation import Evaluation, PoolTake, SecretSlot, ValueSource
from mainstay.control.domain.properties.schema import PropertySchema
from mainstay.control.domain.properties.traversal import SecretPlace, pool_values_in, secrets_in
from mainstay.control.domain.properties.update import find_own_references, revise_root
from mainstay.control.domain.values import Properties, comparable, equal, json_problem, type_name


class Accepted(NamedTuple):
    """The new properties of the service, and what the caller must do in the same transaction."""

    # Contains a `SecretSlot` for each value to be sealed; `fill` replaces it by the reference.
    properties: Properties
    changed: bool
    secrets: tuple[SecretSlot, ...] = ()
    # To be deleted after the change has succeeded.
    retired_secrets: tuple[SecretPlace, ...] = ()
    pool_takes: tuple[PoolTake, ...] = ()
    pool_releases: tuple[PoolTake, ...] = ()
    # The source of each value that was not given, by path.
    sources: Mapping[str, ValueSource] = MappingProxyType({})


class Rejected(NamedTuple):
    faults: tuple[PathFault, ...]


Outcome = Accepted | Rejected | Questions


def decide(
    schema: PropertySchema,
    given: object,
    context: EvaluationContext,
    *,
    stored: Properties | None = None,
    answers: Answers | None = None,
) -> Outcome:
    """`given` are the properties of the request, `stored` those of the service. `stored` None: a creation."""
    if type(given) is not dict:
        return Rejected((PathFault("", f"expected object, got {type_name(given)}"),))
    evaluation = Evaluation(context, answers)
    before = stored or {}
    if schema.members is None:
        properties = _merge_free_form(given, before, evaluation)
    elif context.operation is Operation.CREATE:
        properties = schema.root.admit(given, evaluation, "")
    else:
        if json_problem(given) is not None:
            given = {name: comparable(value) for name, value in given.items()}
        evaluation.own_references = find_own_references(schema, before)
        properties = revise_root(schema.root, given, before, evaluation)
    if evaluation.asked is not None:
        return evaluation.asked.questions()
    for comparison in schema.comparisons:
        evaluation.faults += comparison.compare(properties)
    if evaluation.faults:
        return Rejected(tuple(evaluation.faults))
    return _accept(schema, properties, before, evaluation)


def _accept(schema: PropertySchema, properties: Properties, before: Properties, evaluation: Evaluation) -> Accepted:
    for container, name in evaluation.counted:
        if isinstance(container.get(name), Unknown):
            del container[name]
    return Accepted(
        properties,
        evaluation.context.operation is Operation.CREATE or bool(evaluation.secrets) or not equal(properties, before),
        tuple(evaluation.secrets),
        _retired(schema, properties, before) if before and schema.has_secrets else (),
        tuple(evaluation.takes),
        _released(schema, properties, before) if before and schema.has_pools else (),
        evaluation.sources,
    )


def _retired(schema: PropertySchema, properties: Properties, before: Properties) -> tuple[SecretPlace, ...]:
    kept = set(secrets_in(schema, properties))
    return tuple(place for place in dict.fromkeys(secrets_in(schema, before)) if place not in kept)


def _released(schema: PropertySchema, properties: Properties, before: Properties) -> tuple[PoolTake, ...]:
    now = {take.path: take.value for take in pool_values_in(schema, properties)}
    return tuple(
        take
        for take in pool_values_in(schema, before)
        if take.path not in now or not equal(now[take.path], take.value)
    )


def _merge_free_form(given: Properties, before: Properties, evaluation: Evaluation) -> Properties:
    """Without a schema every name is an optional property with any JSON value, and every actor may set it."""
    problem = json_problem(given)
    if problem is not None:
        evaluation.refuse("", f"expected object, got {problem}")
        return before
    for name, value in given.items():
        if not equal(value, before.get(name)):
            refuse_references({name: value}, evaluation, "")
    merged = {**before, **given}
    return {name: value for name, value in merged.items() if value is not None}


def fill(properties: Properties, references: Mapping[str, str]) -> Properties:
    """Replaces each `SecretSlot` by the vault reference of its path."""
    return {name: _filled(value, references) for name, value in properties.items()}


def _filled(value: object, references: Mapping[str, str]) -> object:
    if isinstance(value, SecretSlot):
        return references[value.path]
    if isinstance(value, dict):
        return fill(value, references)
    if isinstance(value, list):
        return [_filled(item, references) for item in value]
    return value
