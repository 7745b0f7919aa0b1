"""A declared property as a value: its checked definition, with its rules compiled."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from mainstay.control.domain.properties.contract import (
    Actor,
    Authorize,
    Check,
    Generate,
    NamedProperty,
    NamedRule,
    Permission,
    PropertyType,
    SecretKind,
)
from mainstay.control.domain.values import Properties


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class PropertyDeclaration:
    """A default, generator, secret, members or items of None: the property has none."""

    name: str
    # Its path in documents, with `[]` for items: `users[].password`.
    schema_path: str
    # The path of its definition in the schema.
    definition_path: str
    type: PropertyType
    # A reference, or a uuid with the validator `serviceReference`.
    refers: bool
    label: str | None
    required: bool
    immutable: bool
    default: object | None
    # As declared; `authorizations` also contains the default rule about actors.
    permissions: tuple[Permission, ...]
    # The actors that pass every rule about actors, here and in the enclosing objects.
    actors: frozenset[Actor]
    authorizations: tuple[Authorize, ...]
    secret: SecretKind | None
    generate: Generate | None
    # As written. `generate` and `checks` are their compiled forms.
    generator: NamedRule | None
    validators: tuple[NamedRule, ...]
    pool_type: str | None
    checks: tuple[Check, ...]
    keywords: Properties = field(repr=False)
    members: tuple[PropertyDeclaration, ...] | None
    items: PropertyDeclaration | None

    @property
    def agent_only(self) -> bool:
        """The user cannot set it, so it is not required of the user."""
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
    """The properties that a schema validator may name: those in objects, not those in arrays."""

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
