"""A posted form to the document of an API body. What the user typed is kept as it is, except for secrets."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from math import inf

from mainstay.control.domain.faults import PathFault
from mainstay.control.domain.properties.contract import PropertyType
from mainstay.control.domain.values import Properties, canonical, is_uuid, json_problem
from mainstay.control.web.forms.choices import NO_REFERENCES, service_choices, value_choices
from mainstay.control.web.forms.form_state import (
    DOCUMENT,
    TICKED,
    ExclusiveGroup,
    FormEntries,
    FormPlace,
    FormScope,
    PlaceAccess,
    Structure,
    cleared_name,
    collect_entries,
    count_rows,
    exclusive_groups,
    is_document,
    new_object_entries,
    remove_row,
    root_members,
    row_name,
    segment_of,
    shown_name,
    shown_text,
)

NUMBER = re.compile(r"-?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][+-]?[0-9]+)?", re.ASCII)
MAX_NUMBER_LENGTH = 400
LINE_BREAKS = re.compile(r"\r\n?")


class _Reading(Enum):
    # The user cannot set it here, or left a stored secret alone.
    UNTOUCHED = "untouched"


UNTOUCHED = _Reading.UNTOUCHED


@dataclass(frozen=True, slots=True)
class PostedForm:
    """`entries` contains no secret; `retype` names the secrets that were typed and must be typed again."""

    document: Properties
    entries: FormEntries
    # Without rows that have no value, so that the rows are numbered as in the document and its faults.
    numbered_entries: FormEntries
    retype: frozenset[str]
    faults: tuple[PathFault, ...]
    # (schema path, text) of references that are neither an id nor the name of a listed service.
    unknown_references: tuple[tuple[str, str], ...] = ()


def read_posted(scope: FormScope, posted: Sequence[tuple[str, str]]) -> PostedForm:
    reader = _Reader(collect_entries(posted))
    if is_document(scope):
        document = reader.read_document(scope)
    else:
        document = reader.read_members(scope, root_members(scope), merge=True)
    # A name that the form no longer has may have been that of a secret.
    kept = reader.known - reader.secrets
    entries = {name: text for name, text in reader.entries.items() if name in kept}
    numbered = entries
    for row in reversed(reader.empty_rows):
        numbered = remove_row(numbered, row)
    return PostedForm(
        document,
        entries,
        numbered,
        frozenset(reader.secrets),
        tuple(reader.faults),
        tuple(reader.unknown_references),
    )


class _Reader:
    def __init__(self, entries: Mapping[str, str]) -> None:
        self.entries = {name: LINE_BREAKS.sub("\n", text) for name, text in entries.items()}
        # Names that the form has.
        self.known: set[str] = set()
        # Names of the secrets that were typed.
        self.secrets: set[str] = set()
        # Names of rows without a value.
        self.empty_rows: list[str] = []
        self.unknown_references: list[tuple[str, str]] = []
        self.faults: list[PathFault] = []

    def text_of(self, name: str) -> str | None:
        self.known.add(name)
        return self.entries.get(name)

    def read_document(self, scope: FormScope) -> Properties:
        text = self.text_of(DOCUMENT) or ""
        if scope.schema.has_secrets and text:
            self.secrets.add(DOCUMENT)
        if not text.strip():
            return {}
        value = self.read_json(text, "")
        if value is None or isinstance(value, dict):
            return self.with_removals(scope, value or {})
        self.faults.append(PathFault("", 'the properties must be a JSON object, such as {"size": 3}'))
        return {}

    def with_removals(self, scope: FormScope, document: Properties) -> Properties:
        """A property that was shown and is no longer in the text is cleared."""
        shown = {} if scope.schema.has_secrets else scope.stored or {}
        return {**dict.fromkeys(shown.keys() - document.keys()), **document}

    def read_members(self, scope: FormScope, members: tuple[FormPlace, ...], *, merge: bool) -> Properties:
        """With `merge`, the server keeps members that are not in the document; without, as in arrays, it drops them."""
        groups = exclusive_groups(scope, members)
        chosen = {group.name: self.chosen_member(group) for group in groups}
        ticked = frozenset(each.name for each in chosen.values() if each is not None)
        found = {place.name: self.read(place, merge=merge, ticked=place.name in ticked) for place in members}
        for group in groups:
            for name in self.excluded(group, chosen[group.name], found):
                found[name] = None
        document: Properties = {}
        for place in members:
            value = found[place.name]
            kept = place.before if value is UNTOUCHED and not merge else value
            if kept is UNTOUCHED or (kept is None and (place.before is None or not merge)):
                continue
            document[place.declared.name] = kept
        return document

    def chosen_member(self, group: ExclusiveGroup) -> FormPlace | None:
        chosen = self.text_of(group.name) or ""
        return next((each for each in group.members if segment_of(each.declared.name) == chosen), None)

    def excluded(self, group: ExclusiveGroup, chosen: FormPlace | None, found: Mapping[str, object]) -> list[str]:
        """The chosen property excludes the others. Without a value for it the others count as typed, because the user
        may have filled in another property without choosing it."""
        names = [each.name for each in group.members]
        if chosen is None:
            was_chosen = (self.text_of(shown_name(group.name)) or "") != (self.text_of(group.name) or "")
            return names if was_chosen else []
        value = found[chosen.name]
        if value is None or (value is UNTOUCHED and chosen.before is None):
            return []
        return [name for name in names if name != chosen.name]

    def read(self, place: FormPlace, *, merge: bool, ticked: bool = False) -> object:
        if place.access is not PlaceAccess.EDITABLE:
            return UNTOUCHED
        if place.hidden:
            return self.read_secret(place)
        if place.structure is Structure.OBJECT:
            return self.read_object(place, merge=merge, ticked=ticked)
        if place.structure is Structure.ARRAY:
            return self.read_rows(place)
        if place.is_checkbox:
            shown, ticked_text = self.text_of(shown_name(place.name)), self.text_of(place.name)
            return UNTOUCHED if shown is None else ticked_text == TICKED
        text = self.text_of(place.name)
        if text is None:
            return UNTOUCHED
        if place.before is not None and text == LINE_BREAKS.sub("\n", shown_text(place, place.before)):
            return place.before
        return self.read_text(place, text) if text.strip() else _text_or_none(place, text)

    def read_object(self, place: FormPlace, *, merge: bool, ticked: bool) -> object:
        faults = len(self.faults)
        document = self.read_members(place.scope, place.members(), merge=merge)
        shown, ticked_text = self.text_of(shown_name(place.name)), self.text_of(place.name)
        if not place.is_optional_object or ticked or ticked_text == TICKED:
            return document
        if shown != "0":
            del self.faults[faults:]
            return UNTOUCHED if shown is None else None
        untouched = _Reader(new_object_entries(place)).read_members(place.scope, place.members(), merge=merge)
        return None if canonical(document) == canonical(untouched) else document

    def read_rows(self, place: FormPlace) -> object:
        values: list[object] = []
        for index in range(count_rows(self.entries, place.name)):
            origin = self.text_of(row_name(place.name, index)) or ""
            row = place.row(index, origin, shown_index=len(values))
            value = self.read(row, merge=False)
            if value is UNTOUCHED:
                value = row.before
            if value is None:
                self.empty_rows.append(row.name)
            else:
                values.append(value)
        declared = place.declared
        has_other_value = declared.default is not None or place.before is not None
        return values if values or declared.required or place.is_row or has_other_value else None

    def read_secret(self, place: FormPlace) -> object:
        text = self.text_of(place.name) or ""
        is_cleared = place.can_clear_secret and self.text_of(cleared_name(place.name)) == TICKED
        if not text:
            return None if is_cleared else UNTOUCHED
        self.secrets.add(place.name)
        if place.declared.type is PropertyType.BOOLEAN:
            return {"true": True, "false": False}.get(text.strip(), text)
        return self.read_text(place, text)

    def read_text(self, place: FormPlace, text: str) -> object:
        """The value of a text. A text that is not of the type is sent as it is, so that the server names the fault."""
        declared = place.declared
        if declared.secret is None and place.is_choice:
            found = value_choices(declared, place.scope.choices, place.before)
            chosen = next((each for each in found if LINE_BREAKS.sub("\n", each.text) == text), None)
            return text if chosen is None else chosen.value
        if declared.refers:
            return self.read_reference(place, text.strip())
        if place.structure is Structure.JSON or declared.type is PropertyType.JSON:
            return self.read_json(text, place.path)
        if declared.type in (PropertyType.INTEGER, PropertyType.NUMBER):
            return _number(text.strip())
        if declared.type is PropertyType.BOOLEAN:
            return {"true": True, "false": False}.get(text, text)
        return text

    def read_reference(self, place: FormPlace, text: str) -> object:
        references = place.scope.choices.references.get(place.declared.schema_path, NO_REFERENCES)
        choices = service_choices(references, place.before)
        exact = next((each for each in choices if each.text == text), None)
        if exact is not None:
            return exact.value
        named = [each for each in choices if each.label == text]
        if len(named) > 1:
            self.faults.append(PathFault(place.path, f"{len(named)} services are named {text}; enter the id of one"))
        if not named and not is_uuid(text):
            self.unknown_references.append((place.declared.schema_path, text))
        return named[0].value if len(named) == 1 else text

    def read_json(self, text: str, path: str) -> object:
        try:
            value = json.loads(text, object_pairs_hook=_unique_members, parse_constant=_refuse_constant)
        except RecursionError:
            self.faults.append(PathFault(path, "not JSON: nested too deeply"))
        except json.JSONDecodeError as error:
            place = f"line {error.lineno}, column {error.colno}"
            self.faults.append(PathFault(path, f"not JSON: {error.msg} at {place}"))
        except ValueError as error:
            self.faults.append(PathFault(path, f"not JSON: {error}"))
        else:
            problem = json_problem(value)
            if problem is None:
                return value
            self.faults.append(PathFault(path, f"not JSON: {problem}"))
        return None


def _text_or_none(place: FormPlace, text: str) -> object | None:
    """Blank text is a value only where text is the value."""
    is_text = place.declared.type is PropertyType.STRING and not place.is_choice
    return text if text and is_text else None


def _number(text: str) -> object:
    if len(text) > MAX_NUMBER_LENGTH or NUMBER.fullmatch(text) is None:
        return text
    number = json.loads(text)
    # A number beyond the doubles would be sent as no JSON at all.
    return text if number in (inf, -inf) else number


def _unique_members(members: list[tuple[str, object]]) -> Properties:
    found = dict(members)
    if len(found) < len(members):
        raise ValueError("an object contains a key twice")
    return found


def _refuse_constant(name: str) -> object:
    raise ValueError(f"{name} is not a JSON number")
