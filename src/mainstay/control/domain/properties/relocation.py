"""Decides about the properties of a service that moves to another agent: new pool values, options of the new provider.

Everything else stays as it is stored; like an update, a move does not validate stored values again."""

from __future__ import annotations

from mainstay.control.domain.properties.compile import run_checks
from mainstay.control.domain.properties.contract import (
    Answers,
    EvaluationContext,
    GenerationFailed,
    PoolQuestion,
    Unknown,
)
from mainstay.control.domain.properties.declaration import PropertyDeclaration
from mainstay.control.domain.properties.engine import Accepted, Outcome, Rejected
from mainstay.control.domain.properties.evaluation import Evaluation, ValueSource
from mainstay.control.domain.properties.schema import PropertySchema
from mainstay.control.domain.properties.traversal import option_values_in, pool_values_in, rewrite_pool_values
from mainstay.control.domain.values import Properties, equal


def relocate(
    schema: PropertySchema,
    stored: Properties,
    context: EvaluationContext,
    *,
    new_pool_set: bool,
    new_provider: bool,
    answers: Answers | None = None,
) -> Outcome:
    """Like `engine.decide`: the first call may return `Questions`, the second decides with the answers."""
    evaluation = Evaluation(context, answers)
    properties = _with_new_values(schema, stored, evaluation) if new_pool_set else stored
    if new_provider:
        for declared, path, value in option_values_in(schema, stored):
            run_checks(declared.checks, value, evaluation, path)
    if evaluation.asked is not None:
        return evaluation.asked.questions()
    if new_pool_set:
        for comparison in schema.comparisons:
            evaluation.faults += comparison.compare(properties)
    if evaluation.faults:
        return Rejected(tuple(evaluation.faults))
    leaving = pool_values_in(schema, stored) if new_pool_set else ()
    return Accepted(
        properties,
        not equal(properties, stored),
        pool_takes=tuple(evaluation.takes),
        pool_releases=leaving,
        sources=evaluation.sources,
    )


def _with_new_values(schema: PropertySchema, stored: Properties, evaluation: Evaluation) -> Properties:
    """Also immutable ones: they are set once on each host."""

    def take(declared: PropertyDeclaration, path: str, _value: object) -> object:
        try:
            value = evaluation.pool_value(PoolQuestion(path, str(declared.pool_type), declared.type))
        except GenerationFailed as failure:
            return evaluation.refuse(path, str(failure))
        if not isinstance(value, Unknown):
            evaluation.sources[path] = ValueSource.GENERATED
            run_checks(declared.checks, value, evaluation, path)
        return value

    return rewrite_pool_values(schema, stored, take)
