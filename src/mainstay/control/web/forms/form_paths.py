"""The places of a form: each declared property with its entry names, its stored value, and whether the user may set it.

Building the fields and reading a posted form walk the same places, so both agree about names and controls."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from enum import Enum
from urllib.parse import quote

from mainstay.control.domain.faults import locate
from mainstay.control.domain.properties.contract import Actor, PropertyType
from mainstay.control.domain.properties.declaration import PropertyDeclaration
from mainstay.control.domain.properties.schema import PropertySchema
from mainstay.control.domain.values import Properties
from mainstay.control.web.forms.choices import NO_CHOICES, FormChoices, enumerated, option_type

# The name of the whole document; names of properties continue it: `p.backup.schedule`, `p.allow.0.port`.
ROOT = "p"
MAX_ROWS = 100
GROUP_RULES = frozenset({"exactlyOne", "atMostOne"})


def _field_name(parent: str, key: str | int) -> str:
    """A property may have any name, so everything but letters, digits and `_-~` is encoded."""
    return f"{parent}.{key}" if isinstance(key, int) else f"{parent}.{segment_of(key)}"


def segment_of(name: str) -> str:
    return quote(name, safe="", errors="surrogatepass").replace(".", "%2E")


def shown_name(name: str) -> str:
    """The hidden entry that records what the form has shown: a checkbox, an optional object, the choice of a group."""
    return f"m{name[1:]}"


def cleared_name(name: str) -> str:
    """The checkbox that clears a stored secret, which an empty text keeps."""
    return f"x{name[1:]}"


def row_name(array: str, index: int) -> str:
    """The hidden entry of a row. Its value is the index of the stored item, or empty for a new row."""
    return f"r{array[1:]}.{index}"


def _group_name(first_member: str) -> str:
    """The entry that chooses between properties that exclude each other."""
    return f"c{first_member[1:]}"


class PlaceAccess(Enum):
    EDITABLE = "the user may set it"
    FILLED = "the system or the agent sets it"
    FIXED = "immutable, or not in this state"


class Structure(Enum):
    OBJECT = "members below each other"
    ARRAY = "rows"
    JSON = "one text in JSON"
    BOOLEAN = "a checkbox, or yes and no"
    SCALAR = "one text"


@dataclass(frozen=True, slots=True, eq=False)
class FormScope:
    """What a form is for. `stored` and `state` of None: a new order."""

    schema: PropertySchema
    stored: Properties | None = None
    state: str | None = None
    choices: FormChoices = field(default=NO_CHOICES)

    @property
    def creating(self) -> bool:
        return self.stored is None


@dataclass(frozen=True, slots=True, eq=False)
class ExclusiveGroup:
    """Properties of one object of which at most one may be set."""

    required: bool
    members: tuple[FormPlace, ...]

    @property
    def name(self) -> str:
        return _group_name(self.members[0].name)


@dataclass(frozen=True, slots=True, eq=False)
class FormPlace:
    scope: FormScope
    declared: PropertyDeclaration
    name: str
    path: str
    # The stored value. None: unset.
    before: object | None
    # The enclosing value does not exist yet, so defaults apply.
    new: bool
    # The value is a row of an array, or below one.
    in_row: bool = False
    is_row: bool = False
    # The value is one of several properties that exclude each other, which the hint of the group states.
    is_grouped: bool = False

    @property
    def access(self) -> PlaceAccess:
        declared, state = self.declared, self.scope.state
        if Actor.USER not in declared.actors:
            return PlaceAccess.FILLED
        if self.scope.creating or self.new:
            return PlaceAccess.EDITABLE
        if any(each.states is not None and state not in each.states for each in declared.permissions):
            return PlaceAccess.FIXED
        if declared.immutable and self.before is not None:
            return PlaceAccess.FIXED
        return PlaceAccess.EDITABLE

    @property
    def structure(self) -> Structure:
        declared = self.declared
        if declared.secret is not None or self.is_choice:
            return Structure.SCALAR
        if declared.members is not None:
            return Structure.OBJECT
        if declared.items is not None and self._fits_rows():
            return Structure.ARRAY
        if declared.type in (PropertyType.JSON, PropertyType.OBJECT, PropertyType.ARRAY):
            return Structure.JSON
        return Structure.BOOLEAN if declared.type is PropertyType.BOOLEAN else Structure.SCALAR

    def _fits_rows(self) -> bool:
        longest = self.declared.default if self.before is None else self.before
        return not isinstance(longest, list) or len(longest) <= MAX_ROWS

    @property
    def is_choice(self) -> bool:
        declared = self.declared
        return (
            declared.generate is None
            and not declared.holds_secret
            and (enumerated(declared) is not None or option_type(declared) is not None)
        )

    @property
    def can_clear_secret(self) -> bool:
        """A stored secret that the service can be without. One in a row goes with its row."""
        return self.hidden and self.before is not None and not self.declared.required and not self.is_row

    @property
    def hidden(self) -> bool:
        """Typed values are never shown again."""
        return self.declared.secret is not None or (self.structure is Structure.JSON and self.declared.holds_secret)

    @property
    def is_checkbox(self) -> bool:
        """Otherwise "not set" must be possible beside yes and no."""
        declared = self.declared
        has_value = declared.required or declared.default is not None
        return self.structure is Structure.BOOLEAN and has_value and (self.new or self.before is not None)

    @property
    def is_optional_object(self) -> bool:
        """A checkbox decides whether the object is given at all."""
        return self.structure is Structure.OBJECT and not self.declared.required and not self.is_row

    def members(self) -> tuple[FormPlace, ...]:
        before = self.before if isinstance(self.before, dict) else {}
        new = self.new or self.before is None
        return tuple(
            FormPlace(
                self.scope,
                member,
                _field_name(self.name, member.name),
                locate(self.path, member.name),
                before.get(member.name),
                new,
                self.in_row,
            )
            for member in self.declared.members or ()
        )

    def row(self, index: int, origin: str, shown_index: int | None = None) -> FormPlace:
        """`origin` is the index of the stored item; any other text means a new row."""
        if self.declared.items is None:
            raise TypeError(f"{self.path} has no rows")
        stored = self.before if isinstance(self.before, list) else []
        number = int(origin) if origin.isascii() and origin.isdigit() and len(origin) < 6 else len(stored)
        before = stored[number] if number < len(stored) else None
        return FormPlace(
            self.scope,
            self.declared.items,
            _field_name(self.name, index),
            locate(self.path, index if shown_index is None else shown_index),
            before,
            self.new or before is None,
            in_row=True,
            is_row=True,
        )


def root_members(scope: FormScope) -> tuple[FormPlace, ...]:
    stored = scope.stored or {}
    return tuple(
        FormPlace(
            scope,
            member,
            _field_name(ROOT, member.name),
            locate("", member.name),
            stored.get(member.name),
            scope.creating,
        )
        for member in scope.schema.members or ()
    )


def exclusive_groups(scope: FormScope, members: tuple[FormPlace, ...]) -> tuple[ExclusiveGroup, ...]:
    """The rules `exactlyOne` and `atMostOne` whose properties are all members of this object and editable. A property
    belongs to the first such rule; the server checks all of them."""
    editable = {
        each.declared.schema_path: each
        for each in members
        if each.access is PlaceAccess.EDITABLE and not each.in_row and not each.declared.required
    }
    groups = []
    for comparison in scope.schema.comparisons:
        paths = comparison.config.get("properties")
        if (
            comparison.rule.name not in GROUP_RULES
            or not isinstance(paths, list)
            or not editable.keys() >= set(paths)
        ):
            continue
        found = tuple(replace(editable.pop(path), is_grouped=True) for path in dict.fromkeys(paths))
        groups.append(ExclusiveGroup(comparison.rule.name == "exactlyOne", found))
    return tuple(groups)
