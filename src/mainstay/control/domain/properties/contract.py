"""The types that the engine and its rules share: the context of a request, lookups and their answers, and rules."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import Enum, StrEnum
from typing import Final, NamedTuple, Protocol

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
    """What a schema describes. An agent's configuration has no lifecycle and no consumer."""

    SERVICE = "service"
    AGENT_CONFIGURATION = "agent configuration"


class Unknown(Enum):
    """Takes the place of a value that depends on a lookup, or that a dry run does not allocate."""

    PENDING = "pending"
    COUNTED = "counted as given"


@dataclass(frozen=True, slots=True, kw_only=True)
class PropertyTarget:
    """The operation and the service whose properties are decided. None: not known, as in a dry validation."""

    operation: Operation
    # The state before the transition. None at creation.
    state: str | None = None
    # A report on a job of the chain that creates the service.
    in_create_chain: bool = False
    last_step: bool = False
    # The service is created again on another agent, whose report may replace what the last one set once.
    moves: bool = False
    # A dry validation allocates nothing; pool values count as given.
    dry: bool = False
    service_id: str | None = None
    agent_id: str | None = None
    pool_set_id: str | None = None
    provider_id: str | None = None
    consumer_id: str | None = None
    group_id: str | None = None
    # The configuration of an agent: its pools are config pools, with `global_pools` also global ones.
    configures_agent: bool = False
    global_pools: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class EvaluationContext(PropertyTarget):
    """A target, with the actor and the time of the request."""

    actor: Actor
    now: datetime
    # Random bytes of the caller. Generated values derive from them and the path, so both passes get the same values.
    entropy: bytes = field(repr=False)

    @property
    def creating(self) -> bool:
        """A report in the job chain of `create` counts as creation."""
        return self.operation is Operation.CREATE or self.in_create_chain

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
    NO_CONFIG_POOL = "no config pool found with type {pool_type}"
    EXHAUSTED = "failed to allocate from pool {pool_type}"


@dataclass(frozen=True, slots=True)
class PoolQuestion:
    """Requests a pool value for a property. `wanted` None: any free value."""

    path: str
    pool_type: str
    property_type: PropertyType
    wanted: object | None = None


@dataclass(frozen=True, slots=True)
class PoolAnswer:
    """The allocated value. `COUNTED`: the pool exists, and a dry run allocates nothing."""

    property_type: str
    value: object | Unknown = Unknown.COUNTED


@dataclass(frozen=True, slots=True, eq=False)
class RevealedSecret:
    """A secret in plain text. Its repr hides it, no message contains it, and it equals nothing."""

    _value: object = field(repr=False)

    def reveal(self) -> object:
        return self._value


@dataclass(frozen=True, slots=True)
class Questions:
    """All lookups that the engine needs for its decision."""

    services: frozenset[str] = frozenset()
    option_types: frozenset[str] = frozenset()
    pools: tuple[PoolQuestion, ...] = ()


@dataclass(frozen=True, slots=True)
class Answers:
    """One answer to each question. A missing service does not exist for the caller, and an option type of None does not
    exist."""

    services: Mapping[str, ReferencedService] = field(default_factory=dict)
    options: Mapping[str, tuple[object, ...] | None] = field(default_factory=dict)
    pools: Mapping[str, PoolAnswer | PoolProblem] = field(default_factory=dict)
    # No lookups are possible, as in a check without a server: everything not answered above counts as valid.
    assumed: bool = False


ASSUMED: Final = Answers(assumed=True)


class Lookups(Protocol):
    """The lookups of a rule. The first pass answers `PENDING`; the rule decides in the second."""

    @property
    def context(self) -> EvaluationContext: ...

    def service(self, service_id: str) -> ReferencedService | Unknown | None: ...

    def options(self, option_type: str) -> tuple[object, ...] | Unknown | None: ...

    def pool_value(self, question: PoolQuestion) -> object: ...


# Returns a message if the value is invalid.
Check = Callable[[object, Lookups], str | None]
# Returns a message, without the path, if the value may not be set.
Authorize = Callable[[EvaluationContext], str | None]
# Returns the faults between properties of the merged result.
Compare = Callable[[Properties], list[PathFault]]
# (path, given value or None, lookups) → the value; raises GenerationFailed.
Generate = Callable[[str, object, Lookups], object]


class GenerationFailed(Exception):
    """The generator has no value; the message is the fault."""


@dataclass(frozen=True, slots=True)
class Permission:
    """A compiled authorizer. Inheritance and the report use its actors and states."""

    authorize: Authorize
    actors: tuple[Actor, ...] | None = None
    states: tuple[str, ...] | None = None


class NamedRule(NamedTuple):
    """A rule as a schema writes it, for readers that show the rule instead of applying it."""

    name: str
    config: Mapping[str, object]


@dataclass(frozen=True, slots=True)
class Placement:
    """The property a rule is attached to."""

    type: PropertyType
    secret: bool = False

    @property
    def shown(self) -> Callable[[object], str]:
        """Formats a value of this property for a message. Rules must use it, because it hides secrets."""
        return hidden if self.secret else shown


class Config:
    """The configuration of a rule. Keys that the rule does not read are faults."""

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
    # Not allowed in the configuration of an agent.
    service_only: bool = False


@dataclass(frozen=True, slots=True)
class Validator:
    name: str
    compile: Callable[[Config, Placement], Check | None]
    # None: every type.
    fits: frozenset[PropertyType] | None = None
    # The equivalent JSON Schema keywords of a checked configuration. None: there are none.
    keywords: Callable[[Mapping[str, object]], Properties] | None = None
    service_only: bool = False


@dataclass(frozen=True, slots=True)
class Generator:
    name: str
    compile: Callable[[Config, Placement], Generate | None]
    fits: frozenset[PropertyType] | None = None
    service_only: bool = False
    # The pool type of a checked configuration, for a generator whose values are given back to a pool.
    pool_type: Callable[[Mapping[str, object]], str] | None = None


@dataclass(frozen=True, slots=True)
class NamedProperty:
    """A property that a schema validator refers to: its path, and its type for the check of the configuration."""

    path: str
    names: tuple[str, ...]
    type: PropertyType
    secret: bool


class PropertyScope(Protocol):
    """The properties that a schema validator may name."""

    def find(self, path: str) -> NamedProperty | None: ...


@dataclass(frozen=True, slots=True)
class SchemaValidator:
    name: str
    compile: Callable[[Config, PropertyScope], Compare | None]
    # The equivalent JSON Schema; `present` returns the schema for "this property is set".
    keywords: Callable[[Mapping[str, object], Callable[[str], Properties]], Properties] | None = None


@dataclass(frozen=True, slots=True)
class Rulebook:
    """All rules that a schema may name."""

    authorizers: Mapping[str, Authorizer]
    validators: Mapping[str, Validator]
    schema_validators: Mapping[str, SchemaValidator]
    generators: Mapping[str, Generator]
