"""A property schema, with what was typed and what the server refused, to the fields of a form as plain values."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum

from mainstay.control.domain.faults import PathFault
from mainstay.control.domain.properties.contract import PropertyType
from mainstay.control.web.forms.choices import (
    NO_REFERENCES,
    ValueChoice,
    option_type,
    service_choices,
    value_choices,
)
from mainstay.control.web.forms.form_state import (
    DOCUMENT,
    MAX_INITIAL_ENTRIES,
    TICKED,
    ExclusiveGroup,
    FormEntries,
    FormPlace,
    FormScope,
    PlaceAccess,
    Structure,
    cleared_name,
    count_rows,
    exclusive_groups,
    is_document,
    limit_of,
    most_rows,
    root_members,
    row_name,
    segment_of,
    shown_name,
)
from mainstay.control.web.forms.hints import (
    count_limits,
    describe_source,
    hints_of,
    number_range,
    show_value,
    source_icon,
)

MAX_SEGMENTS = 4
MAX_CARDS = 6
# A secret that may be longer, such as a private key, may have several lines.
ONE_LINE_LENGTH = 255
NOT_SET = ValueChoice(None, "", "Not set")
YES_NO = (
    ValueChoice(value=True, text="true", label="Yes"),
    ValueChoice(value=False, text="false", label="No"),
    NOT_SET,
)
WORDS = re.compile(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])|[0-9]+|[^\W\d_]+")


class ControlKind(StrEnum):
    TEXT = "text"
    LINES = "lines"
    NUMBER = "number"
    CHECK = "check"
    SEGMENTS = "segments"
    CARDS = "cards"
    SELECT = "select"
    SEARCH = "search"
    JSON = "json"
    MASKED = "masked"
    MASKED_LINES = "masked_lines"
    OBJECT = "object"
    ARRAY = "array"
    ONE_OF = "one_of"
    GIVEN = "given"


NARROW = frozenset(
    {
        ControlKind.TEXT,
        ControlKind.NUMBER,
        ControlKind.CHECK,
        ControlKind.SEGMENTS,
        ControlKind.SELECT,
        ControlKind.SEARCH,
        ControlKind.MASKED,
        ControlKind.GIVEN,
    }
)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class FormField:
    """One control. `name` is the name of its entry and the id of its element."""

    kind: ControlKind
    name: str
    path: str
    label: str
    required: bool = False
    text: str = ""
    checked: bool = False
    # The name and value of a hidden entry that belongs to the control; an empty name: none.
    shown_name: str = ""
    shown: str = ""
    choices: tuple[ValueChoice, ...] = ()
    # Behind the label: "exactly one", "1 to 16".
    note: str = ""
    # At the end of the control: a range, a unit.
    unit: str = ""
    placeholder: str = ""
    hints: tuple[str, ...] = ()
    faults: tuple[str, ...] = ()
    monospaced: bool = False
    is_integer: bool = False
    has_toggle: bool = False
    icon: str = ""
    members: tuple[FormField, ...] = ()
    rows: tuple[FormRow, ...] = ()
    can_add: bool = False
    noun: str = ""

    @property
    def is_narrow(self) -> bool:
        return self.kind in NARROW

    @property
    def blocks(self) -> tuple[FieldBlock, ...]:
        return _field_blocks(self.members)

    @property
    def has_flat_rows(self) -> bool:
        """Each row is an object whose members fit side by side."""
        return bool(self.rows) and all(
            row.field.kind is ControlKind.OBJECT and all(each.is_narrow for each in row.field.members)
            for row in self.rows
        )

    def every(self) -> Iterator[FormField]:
        yield self
        for member in self.members:
            yield from member.every()
        for row in self.rows:
            yield from row.field.every()


@dataclass(frozen=True, slots=True, eq=False)
class FormRow:
    index: int
    # The hidden entry of the row.
    name: str
    origin: str
    field: FormField


@dataclass(frozen=True, slots=True)
class PlacedFault:
    """`field_name` None: no field of the form belongs to the fault."""

    path: str
    message: str
    field_name: str | None


@dataclass(frozen=True, slots=True, eq=False)
class FieldBlock:
    """Neighbouring fields: narrow ones side by side, a wide one by itself."""

    narrow: bool
    fields: tuple[FormField, ...]


@dataclass(frozen=True, slots=True, eq=False)
class FormSection:
    title: str
    path: str
    text: str
    field: FormField | None
    blocks: tuple[FieldBlock, ...]


@dataclass(frozen=True, slots=True, eq=False)
class PropertyForm:
    fields: tuple[FormField, ...]
    faults: tuple[PlacedFault, ...]

    def every(self) -> Iterator[FormField]:
        for each in self.fields:
            yield from each.every()

    @property
    def sections(self) -> tuple[FormSection, ...]:
        return _sections(self.fields)

    @property
    def secrets(self) -> tuple[FormField, ...]:
        return tuple(each for each in self.every() if each.kind in (ControlKind.MASKED, ControlKind.MASKED_LINES))


def build_form(
    scope: FormScope,
    entries: FormEntries,
    *,
    faults: Sequence[PathFault] = (),
    retype: frozenset[str] = frozenset(),
) -> PropertyForm:
    """`retype` names secrets that were typed before and must be typed again."""
    builder = _Builder(scope, entries, faults, retype)
    fields = (builder.document(),) if is_document(scope) else builder.members(root_members(scope))
    return PropertyForm(fields, builder.placed())


@dataclass(frozen=True, slots=True, eq=False)
class _Builder:
    scope: FormScope
    entries: FormEntries
    faults: Sequence[PathFault]
    retype: frozenset[str]
    # Index of a fault → name of the field that shows it.
    placed_at: dict[int, str] = field(default_factory=dict)

    def placed(self) -> tuple[PlacedFault, ...]:
        return tuple(
            PlacedFault(fault.path, fault.message, self.placed_at.get(index))
            for index, fault in enumerate(self.faults)
        )

    def take_faults(self, name: str, path: str, *, below: bool = False) -> tuple[str, ...]:
        """The faults at a path; with `below` also those inside the value, which has no fields of its own."""
        found = []
        for index, fault in enumerate(self.faults):
            if index in self.placed_at:
                continue
            if fault.path == path:
                found.append(fault.message)
            elif below and (not path or fault.path.startswith((f"{path}.", f"{path}["))):
                found.append(str(fault))
            else:
                continue
            self.placed_at[index] = name
        return tuple(found)

    def document(self) -> FormField:
        has_secrets = self.scope.schema.has_secrets
        kind = ControlKind.MASKED_LINES if has_secrets else ControlKind.JSON
        free = self.scope.schema.members is None
        return FormField(
            kind=kind,
            name=DOCUMENT,
            path="properties",
            label="Properties",
            text="" if has_secrets else self.entries.get(DOCUMENT, ""),
            placeholder="Type it again" if DOCUMENT in self.retype else "",
            faults=self.take_faults(DOCUMENT, "", below=True),
            hints=(
                "A JSON object. The type accepts any property."
                if free
                else "A JSON object. The schema has too many properties for single fields.",
            ),
            monospaced=True,
        )

    def members(self, places: tuple[FormPlace, ...]) -> tuple[FormField, ...]:
        """The fields in the order of the declaration; a group is in the place of its first member."""
        groups = exclusive_groups(self.scope, places)
        first = {group.members[0].name: group for group in groups}
        grouped = {member.name for group in groups for member in group.members}
        fields = []
        for place in places:
            if place.name in first:
                fields.append(self.group(first[place.name]))
            elif place.name not in grouped:
                fields.append(self.field(place))
        return tuple(fields)

    def group(self, group: ExclusiveGroup) -> FormField:
        members = tuple(self.field(place) for place in group.members)
        chosen = self.entries.get(group.name, "")
        choices = tuple(
            ValueChoice(None, segment_of(place.declared.name), member.label)
            for place, member in zip(group.members, members, strict=True)
        )
        return FormField(
            kind=ControlKind.ONE_OF,
            name=group.name,
            path="",
            label=" or ".join(member.label for member in members),
            text=chosen,
            shown_name=shown_name(group.name),
            shown=self.entries.get(shown_name(group.name), ""),
            choices=choices if group.required else (*choices, ValueChoice(None, "", "None")),
            note="exactly one" if group.required else "at most one",
            members=members,
        )

    def field(self, place: FormPlace) -> FormField:
        if place.access is not PlaceAccess.EDITABLE:
            return self.given(place)
        if place.hidden:
            return self.secret(place)
        if place.structure is Structure.OBJECT:
            return self.object(place)
        if place.structure is Structure.ARRAY:
            return self.array(place)
        if place.structure is Structure.BOOLEAN:
            return self.boolean(place)
        if place.is_choice:
            return self.choice(place)
        return self.reference(place) if place.declared.refers else self.text(place)

    def given(self, place: FormPlace) -> FormField:
        hints = hints_of(place)
        if place.before is None:
            text = describe_source(place)
        elif place.declared.holds_secret:
            text = "Set, never shown"
        else:
            text = show_value(place.before)
            hints = (describe_source(place), *hints) if place.access is PlaceAccess.FILLED else hints
        return replace(
            self.control(place, ControlKind.GIVEN, below=True),
            required=True,
            text=text,
            icon=source_icon(place),
            hints=hints,
            monospaced=place.before is not None and not place.declared.holds_secret,
        )

    def secret(self, place: FormPlace) -> FormField:
        is_set = place.before is not None
        declared = place.declared
        longest = max(limit_of(declared, "maxLength", 0), limit_of(declared, "minLength", 0))
        many_lines = place.structure is Structure.JSON or declared.type is PropertyType.JSON
        is_long = declared.type is PropertyType.STRING and longest > ONE_LINE_LENGTH
        placeholder = "Set, never shown; type to replace" if is_set else ""
        kind = ControlKind.MASKED_LINES if many_lines or is_long else ControlKind.MASKED
        return replace(
            self.control(place, kind, below=True),
            required=_is_required(place) or is_set,
            placeholder="Type it again" if place.name in self.retype else placeholder,
            shown_name=cleared_name(place.name) if place.can_clear_secret else "",
            checked=self.entries.get(cleared_name(place.name)) == TICKED,
            monospaced=many_lines,
        )

    def object(self, place: FormPlace) -> FormField:
        marker = shown_name(place.name) if place.is_optional_object else ""
        return replace(
            self.control(place, ControlKind.OBJECT),
            required=not place.is_optional_object,
            checked=self.entries.get(place.name) == TICKED,
            shown_name=marker,
            shown=self.entries.get(marker, "0"),
            has_toggle=place.is_optional_object and not place.is_grouped,
            members=self.members(place.members()),
        )

    def array(self, place: FormPlace) -> FormField:
        count = count_rows(self.entries, place.name)
        rows = []
        for index in range(count):
            name = row_name(place.name, index)
            row = place.row(index, self.entries[name])
            rows.append(FormRow(index, name, self.entries[name], self.field(row)))
        return replace(
            self.control(place, ControlKind.ARRAY),
            required=_is_required(place),
            note=count_limits(place.declared),
            rows=tuple(rows),
            can_add=count < most_rows(place.declared) and len(self.entries) < MAX_INITIAL_ENTRIES,
            noun=_label(place).lower(),
        )

    def boolean(self, place: FormPlace) -> FormField:
        text = self.entries.get(place.name, "")
        if place.is_checkbox:
            field = self.leaf(place, ControlKind.CHECK)
            return replace(field, checked=text == TICKED, shown_name=shown_name(place.name), shown="1")
        return self.leaf(place, ControlKind.SELECT if place.in_row else ControlKind.SEGMENTS, YES_NO)

    def choice(self, place: FormPlace) -> FormField:
        choices = value_choices(place.declared, self.scope.choices, place.before)
        is_option = option_type(place.declared) is not None
        if place.in_row or len(choices) > (MAX_CARDS if is_option else MAX_SEGMENTS) or not choices:
            kind = ControlKind.SELECT
        else:
            kind = ControlKind.CARDS if is_option else ControlKind.SEGMENTS
        return self.leaf(place, kind, self.with_typed(place, self.with_not_set(place, choices)))

    def reference(self, place: FormPlace) -> FormField:
        references = self.scope.choices.references.get(place.declared.schema_path, NO_REFERENCES)
        choices = service_choices(references, place.before)
        if references.is_search:
            return replace(self.leaf(place, ControlKind.SEARCH, choices), placeholder="Name or id")
        return self.leaf(place, ControlKind.SELECT, self.with_typed(place, self.with_not_set(place, choices)))

    def with_not_set(self, place: FormPlace, choices: tuple[ValueChoice, ...]) -> tuple[ValueChoice, ...]:
        """An optional choice can be left out, unless the server would then fill in a default."""
        has_default = place.declared.default is not None and place.new
        return choices if place.declared.required or place.is_row or has_default else (NOT_SET, *choices)

    def with_typed(self, place: FormPlace, choices: tuple[ValueChoice, ...]) -> tuple[ValueChoice, ...]:
        """What was posted stays chosen, also if it is not offered any longer."""
        text = self.entries.get(place.name, "")
        if not text or any(each.text == text for each in choices):
            return choices
        return (*choices, ValueChoice(text, text, text, "not offered"))

    def text(self, place: FormPlace) -> FormField:
        declared = place.declared
        text = self.entries.get(place.name, "")
        if place.structure is Structure.JSON:
            below = declared.type is not PropertyType.JSON or bool(declared.items)
            return replace(self.leaf(place, ControlKind.JSON, below=below), monospaced=True)
        if declared.type in (PropertyType.INTEGER, PropertyType.NUMBER):
            is_integer = declared.type is PropertyType.INTEGER
            return replace(self.leaf(place, ControlKind.NUMBER), unit=number_range(declared), is_integer=is_integer)
        # A field of one line would drop the line breaks.
        kind = ControlKind.LINES if "\n" in text or "\r" in text else ControlKind.TEXT
        monospaced = "pattern" in declared.keywords or declared.type is PropertyType.UUID
        return replace(self.leaf(place, kind), monospaced=monospaced)

    def leaf(
        self, place: FormPlace, kind: ControlKind, choices: tuple[ValueChoice, ...] = (), *, below: bool = False
    ) -> FormField:
        """A control of one value, which the form shows again as it was typed."""
        return replace(
            self.control(place, kind, below=below),
            required=_is_required(place) or place.is_row,
            text=self.entries.get(place.name, ""),
            choices=choices,
        )

    def control(self, place: FormPlace, kind: ControlKind, *, below: bool = False) -> FormField:
        """What all controls have. It contains nothing that was typed, since that may be a secret."""
        return FormField(
            kind=kind,
            name=place.name,
            path=place.path,
            label=_label(place),
            hints=hints_of(place),
            faults=self.take_faults(place.name, place.path, below=below),
        )


def _is_required(place: FormPlace) -> bool:
    """Not marked as optional. A default or a generator makes a property as good as set."""
    declared = place.declared
    return declared.required or declared.default is not None


def _label(place: FormPlace) -> str:
    """The label of the schema, or the name as words: `maxConnections` becomes "Max connections"."""
    if place.declared.label:
        return place.declared.label
    if place.is_row:
        return place.path
    words = WORDS.findall(place.declared.name)
    if not words:
        return place.declared.name or "(no name)"
    lowered = [word if word.isupper() and len(word) > 1 else word.lower() for word in words]
    return " ".join([lowered[0][:1].upper() + lowered[0][1:], *lowered[1:]])


def _sections(fields: tuple[FormField, ...]) -> tuple[FormSection, ...]:
    """Objects have their own section; values that others set come last."""
    own = [each for each in fields if each.kind is ControlKind.OBJECT]
    filled = [each for each in fields if each.kind is ControlKind.GIVEN]
    rest = [each for each in fields if each.kind not in (ControlKind.OBJECT, ControlKind.GIVEN)]
    sections = [FormSection("Properties", "", "", None, _field_blocks(rest))] if rest else []
    sections += [FormSection(each.label, each.path, "", each, _field_blocks(each.members)) for each in own]
    if filled:
        text = "Values that you do not set in this form."
        sections.append(FormSection("Filled in for you", "", text, None, _field_blocks(filled)))
    return tuple(sections)


def _field_blocks(fields: Sequence[FormField]) -> tuple[FieldBlock, ...]:
    blocks: list[FieldBlock] = []
    for each in fields:
        if blocks and each.is_narrow and blocks[-1].narrow:
            blocks[-1] = FieldBlock(narrow=True, fields=(*blocks[-1].fields, each))
        else:
            blocks.append(FieldBlock(narrow=each.is_narrow, fields=(each,)))
    return tuple(blocks)
