"""Walks stored properties along their schema: values, secrets, pool values and references."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

from mainstay.control.domain.faults import locate
from mainstay.control.domain.properties.contract import SecretKind
from mainstay.control.domain.properties.declaration import PropertyDeclaration
from mainstay.control.domain.properties.evaluation import PoolTake
from mainstay.control.domain.properties.schema import PropertySchema
from mainstay.control.domain.values import Properties
from mainstay.foundation.vault import is_vault_reference

OPTION_RULE = "serviceOption"


class StoredReference(NamedTuple):
    path: str
    service_id: str


@dataclass(frozen=True, slots=True)
class StoredValue:
    """A stored value with the paths of the enclosing objects, the innermost first."""

    path: str
    value: object
    enclosing: tuple[str, ...]


def values_in(schema: PropertySchema, properties: Properties) -> Iterator[StoredValue]:
    """Every value that is set: the members of declared objects separately, any other value as a whole."""
    if schema.members is None:
        yield from (StoredValue(locate("", name), value, ()) for name, value in properties.items())
    else:
        yield from _values(schema.members, properties, "", ())


def _values(
    members: tuple[PropertyDeclaration, ...], properties: Properties, parent: str, enclosing: tuple[str, ...]
) -> Iterator[StoredValue]:
    for member in members:
        value = properties.get(member.name)
        path = locate(parent, member.name)
        if member.members is not None and isinstance(value, dict):
            yield from _values(member.members, value, path, (path, *enclosing))
        elif value is not None:
            yield StoredValue(path, value, enclosing)


class SecretPlace(NamedTuple):
    """A vault reference where a schema declares a secret. A secret opens only for its own place."""

    reference: str
    schema_path: str
    kind: SecretKind


def secrets_in(schema: PropertySchema, properties: Properties) -> tuple[SecretPlace, ...]:
    """Every vault reference, with its place in the schema."""
    return tuple(
        SecretPlace(value, declared.schema_path, declared.secret)
        for declared, _, value in _leaves(schema, properties, lambda declared: declared.secret is not None)
        if declared.secret is not None and isinstance(value, str) and is_vault_reference(value)
    )


def references_in(schema: PropertySchema, properties: Properties) -> tuple[StoredReference, ...]:
    found = _leaves(schema, properties, lambda declared: declared.refers)
    return tuple(StoredReference(path, value.lower()) for _, path, value in found if isinstance(value, str))


def pool_values_in(schema: PropertySchema, properties: Properties) -> tuple[PoolTake, ...]:
    found = _leaves(schema, properties, lambda declared: declared.pool_type is not None)
    return tuple(PoolTake(path, declared.pool_type or "", value) for declared, path, value in found)


def without_secrets(schema: PropertySchema, properties: Properties, *kinds: SecretKind) -> Properties:
    """The properties without secrets of these kinds."""
    return rewrite_secrets(schema, properties, lambda declared, _, value: None if declared.secret in kinds else value)


Wanted = Callable[[PropertyDeclaration], bool]
# (declaration, path, value) → the value to keep. None: removed.
Rewrite = Callable[[PropertyDeclaration, str, object], object | None]


def rewrite_secrets(schema: PropertySchema, properties: Properties, rewrite: Rewrite) -> Properties:
    """The properties with the value of every secret property replaced or removed."""
    return _rewrite(schema, properties, lambda declared: declared.secret is not None, rewrite)


def rewrite_pool_values(schema: PropertySchema, properties: Properties, rewrite: Rewrite) -> Properties:
    """The properties with every value of a pool replaced or removed."""
    return _rewrite(schema, properties, lambda declared: declared.pool_type is not None, rewrite)


def _rewrite(schema: PropertySchema, properties: Properties, wanted: Wanted, rewrite: Rewrite) -> Properties:
    if schema.members is None:
        return properties
    return _rewrite_members(schema.members, properties, "", wanted, rewrite)


def _rewrite_members(
    members: tuple[PropertyDeclaration, ...], properties: Properties, parent: str, wanted: Wanted, rewrite: Rewrite
) -> Properties:
    declared = {member.name: member for member in members}
    kept: Properties = {}
    for name, value in properties.items():
        member = declared.get(name)
        found = value if member is None else _rewritten(member, value, locate(parent, name), wanted, rewrite)
        if found is not None:
            kept[name] = found
    return kept


def _rewritten(
    declared: PropertyDeclaration, value: object, path: str, wanted: Wanted, rewrite: Rewrite
) -> object | None:
    if wanted(declared):
        return rewrite(declared, path, value)
    if declared.members is not None and isinstance(value, dict):
        return _rewrite_members(declared.members, value, path, wanted, rewrite)
    if declared.items is not None and isinstance(value, list):
        places = ((item, locate(path, index)) for index, item in enumerate(value))
        items = [_rewritten(declared.items, item, place, wanted, rewrite) for item, place in places]
        return [item for item in items if item is not None]
    return value


def option_values_in(
    schema: PropertySchema, properties: Properties
) -> Iterator[tuple[PropertyDeclaration, str, object]]:
    """Values that must be options of the provider: (declaration, path, value). Not secrets, which are references here."""
    return _leaves(schema, properties, lambda declared: declared.secret is None and _is_option(declared))


def _is_option(declared: PropertyDeclaration) -> bool:
    return any(rule.name == OPTION_RULE for rule in declared.validators)


def _leaves(
    schema: PropertySchema, properties: Properties, wanted: Callable[[PropertyDeclaration], bool]
) -> Iterator[tuple[PropertyDeclaration, str, object]]:
    for member in schema.members or ():
        yield from _leaves_of(member, properties.get(member.name), locate("", member.name), wanted)


def _leaves_of(
    declared: PropertyDeclaration, value: object, path: str, wanted: Callable[[PropertyDeclaration], bool]
) -> Iterator[tuple[PropertyDeclaration, str, object]]:
    if value is None:
        return
    if wanted(declared):
        yield declared, path, value
    if declared.members is not None and isinstance(value, dict):
        for member in declared.members:
            yield from _leaves_of(member, value.get(member.name), locate(path, member.name), wanted)
    elif declared.items is not None and isinstance(value, list):
        for index, item in enumerate(value):
            yield from _leaves_of(declared.items, item, locate(path, index), wanted)
