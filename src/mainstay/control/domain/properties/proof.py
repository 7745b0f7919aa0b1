"""A short cut for documents that are right, which most are: one native call proves all plain members of an object at once.

A proof only ever says yes: each value it covers is of its type, passes its checks and is kept as it is. Where it cannot
say so the closures look at every member, and find the faults."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Literal

import msgspec

from mainstay.control.domain.properties.contract import Check, Outside, PropertyType
from mainstay.control.domain.properties.declaration import PropertyDeclaration
from mainstay.control.domain.values import Properties, is_text, json_problem

# True if every member that it covers is right.
Prove = Callable[[Properties, Outside], bool]

# Below this many members the native call costs more than it saves.
LEAST_MEMBERS = 4
NOT_PROVED = "not proved"
# Also half a surrogate pair, and an integer too large to be a float: the closures know what to say.
_NO_PROOF = (msgspec.ValidationError, ValueError, OverflowError)
# Native integers; a limit or a choice beyond them is left to its check.
MAX_NATIVE = 2**62

_TYPES: dict[PropertyType, Any] = {
    PropertyType.STRING: str,
    PropertyType.INTEGER: int,
    PropertyType.NUMBER: float,
    PropertyType.BOOLEAN: bool,
    PropertyType.JSON: dict | list | str | int | float | bool,
    # Without members, and without items.
    PropertyType.OBJECT: dict,
    PropertyType.ARRAY: list,
}
_CONTAINERS = frozenset({PropertyType.JSON, PropertyType.OBJECT, PropertyType.ARRAY})
# What a rule says of itself in JSON Schema, and the native word for it.
_LIMITS = {
    "minimum": "ge",
    "maximum": "le",
    "minLength": "min_length",
    "maxLength": "max_length",
    "minItems": "min_length",
    "maxItems": "max_length",
}


@dataclass(frozen=True, slots=True)
class _Proof:
    """What the native call is told of a property, and the checks that are left to make."""

    native: Any
    left: tuple[Check, ...] = ()
    # Any string at all, also one that is no text.
    native_text: bool = False


_ANYTHING = _Proof(Any)


def is_provable(declared: PropertyDeclaration) -> bool:
    """Whether a value of it, if right, is kept as it came and leaves nothing to note."""
    if declared.secret is not None or declared.generate is not None:
        return False
    if declared.members is not None:
        return all(_is_provable_inside(member, declared) for member in declared.members)
    if declared.items is not None:
        # Texts, floats and checks that are left inside would need a look at each item after all.
        plain = declared.items.type in (PropertyType.INTEGER, PropertyType.BOOLEAN)
        return plain and _is_provable_inside(declared.items, declared) and not _proof_of(declared.items).left
    return declared.type in _TYPES


def _is_provable_inside(inner: PropertyDeclaration, outer: PropertyDeclaration) -> bool:
    """Whoever may set what is around it may set it too, and nothing is made where it is absent."""
    open_to_all = inner.actors >= outer.actors and not inner.further
    return open_to_all and inner.default is None and is_provable(inner)


def is_owed(declared: PropertyDeclaration) -> bool:
    """Whether a document without it may be at fault: then nothing is proved."""
    return declared.required and declared.default is None


def make_prove(members: Mapping[str, PropertyDeclaration], covered: frozenset[str]) -> Prove:
    """`members` are all that the object may have; of those that are not covered only the name is checked."""
    shape, follow_up = _shape(members, covered)
    owed = frozenset(name for name in covered if is_owed(members[name]))
    convert = msgspec.convert

    def prove(given: Properties, outside: Outside) -> bool:
        # The native call would say so too, but by raising, which costs as much as five properties.
        if not given.keys() >= owed:
            return False
        try:
            convert(given, shape)
        except _NO_PROOF:
            return False
        return follow_up(given, outside) is None

    return prove


def make_prove_value(declared: PropertyDeclaration) -> Callable[[object, Outside], bool]:
    """The same for a single value."""
    proof = _proof_of(declared)
    # The native form of a type is kept only with a struct; without one it would be made again for each value.
    shape = msgspec.defstruct("Shape", [("value", proof.native)], gc=False)
    left, convert = proof.left, msgspec.convert

    def prove(value: object, outside: Outside) -> bool:
        try:
            convert({"value": value}, shape)
        except _NO_PROOF:
            return False
        return not left or all(check(value, outside) is None for check in left)

    return prove


def _shape(members: Mapping[str, PropertyDeclaration], covered: frozenset[str]) -> tuple[Any, Check]:
    """The native type of the object, and a check for what that type cannot say."""
    proofs = {name: _proof_of(member) for name, member in members.items() if name in covered}
    fields = {name: (f"member_{index}", proofs.get(name, _ANYTHING).native) for index, name in enumerate(members)}
    shape = msgspec.defstruct(
        "Shape",
        [field if is_owed(members[name]) and name in covered else (*field, None) for name, field in fields.items()],
        rename={field: name for name, (field, _) in fields.items()},
        forbid_unknown_fields=True,
        kw_only=True,
        gc=False,
    )
    texts = tuple(name for name, proof in proofs.items() if proof.native_text)
    left = tuple((name, check) for name, proof in proofs.items() for check in proof.left)

    def follow_up(value: object, outside: Outside) -> str | None:
        given: Properties = value  # type: ignore[assignment]
        for name in texts:
            text = given.get(name)
            if text is not None and not (text.isascii() or is_text(text)):  # type: ignore[attr-defined, arg-type]
                return NOT_PROVED
        for name, check in left:
            member = given.get(name)
            if member is not None and check(member, outside) is not None:
                return NOT_PROVED
        return None

    return shape, follow_up


def _proof_of(declared: PropertyDeclaration) -> _Proof:
    if declared.members is not None:
        members = {member.name: member for member in declared.members}
        shape, follow_up = _shape(members, frozenset(members))
        return _Proof(shape, (follow_up, *declared.checks))
    native: Any = _TYPES[declared.type]
    limits: dict[str, Any] = {}
    chosen: tuple[object, ...] = ()
    left: list[Check] = []
    if declared.type is PropertyType.NUMBER:
        left.append(_refuse_infinite)
    elif declared.type in _CONTAINERS and declared.items is None:
        left.append(_refuse_no_json)
    for check, keywords in zip(declared.checks, declared.keywords_of_checks, strict=True):
        told, choices = _native_limits(declared.type, keywords), _choices(declared.type, keywords)
        if told and limits.keys().isdisjoint(told):
            limits |= told
        elif choices and not chosen:
            chosen = choices
        else:
            left.append(check)
    if chosen:
        # A choice takes no limits beside it; then each check is made.
        return _Proof(Literal[chosen], declared.checks if limits else tuple(left))
    if declared.items is not None:
        native = list[_proof_of(declared.items).native]  # type: ignore[misc]
    text = declared.type is PropertyType.STRING
    return _Proof(Annotated[native, msgspec.Meta(**limits)] if limits else native, tuple(left), native_text=text)


def _native_limits(kind: PropertyType, keywords: Mapping[str, Any] | None) -> dict[str, Any]:
    numbers = (int, float) if kind is PropertyType.NUMBER else (int,)
    limits = {_LIMITS.get(keyword): limit for keyword, limit in (keywords or {}).items()}
    native = all(key and type(limit) in numbers and abs(limit) <= MAX_NATIVE for key, limit in limits.items())
    return {str(key): limit for key, limit in limits.items()} if native else {}


def _choices(kind: PropertyType, keywords: Mapping[str, Any] | None) -> tuple[object, ...]:
    """The values of an enum, if all are such as the native call compares as JSON does."""
    values: list[Any] = keywords["enum"] if keywords is not None and keywords.keys() == {"enum"} else []
    if kind is PropertyType.STRING:
        fit = all(type(value) is str for value in values)
    else:
        fit = kind is PropertyType.INTEGER and all(
            type(value) is int and abs(value) <= MAX_NATIVE for value in values
        )
    return tuple(dict.fromkeys(values)) if fit else ()


def _refuse_infinite(value: object, _outside: Outside) -> str | None:
    # A float minus itself is zero, unless it is infinite or no number at all.
    return None if value - value == 0 else NOT_PROVED  # type: ignore[operator]


def _refuse_no_json(value: object, _outside: Outside) -> str | None:
    return json_problem(value)
