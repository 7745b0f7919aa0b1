"""Calls the property engine as the server does: one schema, one request, and stubbed lookups."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from mainstay.control.domain.properties.contract import (
    Actor,
    Answers,
    EvaluationContext,
    Operation,
    PoolAnswer,
    PoolProblem,
    Questions,
    ReferencedService,
)
from mainstay.control.domain.properties.engine import Accepted, Outcome, Rejected, decide, fill
from mainstay.control.domain.properties.parse import parse_property_schema
from mainstay.control.domain.properties.schema import PropertySchema
from mainstay.control.domain.refusals import InvalidDefinition
from mainstay.control.rulebook import installed_rulebook

NOW = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)
SERVICE_ID = "11111111-1111-4111-8111-111111111111"


def schema_of(document: object, **options: Any) -> PropertySchema:
    return parse_property_schema(document, installed_rulebook(), **options)


def schema_faults(document: object, **options: Any) -> dict[str, str]:
    """Path to message of a schema that must be refused; empty if it is accepted."""
    try:
        schema_of(document, **options)
    except InvalidDefinition as refusal:
        return {fault.path: fault.message for fault in refusal.faults}
    return {}


def evaluation_context(
    operation: Operation = Operation.CREATE, actor: Actor = Actor.USER, **facts: Any
) -> EvaluationContext:
    known = {
        "now": NOW,
        "entropy": b"entropy",
        "service_id": SERVICE_ID,
        "agent_id": "agent",
        "provider_id": "provider",
        "consumer_id": "consumer",
        "group_id": "group",
    }
    return EvaluationContext(operation=operation, actor=actor, **{**known, **facts})


@dataclass
class StubLookups:
    """Answers in place of the server: services, options, pools and the vault."""

    services: list[ReferencedService] = field(default_factory=list)
    options: dict[str, tuple[object, ...]] = field(default_factory=dict)
    pools: dict[str, tuple[str, list[object]]] = field(default_factory=dict)
    has_pool_set: bool = True
    vault: dict[str, object] = field(default_factory=dict)

    def answer(self, questions: Questions) -> Answers:
        return Answers(
            services={each.id: each for each in self.services if each.id in questions.services},
            options={name: self.options.get(name) for name in questions.option_types},
            pools={question.path: self.allocate(question.pool_type, question.wanted) for question in questions.pools},
        )

    def allocate(self, pool_type: str, wanted: object) -> PoolAnswer | PoolProblem:
        if not self.has_pool_set:
            return PoolProblem.NO_POOL_SET
        if pool_type not in self.pools:
            return PoolProblem.NO_POOL
        property_type, free = self.pools[pool_type]
        if not free or (wanted is not None and wanted not in free):
            return PoolProblem.EXHAUSTED
        value = free[0] if wanted is None else wanted
        return PoolAnswer(property_type, value)

    def ask(
        self,
        schema: PropertySchema,
        given: object,
        context: EvaluationContext,
        stored: dict[str, object] | None = None,
    ) -> Accepted | Rejected:
        outcome: Outcome = decide(schema, given, context, stored=stored)
        if isinstance(outcome, Questions):
            outcome = decide(schema, given, context, stored=stored, answers=self.answer(outcome))
        assert not isinstance(outcome, Questions)
        return outcome

    def keep(self, accepted: Accepted) -> dict[str, object]:
        """Seals the secrets and takes the pool values, as the server does in its transaction."""
        references = {}
        for slot in accepted.secrets:
            reference = f"vault://{len(self.vault):08x}"
            self.vault[reference] = slot.plain.reveal()
            references[slot.path] = reference
        for take in accepted.pool_takes:
            self.pools[take.pool_type][1].remove(take.value)
        for release in accepted.pool_releases:
            self.pools[release.pool_type][1].append(release.value)
        for place in accepted.retired_secrets:
            del self.vault[place.reference]
        return fill(accepted.properties, references)


def create(document: object, given: object, lookups: StubLookups | None = None, **facts: Any) -> dict[str, object]:
    """The stored properties of a creation that must be accepted."""
    lookups = lookups or StubLookups()
    outcome = lookups.ask(schema_of(document), given, evaluation_context(**facts))
    assert isinstance(outcome, Accepted), outcome
    return lookups.keep(outcome)


def faults(
    document: object,
    given: object,
    stored: dict[str, object] | None = None,
    lookups: StubLookups | None = None,
    operation: Operation | None = None,
    **facts: Any,
) -> dict[str, str]:
    """Path to message of a request; empty if it is accepted. With stored properties it is an update."""
    kind = operation or (Operation.CREATE if stored is None else Operation.UPDATE)
    outcome = (lookups or StubLookups()).ask(schema_of(document), given, evaluation_context(kind, **facts), stored)
    return {fault.path: fault.message for fault in outcome.faults} if isinstance(outcome, Rejected) else {}


def update(
    document: object, given: object, stored: dict[str, object], lookups: StubLookups | None = None, **facts: Any
) -> Accepted:
    outcome = (lookups or StubLookups()).ask(
        schema_of(document), given, evaluation_context(facts.pop("operation", Operation.UPDATE), **facts), stored
    )
    assert isinstance(outcome, Accepted), outcome
    return outcome
