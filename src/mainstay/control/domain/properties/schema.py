"""A property schema as a value: the declared properties, their closures, and the rules between properties."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property

from mainstay.control.domain.properties.compile import Members, compile_members
from mainstay.control.domain.properties.contract import Compare, SchemaValidator
from mainstay.control.domain.properties.declaration import PropertyDeclaration


@dataclass(frozen=True, slots=True, eq=False)
class PropertyComparison:
    """A compiled schema validator, with its configuration for the export."""

    rule: SchemaValidator
    config: Mapping[str, object]
    compare: Compare


@dataclass(frozen=True, eq=False)
class PropertySchema:
    """`members` None: free-form. Empty: no property is allowed."""

    # The document as it was given.
    source: object
    members: tuple[PropertyDeclaration, ...] | None
    comparisons: tuple[PropertyComparison, ...] = ()

    @cached_property
    def root(self) -> Members:
        """The compiled form, built at the first use."""
        return compile_members(self.members or ())

    def every(self) -> Iterator[PropertyDeclaration]:
        for member in self.members or ():
            yield from member.below()

    @cached_property
    def has_secrets(self) -> bool:
        return any(declared.secret for declared in self.every())

    @cached_property
    def has_pools(self) -> bool:
        return any(declared.pool_type for declared in self.every())

    @cached_property
    def has_references(self) -> bool:
        return any(declared.refers for declared in self.every())


FREE_FORM = PropertySchema(None, None)
