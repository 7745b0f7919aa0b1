"""Structs whose fields derive from the declaration of a noun."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal, TypeVar

import msgspec

from mainstay import nouns
from mainstay.control.store.engine.records import Record

S = TypeVar("S", bound=msgspec.Struct)
R = TypeVar("R", bound=Record)
# Name, type and default of a field; without a default, a value is required.
Field = tuple[str, Any] | tuple[str, Any, Any]
_ROW_TYPES: dict[str, Any] = {
    **dict.fromkeys((nouns.NAME, nouns.TAG, nouns.WORD, nouns.LINE, nouns.TEXT, nouns.MEDIA_TYPE, nouns.ID), str),
    nouns.INTEGER: int,
    nouns.BOOLEAN: bool,
    nouns.IDS: list[str],
    nouns.TAGS: list[str],
    nouns.OBJECT: dict[str, object],
    nouns.ANY: object,
}


def row_of(noun: nouns.Noun) -> Callable[[type[R]], type[R]]:
    """Gives a row the members of its noun. The class itself has those that rules read, which mypy checks, and columns
    that no request sets."""
    return lambda cls: declared_struct(cls, noun.all_members, _ROW_TYPES)


def declared_struct(cls: type[S], members: tuple[nouns.Member, ...], types: dict[str, Any]) -> type[S]:
    """The class with the members. A member that the class has too keeps its default there, or has none, as there."""
    inherited = {name for base in cls.__bases__ for name in getattr(base, "__struct_fields__", ())}
    written = {each.name: each for each in msgspec.structs.fields(cls) if each.name not in inherited}
    found: list[Field] = []
    for member in members:
        own = written.pop(member.field, None)
        kind = Literal[tuple(member.choices)] if member.kind == nouns.CHOICE else types[member.kind]
        required = member.required if own is None else own.required
        default = member.default if own is None else _default(own)
        found.append(_field(member.field, kind, required=required, default=default))
    for each in written.values():
        found.append((each.name, each.type) if each.required else (each.name, each.type, _default(each)))
    return msgspec.defstruct(  # type: ignore[return-value]
        cls.__name__, found, bases=cls.__bases__, module=cls.__module__, frozen=True, kw_only=True
    )


def _default(field: msgspec.structs.FieldInfo) -> Any:
    return field.default if field.default_factory is msgspec.NODEFAULT else field.default_factory()


def _field(name: str, kind: Any, *, required: bool, default: object) -> Field:
    if required:
        return (name, kind)
    # `object` has null already.
    return (name, kind, default) if default is not None or kind is object else (name, kind | None, None)
