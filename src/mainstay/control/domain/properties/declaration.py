"""One declared property: what was written about it, checked, with its rules compiled. It decides nothing."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from mainstay.control.domain.properties.contract import (
    Actor,
    Check,
    Generate,
    Judge,
    NamedProperty,
    Permission,
    PropertyType,
    SecretKind,
)
from mainstay.control.domain.values import Properties


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class PropertyDeclaration:
    """One declared property. None as a default, generator, secret, members or items means that it has none."""

    name: str
    # Where it stands in every document, items written as `[]`: `users[].password`.
    schema_path: str
    # Where its definition stands in the schema.
    definition_path: str
    type: PropertyType
    # A reference, or a uuid that a validator makes one.
    refers: bool
    label: str | None
    required: bool
    immutable: bool
    default: object | None
    # Written by the author; `judges` also holds the rule that follows where nobody wrote one.
    permissions: tuple[Permission, ...]
    # Who passes every rule about actors, here and in the objects around.
    actors: frozenset[Actor]
    judges: tuple[Judge, ...]
    secret: SecretKind | None
    generate: Generate | None
    pool_type: str | None
    checks: tuple[Check, ...]
    keywords: Properties = field(repr=False)
    members: tuple[PropertyDeclaration, ...] | None
    items: PropertyDeclaration | None

    @property
    def agent_only(self) -> bool:
        """The user cannot set it, so nobody can demand it of the user."""
        return Actor.AGENT in self.actors and Actor.USER not in self.actors

    def below(self) -> Iterator[PropertyDeclaration]:
        """This property and everything declared inside it."""
        yield self
        for child in self.members or ():
            yield from child.below()
        if self.items is not None:
            yield from self.items.below()

    @property
    def holds_secret(self) -> bool:
        return any(inner.secret for inner in self.below())


class NamedProperties:
    """The properties a schema validator may name: all that stand in objects, none that stand in arrays."""

    def __init__(self, members: tuple[PropertyDeclaration, ...]) -> None:
        self._named: dict[str, NamedProperty] = {}
        self._add(members, ())

    def _add(self, members: tuple[PropertyDeclaration, ...], outer: tuple[str, ...]) -> None:
        for member in members:
            names = (*outer, member.name)
            path = member.schema_path
            self._named[path] = NamedProperty(path, names, member.type, secret=member.holds_secret)
            self._add(member.members or (), names)

    def find(self, path: str) -> NamedProperty | None:
        return self._named.get(path)
