"""Runs the property engine: answers its questions from the tables and applies its decision, in one transaction."""

from __future__ import annotations

from dataclasses import dataclass, fields

from mainstay.control.access import Role
from mainstay.control.domain.properties.contract import (
    ACTOR_OF_ROLE,
    Actor,
    Answers,
    EvaluationContext,
    PoolProblem,
    PoolQuestion,
    PropertyTarget,
    Questions,
    ReferencedService,
)
from mainstay.control.domain.properties.engine import Accepted, Rejected, decide
from mainstay.control.domain.properties.relocation import relocate
from mainstay.control.domain.properties.schema import PropertySchema
from mainstay.control.domain.values import Properties
from mainstay.control.operations.machinery import pool_allocation
from mainstay.control.operations.machinery.bounds import MAX_PROPERTIES_BYTES, excess, size
from mainstay.control.operations.machinery.refusals import InvalidProperties
from mainstay.control.operations.machinery.unit_of_work import UnitOfWork
from mainstay.control.store.service_options import SERVICE_OPTION_TYPES, enabled_values
from mainstay.control.store.services import find_living

_TARGET_FIELDS = tuple(each.name for each in fields(PropertyTarget))


class PoolValueMissing(Exception):
    """A pool of the agent has no value for the order; another agent may have one."""


@dataclass(frozen=True, slots=True)
class DecidedProperties:
    accepted: Accepted
    actor: Actor
    # Ids of pool values that now belong to the service or the agent.
    taken_values: tuple[str, ...] = ()


def pool_questions(
    work: UnitOfWork, schema: PropertySchema, given: object, target: PropertyTarget
) -> tuple[PoolQuestion, ...]:
    """What a new service takes from the pools of an agent. The same for each agent that may serve it."""
    if not schema.has_pools or size(given) > MAX_PROPERTIES_BYTES:
        return ()
    outcome = decide(schema, given, _context(work, target, ACTOR_OF_ROLE[work.required_caller.role]))
    return outcome.pools if isinstance(outcome, Questions) else ()


def relocation_questions(
    work: UnitOfWork, schema: PropertySchema, target: PropertyTarget, stored: Properties
) -> tuple[PoolQuestion, ...]:
    """What a service takes from the pools of another set."""
    context = _context(work, target, Actor.SYSTEM)
    outcome = relocate(schema, stored, context, new_pool_set=True, new_provider=False)
    return outcome.pools if isinstance(outcome, Questions) else ()


def _context(work: UnitOfWork, target: PropertyTarget, actor: Actor) -> EvaluationContext:
    known = {name: getattr(target, name) for name in _TARGET_FIELDS}
    return EvaluationContext(**known, actor=actor, now=work.generated_at, entropy=work.derive_bytes("properties"))


async def decide_properties(
    work: UnitOfWork,
    schema: PropertySchema,
    given: object,
    target: PropertyTarget,
    stored: Properties | None = None,
    *,
    elsewhere: bool = False,
) -> DecidedProperties | Rejected:
    """`elsewhere`: raises `PoolValueMissing` instead of a fault, so that the caller tries another agent."""
    # Before validation: every fault costs time, and a body may contain millions.
    if (given_bytes := size(given)) > MAX_PROPERTIES_BYTES:
        return Rejected((excess("properties", given_bytes, MAX_PROPERTIES_BYTES),))
    context = _context(work, target, actor := ACTOR_OF_ROLE[work.required_caller.role])
    outcome = decide(schema, given, context, stored=stored)
    taken: tuple[str, ...] = ()
    if isinstance(outcome, Questions):
        answers, taken = await _answer(work, outcome, target)
        if elsewhere and any(isinstance(each, PoolProblem) for each in answers.pools.values()):
            raise PoolValueMissing
        outcome = decide(schema, given, context, stored=stored, answers=answers)
    if isinstance(outcome, Questions):
        raise RuntimeError("the property engine asked twice")
    if isinstance(outcome, Rejected):
        return outcome
    # Properties that already exceed the limit may still change, as long as they do not grow.
    if (stored_bytes := size(outcome.properties)) > max(MAX_PROPERTIES_BYTES, size(stored)):
        return Rejected((excess("properties", stored_bytes, MAX_PROPERTIES_BYTES),))
    return DecidedProperties(outcome, actor, taken)


async def accept_properties(
    work: UnitOfWork,
    schema: PropertySchema,
    given: object,
    target: PropertyTarget,
    stored: Properties | None = None,
    *,
    elsewhere: bool = False,
) -> DecidedProperties:
    """Like `decide_properties`, but raises on a rejection, which also rolls back allocated pool values."""
    decided = await decide_properties(work, schema, given, target, stored, elsewhere=elsewhere)
    if isinstance(decided, Rejected):
        raise InvalidProperties(decided.faults)
    return decided


async def relocate_properties(
    work: UnitOfWork,
    schema: PropertySchema,
    target: PropertyTarget,
    stored: Properties,
    *,
    new_pool_set: bool,
    new_provider: bool,
    elsewhere: bool = False,
) -> DecidedProperties:
    """The properties of a service on another agent. Raises `InvalidProperties`, or `PoolValueMissing` if `elsewhere`."""
    context = _context(work, target, Actor.SYSTEM)
    outcome = relocate(schema, stored, context, new_pool_set=new_pool_set, new_provider=new_provider)
    taken: tuple[str, ...] = ()
    if isinstance(outcome, Questions):
        answers, taken = await _answer(work, outcome, target)
        if elsewhere and any(isinstance(each, PoolProblem) for each in answers.pools.values()):
            raise PoolValueMissing
        outcome = relocate(
            schema, stored, context, new_pool_set=new_pool_set, new_provider=new_provider, answers=answers
        )
    if isinstance(outcome, Questions):
        raise RuntimeError("the property engine asked twice")
    if isinstance(outcome, Rejected):
        raise InvalidProperties(outcome.faults)
    return DecidedProperties(outcome, Actor.SYSTEM, taken)


async def _answer(work: UnitOfWork, questions: Questions, target: PropertyTarget) -> tuple[Answers, tuple[str, ...]]:
    found, taken = await _pool_values(work, questions, target)
    answers = Answers(
        services=await _services(work, questions, target),
        options=await _options(work, questions, target.provider_id),
        pools=found,
    )
    return answers, taken


async def _pool_values(
    work: UnitOfWork, questions: Questions, target: PropertyTarget
) -> tuple[pool_allocation.PoolAnswers, tuple[str, ...]]:
    if target.configures_agent:
        agent_id, provider_id = str(target.agent_id), str(target.provider_id)
        return await pool_allocation.answer_for_agent(
            work, agent_id, provider_id, questions.pools, or_global=target.global_pools
        )
    taken_for = None if target.dry else target.service_id
    return await pool_allocation.answer(work, target.pool_set_id, questions.pools, taken_for)


async def _services(work: UnitOfWork, questions: Questions, target: PropertyTarget) -> dict[str, ReferencedService]:
    """Living services of the order's consumer, or that the caller may read, except the service itself."""
    wanted = sorted(questions.services - {target.service_id})
    caller = work.required_caller
    found: dict[str, ReferencedService] = {}
    for service, type_name in await find_living(work.tx, wanted):
        readable = work.relation("service", "read").holds(caller, service) and caller.role is not Role.AGENT
        if service.consumer_id == target.consumer_id or readable:
            found[service.id] = ReferencedService(service.id, type_name, service.consumer_id, service.group_id)
    return found


async def _options(
    work: UnitOfWork, questions: Questions, provider_id: str | None
) -> dict[str, tuple[object, ...] | None]:
    found: dict[str, tuple[object, ...] | None] = {}
    for option_type in questions.option_types:
        known = await SERVICE_OPTION_TYPES.find_by(work.tx, "type", option_type)
        found[option_type] = None if known is None else await enabled_values(work.tx, known.id, provider_id or "")
    return found
