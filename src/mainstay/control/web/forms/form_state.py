"""The entries of a form by name: those of the form as first shown, and those after a row is added or removed."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence

from mainstay.control.domain.properties.declaration import PropertyDeclaration
from mainstay.control.operations.machinery.refusals import BadInput
from mainstay.control.web.forms.choices import NO_REFERENCES, service_choices, text_of
from mainstay.control.web.forms.form_paths import (
    MAX_ROWS,
    ROOT,
    ExclusiveGroup,
    FormPlace,
    FormScope,
    PlaceAccess,
    Structure,
    exclusive_groups,
    root_members,
    row_name,
    segment_of,
    shown_name,
)

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
