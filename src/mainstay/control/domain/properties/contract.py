"""The words that the engine and its rules share: who asks, what may be asked of the outside, and what a rule is."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import Enum, StrEnum
from typing import Final, Protocol

from mainstay.control.domain.faults import PathFault, locate
from mainstay.control.domain.values import Properties, hidden, is_integer, is_number, json_problem, shown, whole


class PropertyType(StrEnum):
    STRING = "string"
    INTEGER = "integer"
    NUMBER = "number"
    BOOLEAN = "boolean"
    OBJECT = "object"
    ARRAY = "array"
    JSON = "json"
    REFERENCE = "reference"
    UUID = "uuid"


class SecretKind(StrEnum):
    PERSISTENT = "persistent"
    EPHEMERAL = "ephemeral"


class Actor(StrEnum):
    USER = "user"
    AGENT = "agent"
    SYSTEM = "system"


ACTOR_OF_ROLE: Final[Mapping[str, Actor]] = {"admin": Actor.USER, "participant": Actor.USER, "agent": Actor.AGENT}


class Operation(StrEnum):
    CREATE = "create"
    UPDATE = "update"
    REPORT = "report"


class Purpose(Enum):
    """What a schema describes; an agent's configuration has no lifecycle, no consumer and no pools."""

    SERVICE = "service"
    AGENT_CONFIGURATION = "agent configuration"


class Unknown(Enum):
    """Stands where a value will be once the outside has answered, or would be if this were not a dry run."""

    PENDING = "pending"
    COUNTED = "counted as given"


@dataclass(frozen=True, slots=True, kw_only=True)
class EvaluationContext:
    """Who asks for what, and where the service stands. None means that it is not known, as in a dry validation."""

    operation: Operation
    actor: Actor
    now: datetime
    # Random bytes of the caller: what is generated follows from them and the path, so deciding twice gives the same.
    entropy: bytes = field(repr=False)
    # The state before the transition; a service that is being created has none.
    state: str | None = None
    create_run: bool = False
    last_step: bool = False
    # A dry validation allocates nothing: what a pool would give counts as given.
    dry: bool = False
    service_id: str | None = None
    agent_id: str | None = None
    provider_id: str | None = None
    consumer_id: str | None = None
    group_id: str | None = None

    @property
    def creating(self) -> bool:
        """A report on a `create` run counts as creation."""
        return self.operation is Operation.CREATE or self.create_run

    def random_bytes(self, path: str) -> bytes:
        return hashlib.sha256(self.entropy + path.encode(errors="surrogatepass")).digest()


@dataclass(frozen=True, slots=True)
class ReferencedService:
    """A living service that the order's consumer owns or the caller may read."""

    id: str
    service_type: str
    consumer_id: str
    group_id: str


class PoolProblem(Enum):
    NO_POOL_SET = "agent does not have a pool set configured"
    NO_POOL = "no pool found with type {pool_type} in pool set"
    EXHAUSTED = "failed to allocate from pool {pool_type}"


@dataclass(frozen=True, slots=True)
class PoolQuestion:
    """A value is wanted for a property: any free one, or exactly the one that was given."""

    path: str
    pool_type: str
    property_type: PropertyType
    wanted: object | None = None


@dataclass(frozen=True, slots=True)
class PoolAnswer:
    """What the pool gave. `COUNTED` says that it exists and could be asked, which is all a dry run may know."""

    property_type: str
    value: object | Unknown = Unknown.COUNTED


@dataclass(frozen=True, slots=True, eq=False)
class RevealedSecret:
    """A secret in the open. It is shown by no repr and no message, and equal to nothing; only who seals it reveals it."""

    _value: object = field(repr=False)

    def reveal(self) -> object:
        return self._value


@dataclass(frozen=True, slots=True)
class SecretQuestion:
    """Is this the value already stored under the reference?"""

    path: str
    reference: str
    plain: RevealedSecret


@dataclass(frozen=True, slots=True)
class Questions:
    """All that the engine must know before it can decide; everything is asked in one go."""

    services: frozenset[str] = frozenset()
    option_types: frozenset[str] = frozenset()
    pools: tuple[PoolQuestion, ...] = ()
    secrets: tuple[SecretQuestion, ...] = ()


@dataclass(frozen=True, slots=True)
class Answers:
    """One answer to each question. A service that is absent does not exist for the caller; an option type that is None
    does not exist at all; `same_secrets` are the paths whose stored secret is the one that was given."""

    services: Mapping[str, ReferencedService] = field(default_factory=dict)
    options: Mapping[str, tuple[object, ...] | None] = field(default_factory=dict)
    pools: Mapping[str, PoolAnswer | PoolProblem] = field(default_factory=dict)
    same_secrets: frozenset[str] = frozenset()
    # Nobody can be asked: whatever is not answered above counts as fine, for a judgement without a server.
    assumed: bool = False


ASSUMED: Final = Answers(assumed=True)


class Outside(Protocol):
    """What a rule may ask while it looks at one value. `PENDING` is the answer of the first pass: judge later."""

    @property
    def situation(self) -> EvaluationContext: ...

    def service(self, service_id: str) -> ReferencedService | Unknown | None: ...

    def options(self, option_type: str) -> tuple[object, ...] | Unknown | None: ...

    def pool_value(self, question: PoolQuestion) -> object: ...


# A message if the value is wrong, None if it is fine.
Check = Callable[[object, Outside], str | None]
# A message without the path if the value may not be set now, None if it may.
Judge = Callable[[EvaluationContext], str | None]
# Everything wrong between properties, given the merged result.
Compare = Callable[[Properties], list[PathFault]]
# (path, what was given or None, outside) → the value; raises GenerationFailed.
Generate = Callable[[str, object, Outside], object]


class GenerationFailed(Exception):
    """The generator has no value to give; the text is the fault."""


@dataclass(frozen=True, slots=True)
class Permission:
    """One authorizer, compiled. What it says about actors and states is kept for inheritance and for the report."""

    judge: Judge
    actors: tuple[Actor, ...] | None = None
    states: tuple[str, ...] | None = None


@dataclass(frozen=True, slots=True)
class Placement:
    """The property a rule is attached to."""

    type: PropertyType
    secret: bool = False

    @property
    def shown(self) -> Callable[[object], str]:
        """How a message shows a value of this property: a rule that prints one must print it through this."""
        return hidden if self.secret else shown


class Config:
    """A rule's configuration as it was written. A rule reads the keys it knows; whatever it did not read is a fault."""

    def __init__(self, rule: str, values: Mapping[str, object], path: str, faults: list[PathFault]) -> None:
        self.rule = rule
        self._values = values
        self._path = path
        self._faults = faults
        self._read: set[str] = set()

    def get(self, key: str) -> object | None:
        self._read.add(key)
        return self._values.get(key)

    def fault(self, key: str, message: str) -> None:
        self._faults.append(PathFault(locate(self._path, key), message))

    def fault_unread(self) -> None:
        for key, value in self._values.items():
            if key not in self._read and value is not None:
                self.fault(key, f"unknown key in the configuration of {self.rule}")

    def count(self, key: str) -> int | None:
        value = self.get(key)
        if is_integer(value) and (number := whole(value)) >= 0:  # type: ignore[arg-type]
            return int(number)
        self.fault(key, f"{self.rule} {key} must be a non-negative integer")
        return None

    def number(self, key: str) -> int | float | None:
        value = self.get(key)
        if is_number(value):
            return value  # type: ignore[return-value]
        self.fault(key, f"{self.rule} {key} must be a number")
        return None

    def boolean(self, key: str) -> bool | None:
        value = self.get(key)
        if type(value) is bool:
            return value
        self.fault(key, f"{self.rule} {key} must be a boolean")
        return None

    def string(self, key: str, message: str | None = None) -> str | None:
        value = self.get(key)
        if type(value) is str and value:
            return value
        self.fault(key, message or f"{self.rule} {key} must be a non-empty string")
        return None

    def strings(self, key: str, message: str | None = None) -> tuple[str, ...] | None:
        value = self.get(key)
        if type(value) is list and value and all(type(item) is str and item for item in value):
            return tuple(dict.fromkeys(value))
        self.fault(key, message or f"{self.rule} {key} must be a non-empty array of strings")
        return None

    def values(self, key: str) -> list[object] | None:
        value = self.get(key)
        if type(value) is list and value and json_problem(value) is None:
            return value
        self.fault(key, f"{self.rule} {key} must be a non-empty array")
        return None


@dataclass(frozen=True, slots=True)
class Authorizer:
    name: str
    compile: Callable[[Config], Permission | None]
    # Has no meaning outside a service, so an agent's configuration may not use it.
    service_only: bool = False


@dataclass(frozen=True, slots=True)
class Validator:
    name: str
    compile: Callable[[Config, Placement], Check | None]
    # None fits every type.
    fits: frozenset[PropertyType] | None = None
    # The JSON Schema keywords that say the same, from a checked configuration; None where none do.
    keywords: Callable[[Mapping[str, object]], Properties] | None = None
    service_only: bool = False


@dataclass(frozen=True, slots=True)
class Generator:
    name: str
    compile: Callable[[Config, Placement], Generate | None]
    fits: frozenset[PropertyType] | None = None
    service_only: bool = False
    # The pool type of a checked configuration, for a generator whose values go back to where they came from.
    pool_type: Callable[[Mapping[str, object]], str] | None = None


@dataclass(frozen=True, slots=True)
class NamedProperty:
    """A property as a schema validator may refer to it: by path, with what it needs to know to refuse nonsense."""

    path: str
    names: tuple[str, ...]
    type: PropertyType
    secret: bool


class PropertyScope(Protocol):
    """The properties a schema validator may name."""

    def find(self, path: str) -> NamedProperty | None: ...


@dataclass(frozen=True, slots=True)
class SchemaValidator:
    name: str
    compile: Callable[[Config, PropertyScope], Compare | None]
    # The JSON Schema that says the same; `present` gives the schema for "this property is set".
    keywords: Callable[[Mapping[str, object], Callable[[str], Properties]], Properties] | None = None


@dataclass(frozen=True, slots=True)
class Rulebook:
    """Every rule that a schema may name."""

    authorizers: Mapping[str, Authorizer]
    validators: Mapping[str, Validator]
    schema_validators: Mapping[str, SchemaValidator]
    generators: Mapping[str, Generator]
