"""Drives the property engine: answers what it asks from the tables, and does what it decided, in one transaction."""

from __future__ import annotations

from dataclasses import dataclass

from mainstay.control.access import Role
from mainstay.control.domain.properties.contract import (
    ACTOR_OF_ROLE,
    Actor,
    Answers,
    EvaluationContext,
    Operation,
    Questions,
    ReferencedService,
)
from mainstay.control.domain.properties.engine import Accepted, Rejected, decide
from mainstay.control.domain.properties.schema import PropertySchema
from mainstay.control.domain.values import Properties
from mainstay.control.operations.machinery import pool_allocation, secret_sealing
from mainstay.control.operations.machinery.bounds import MAX_PROPERTIES_BYTES, excess, size
from mainstay.control.operations.machinery.refusals import InvalidProperties
from mainstay.control.operations.machinery.unit_of_work import UnitOfWork
from mainstay.control.store.service_options import SERVICE_OPTION_TYPES, enabled_values
from mainstay.control.store.services import find_living


@dataclass(frozen=True, slots=True)
class PropertyTarget:
    """Where the properties stand. None means that it is not known, or that there is none."""

    operation: Operation
    state: str | None = None
    create_run: bool = False
    last_step: bool = False
    dry: bool = False
    service_id: str | None = None
    agent_id: str | None = None
    pool_set_id: str | None = None
    provider_id: str | None = None
    consumer_id: str | None = None
    group_id: str | None = None


@dataclass(frozen=True, slots=True)
class DecidedProperties:
    accepted: Accepted
    actor: Actor
    # Pool values that now belong to the service.
    taken_values: tuple[str, ...] = ()


async def decide_properties(
    work: UnitOfWork, schema: PropertySchema, given: object, setting: PropertyTarget, stored: Properties | None = None
) -> DecidedProperties | Rejected:
    # Before anything looks at it: every fault costs time, and a body has room for millions.
    if (brought := size(given)) > MAX_PROPERTIES_BYTES:
        return Rejected((excess("properties", brought, MAX_PROPERTIES_BYTES),))
    actor = ACTOR_OF_ROLE[work.required_caller.role]
    situation = EvaluationContext(
        operation=setting.operation,
        actor=actor,
        now=work.generated_at,
        entropy=work.draw("properties"),
        state=setting.state,
        create_run=setting.create_run,
        last_step=setting.last_step,
        dry=setting.dry,
        service_id=setting.service_id,
        agent_id=setting.agent_id,
        provider_id=setting.provider_id,
        consumer_id=setting.consumer_id,
        group_id=setting.group_id,
    )
    outcome = decide(schema, given, situation, stored=stored)
    taken: tuple[str, ...] = ()
    if isinstance(outcome, Questions):
        answers, taken = await _answer(work, outcome, setting)
        outcome = decide(schema, given, situation, stored=stored, answers=answers)
    if isinstance(outcome, Questions):
        raise RuntimeError("the engine asks once")
    if isinstance(outcome, Rejected):
        return outcome
    # What is too large already may still be used, and become smaller.
    if (grown := size(outcome.properties)) > max(MAX_PROPERTIES_BYTES, size(stored)):
        return Rejected((excess("properties", grown, MAX_PROPERTIES_BYTES),))
    return DecidedProperties(outcome, actor, taken)


async def accept_properties(
    work: UnitOfWork, schema: PropertySchema, given: object, setting: PropertyTarget, stored: Properties | None = None
) -> DecidedProperties:
    """Like `decide_properties`; a rejection ends the request, and with it whatever was taken for it."""
    decided = await decide_properties(work, schema, given, setting, stored)
    if isinstance(decided, Rejected):
        raise InvalidProperties(decided.faults)
    return decided


async def _answer(work: UnitOfWork, questions: Questions, setting: PropertyTarget) -> tuple[Answers, tuple[str, ...]]:
    taken_for = None if setting.dry else setting.service_id
    found, taken = await pool_allocation.answer(work, setting.pool_set_id, questions.pools, taken_for)
    answers = Answers(
        services=await _services(work, questions, setting),
        options=await _options(work, questions, setting.provider_id),
        pools=found,
        same_secrets=await secret_sealing.same_secrets(work, questions.secrets),
    )
    return answers, taken


async def _services(work: UnitOfWork, questions: Questions, setting: PropertyTarget) -> dict[str, ReferencedService]:
    """Living services of the order's consumer, or that the caller may read; never the service itself."""
    wanted = sorted(questions.services - {setting.service_id})
    caller = work.required_caller
    found: dict[str, ReferencedService] = {}
    for service, type_name in await find_living(work.tx, wanted):
        readable = work.relation("service", "read").holds(caller, service) and caller.role is not Role.AGENT
        if service.consumer_id == setting.consumer_id or readable:
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
