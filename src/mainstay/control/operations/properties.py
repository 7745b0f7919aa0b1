"""Drives the property engine: answers what it asks from the tables, and does what it decided, in one transaction."""

from __future__ import annotations

from dataclasses import dataclass

from mainstay.control.access import Role
from mainstay.control.domain.properties.contract import (
    ACTOR_OF_ROLE,
    Actor,
    Answers,
    Operation,
    Questions,
    ReferencedService,
    Situation,
)
from mainstay.control.domain.properties.engine import Accepted, Rejected, decide
from mainstay.control.domain.properties.schema import PropertySchema
from mainstay.control.domain.values import Properties
from mainstay.control.operations import pools, vault
from mainstay.control.operations.bounds import MAX_PROPERTIES_BYTES, excess, size
from mainstay.control.operations.refusals import Faulty
from mainstay.control.operations.work import Work
from mainstay.control.store.service_options import SERVICE_OPTION_TYPES, enabled_values
from mainstay.control.store.services import find_living


@dataclass(frozen=True, slots=True)
class Setting:
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
class Decided:
    accepted: Accepted
    actor: Actor
    # Pool values that now belong to the service.
    taken_values: tuple[str, ...] = ()


async def decide_properties(
    work: Work, schema: PropertySchema, given: object, setting: Setting, stored: Properties | None = None
) -> Decided | Rejected:
    # Before anything looks at it: every fault costs time, and a body has room for millions.
    if (brought := size(given)) > MAX_PROPERTIES_BYTES:
        return Rejected((excess("properties", brought, MAX_PROPERTIES_BYTES),))
    actor = ACTOR_OF_ROLE[work.who.role]
    situation = Situation(
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
    return Decided(outcome, actor, taken)


async def accept_properties(
    work: Work, schema: PropertySchema, given: object, setting: Setting, stored: Properties | None = None
) -> Decided:
    """Like `decide_properties`; a rejection ends the request, and with it whatever was taken for it."""
    decided = await decide_properties(work, schema, given, setting, stored)
    if isinstance(decided, Rejected):
        raise Faulty(decided.faults)
    return decided


async def _answer(work: Work, questions: Questions, setting: Setting) -> tuple[Answers, tuple[str, ...]]:
    taken_for = None if setting.dry else setting.service_id
    found, taken = await pools.answer(work, setting.pool_set_id, questions.pools, taken_for)
    answers = Answers(
        services=await _services(work, questions, setting),
        options=await _options(work, questions, setting.provider_id),
        pools=found,
        same_secrets=await vault.same_secrets(work, questions.secrets),
    )
    return answers, taken


async def _services(work: Work, questions: Questions, setting: Setting) -> dict[str, ReferencedService]:
    """Living services of the order's consumer, or that the caller may read; never the service itself."""
    wanted = sorted(questions.services - {setting.service_id})
    caller = work.who
    found: dict[str, ReferencedService] = {}
    for service, type_name in await find_living(work.tx, wanted):
        readable = work.relation("service", "read").holds(caller, service) and caller.role is not Role.AGENT
        if service.consumer_id == setting.consumer_id or readable:
            found[service.id] = ReferencedService(service.id, type_name, service.consumer_id, service.group_id)
    return found


async def _options(work: Work, questions: Questions, provider_id: str | None) -> dict[str, tuple[object, ...] | None]:
    found: dict[str, tuple[object, ...] | None] = {}
    for option_type in questions.option_types:
        known = await SERVICE_OPTION_TYPES.find_by(work.tx, "type", option_type)
        found[option_type] = None if known is None else await enabled_values(work.tx, known.id, provider_id or "")
    return found
