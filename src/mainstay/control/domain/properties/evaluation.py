"""One pass of the engine over one request. It collects faults, questions, secrets, pool values and value sources."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from mainstay.control.domain.faults import PathFault
from mainstay.control.domain.properties.contract import (
    Actor,
    Answers,
    EvaluationContext,
    GenerationFailed,
    PoolProblem,
    PoolQuestion,
    Questions,
    ReferencedService,
    RevealedSecret,
    SecretKind,
    Unknown,
)
from mainstay.control.domain.refusals import UnansweredQuestion
from mainstay.control.domain.values import Properties, equal


class ValueSource(StrEnum):
    """Why a property has its value."""

    GIVEN = "given"
    DEFAULT = "default"
    GENERATED = "generated"


@dataclass(frozen=True, slots=True, eq=False)
class SecretSlot:
    """Takes the place of a secret in the properties until the value is sealed and has a vault reference."""

    path: str
    schema_path: str
    kind: SecretKind
    plain: RevealedSecret


@dataclass(frozen=True, slots=True)
class PoolTake:
    path: str
    pool_type: str
    value: object


@dataclass(slots=True)
class CollectedQuestions:
    services: set[str] = field(default_factory=set)
    option_types: set[str] = field(default_factory=set)
    pools: list[PoolQuestion] = field(default_factory=list)

    def questions(self) -> Questions:
        """All questions of the first pass."""
        return Questions(frozenset(self.services), frozenset(self.option_types), tuple(self.pools))


class Evaluation:
    """The state of a pass, and the `Lookups` that rules use."""

    def __init__(self, context: EvaluationContext, answers: Answers | None) -> None:
        self.context = context
        self.answers = answers
        # None while a default or a generated value is applied: authorizers do not apply to those.
        self.actor: Actor | None = context.actor
        self.faults: list[PathFault] = []
        self.sources: dict[str, ValueSource] = {}
        self.secrets: list[SecretSlot] = []
        self.takes: list[PoolTake] = []
        self.counted: list[tuple[Properties, str]] = []
        # None: no questions so far.
        self.asked: CollectedQuestions | None = None
        # Vault references that the service already has, by schema path; a user may send back only these.
        self.own_references: Mapping[str, set[str]] = {}

    def seal(self, slot: SecretSlot) -> SecretSlot:
        self.secrets.append(slot)
        return slot

    def count(self, container: Properties, name: str) -> None:
        """Marks an unknown value in the container, to be removed after the decision."""
        self.counted.append((container, name))

    def refuse(self, path: str, message: str) -> Unknown:
        """Records the fault. The returned marker takes the place of the value, which is neither set nor compared."""
        self.faults.append(PathFault(path, message))
        return Unknown.COUNTED

    def ask(self) -> CollectedQuestions:
        if self.asked is None:
            self.asked = CollectedQuestions()
        return self.asked

    def service(self, service_id: str) -> ReferencedService | Unknown | None:
        if self.answers is None:
            self.ask().services.add(service_id)
            return Unknown.PENDING
        if self.answers.assumed:
            return Unknown.COUNTED
        return self.answers.services.get(service_id)

    def options(self, option_type: str) -> tuple[object, ...] | Unknown | None:
        if self.answers is None:
            self.ask().option_types.add(option_type)
            return Unknown.PENDING
        if self.answers.assumed:
            return Unknown.COUNTED
        if option_type not in self.answers.options:
            raise UnansweredQuestion("the options of type", option_type)
        return self.answers.options[option_type]

    def pool_value(self, question: PoolQuestion) -> object:
        if self.answers is None:
            self.ask().pools.append(question)
            return Unknown.PENDING
        answer = self.answers.pools.get(question.path)
        if self.answers.assumed:
            return Unknown.COUNTED if question.wanted is None else question.wanted
        if answer is None:
            raise UnansweredQuestion("a pool value for", question.path)
        if isinstance(answer, PoolProblem):
            raise GenerationFailed(answer.value.format(pool_type=question.pool_type))
        if answer.property_type != question.property_type:
            raise GenerationFailed(
                f"property {question.path} has type {question.property_type}"
                f" but pool {question.pool_type} provides type {answer.property_type}"
            )
        if isinstance(answer.value, Unknown):
            return answer.value if question.wanted is None else question.wanted
        if question.wanted is not None and not equal(question.wanted, answer.value):
            raise GenerationFailed(PoolProblem.EXHAUSTED.value.format(pool_type=question.pool_type))
        self.takes.append(PoolTake(question.path, question.pool_type, answer.value))
        return answer.value
