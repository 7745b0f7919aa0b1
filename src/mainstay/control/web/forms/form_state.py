"""The state of a form: its places and its entries by name.

A place is a declared property with its entry names, its stored value, and whether the user may set it. Building the fields
and reading a posted form walk the same places, so both agree about names and controls. Entries are those of the form as
first shown, as posted, and after a row is added or removed."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from urllib.parse import quote

from mainstay.control.domain.faults import locate
from mainstay.control.domain.properties.contract import Actor, PropertyType
from mainstay.control.domain.properties.declaration import PropertyDeclaration
from mainstay.control.domain.properties.schema import PropertySchema
from mainstay.control.domain.values import Properties
from mainstay.control.operations.machinery.refusals import BadInput
from mainstay.control.web.forms.choices import (
    NO_CHOICES,
    NO_REFERENCES,
    FormChoices,
    enumerated,
    option_type,
    service_choices,
    text_of,
)

# The name of the whole document; names of properties continue it: `p.backup.schedule`, `p.allow.0.port`.
ROOT = "p"
MAX_ROWS = 100
GROUP_RULES = frozenset({"exactlyOne", "atMostOne"})
# What a browser posts for a ticked checkbox.
TICKED = "true"
MAX_ENTRIES = 2_000
# A schema with more entries is shown as one text; the rest is left for rows.
MAX_INITIAL_ENTRIES = 1_500
# The form as a whole as one text in JSON.
DOCUMENT = ROOT

# Names of fields begin with one: values, what was shown, rows, choices between properties, cleared secrets.
PREFIXES = frozenset({"p.", "m.", "r.", "c.", "x."})

FormEntries = Mapping[str, str]


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


def collect_entries(posted: Sequence[tuple[str, str]]) -> dict[str, str]:
    """The entries of properties by name; other entries belong to the page. Of a repeated name the last one counts."""
    if len(posted) > MAX_ENTRIES:
        raise BadInput(f"the form has {len(posted)} fields; at most {MAX_ENTRIES} are allowed")
    return {name: text for name, text in posted if name == DOCUMENT or name[:2] in PREFIXES}


def initial_entries(scope: FormScope) -> dict[str, str]:
    """What a browser would post if the user changed nothing: stored values, or the defaults of a new order."""
    return entries_of(scope, scope.stored or {})


def entries_of(scope: FormScope, values: Mapping[str, object]) -> dict[str, str]:
    """What a browser would post with these values in the form. Secrets are left out."""
    if is_document(scope):
        shown = {} if scope.schema.has_secrets else dict(values)
        return {DOCUMENT: json.dumps(shown, ensure_ascii=False, indent=2) if shown else ""}
    return _field_entries(scope, values)


def is_document(scope: FormScope) -> bool:
    """A free-form type, and a schema with more properties than a form may have fields, is one text in JSON."""
    return scope.schema.members is None or len(_field_entries(scope, scope.stored or {})) > MAX_INITIAL_ENTRIES


def _field_entries(scope: FormScope, values: Mapping[str, object]) -> dict[str, str]:
    found: dict[str, str] = {}
    _write_members(scope, root_members(scope), values, found)
    return found


def new_object_entries(place: FormPlace) -> dict[str, str]:
    """The entries of the members of an object that does not exist yet."""
    found: dict[str, str] = {}
    _write_members(place.scope, place.members(), {}, found)
    return found


def _write_members(
    scope: FormScope, members: tuple[FormPlace, ...], values: Mapping[str, object], found: dict[str, str]
) -> None:
    for group in exclusive_groups(scope, members):
        chosen = _initial_choice(group, values)
        found[group.name] = found[shown_name(group.name)] = chosen
    for member in members:
        _write(member, values.get(member.declared.name), found)


def _initial_choice(group: ExclusiveGroup, values: Mapping[str, object]) -> str:
    for member in group.members:
        default = member.declared.default if member.new else None
        if values.get(member.declared.name) is not None or default is not None:
            return segment_of(member.declared.name)
    return segment_of(group.members[0].declared.name) if group.required and group.members[0].new else ""


def _write(place: FormPlace, value: object | None, found: dict[str, str]) -> None:
    declared = place.declared
    if place.access is not PlaceAccess.EDITABLE:
        return
    if value is None and place.new:
        value = declared.default
    if place.hidden:
        found[place.name] = ""
    elif place.structure is Structure.OBJECT:
        if place.is_optional_object:
            found[shown_name(place.name)] = "1" if isinstance(value, dict) else "0"
        if place.is_optional_object and isinstance(value, dict):
            found[place.name] = TICKED
        _write_members(place.scope, place.members(), value if isinstance(value, dict) else {}, found)
    elif place.structure is Structure.ARRAY:
        _write_rows(place, value if isinstance(value, list) else [], found)
    elif place.is_checkbox:
        found[shown_name(place.name)] = "1"
        if value is True:
            found[place.name] = TICKED
    else:
        found[place.name] = shown_text(place, value)


def _write_rows(place: FormPlace, values: list[object], found: dict[str, str]) -> None:
    for index, value in enumerate(values):
        origin = str(index) if isinstance(place.before, list) else ""
        found[row_name(place.name, index)] = origin
        _write(place.row(index, origin), value, found)
    if not values and place.new and limit_of(place.declared, "minItems", 0):
        _write_new_row(place, 0, found)


def _write_new_row(place: FormPlace, index: int, found: dict[str, str]) -> None:
    found[row_name(place.name, index)] = ""
    _write(place.row(index, ""), None, found)


def shown_text(place: FormPlace, value: object | None) -> str:
    """The text of the control that shows a value."""
    if value is None:
        return ""
    if place.declared.refers:
        references = place.scope.choices.references.get(place.declared.schema_path, NO_REFERENCES)
        texts = {str(each.value): each.text for each in service_choices(references, value)}
        return texts.get(str(value), str(value))
    return text_of(place.declared, value)


def most_rows(declared: PropertyDeclaration) -> int:
    return min(MAX_ROWS, limit_of(declared, "maxItems", MAX_ROWS))


def limit_of(declared: PropertyDeclaration, keyword: str, default: int) -> int:
    value = declared.keywords.get(keyword)
    return int(value) if isinstance(value, int | float) else default


def count_rows(entries: FormEntries, array: str) -> int:
    count = 0
    while count < MAX_ROWS and row_name(array, count) in entries:
        count += 1
    return count


# ---- rows ----
def add_row(scope: FormScope, entries: FormEntries, array: str) -> dict[str, str]:
    """One more row at the end of an array, unless the name is unknown or the array is full."""
    changed = dict(entries)
    place = _find_array(scope, entries, array)
    if place is None:
        return changed
    count = count_rows(entries, array)
    if count < most_rows(place.declared) and len(entries) < MAX_INITIAL_ENTRIES:
        _write_new_row(place, count, changed)
    return changed


def remove_row(entries: FormEntries, row: str) -> dict[str, str]:
    """The entries without one row; the rows below it move up."""
    array, _, index = row.rpartition(".")
    if not (index.isascii() and index.isdigit() and len(index) < 4):
        return dict(entries)
    removed = int(index)
    changed = {}
    for name, text in entries.items():
        number, rest = _row_of(name, array)
        if number is None or number < removed:
            changed[name] = text
        elif number > removed:
            changed[f"{name[:1]}{array[1:]}.{number - 1}{rest}"] = text
    return changed


def _row_of(name: str, array: str) -> tuple[int | None, str]:
    """The row of an array that an entry belongs to, and the rest of its name. None: it belongs to no row."""
    prefix = f"{array[1:]}."
    if not prefix.startswith(".") or not name[1:].startswith(prefix):
        return None, ""
    number, dot, rest = name[1 + len(prefix) :].partition(".")
    if not (number.isascii() and number.isdigit() and len(number) < 4):
        return None, ""
    return int(number), dot + rest


def _find_array(scope: FormScope, entries: FormEntries, name: str) -> FormPlace | None:
    members = root_members(scope)
    while True:
        place = next((each for each in members if name == each.name or name.startswith(f"{each.name}.")), None)
        if place is None or place.access is not PlaceAccess.EDITABLE:
            return None
        if place.structure is Structure.ARRAY:
            if name == place.name:
                return place
            index = name[len(place.name) + 1 :].partition(".")[0]
            rows = range(count_rows(entries, place.name))
            number = next((row for row in rows if str(row) == index), None)
            if number is None:
                return None
            members = (place.row(number, entries[row_name(place.name, number)]),)
        elif place.structure is Structure.OBJECT and name != place.name:
            members = place.members()
        else:
            return None
