"""Lists and forms of plain nouns: columns and fields derive from the declaration of the noun."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from mainstay import nouns
from mainstay.control.web.contract import PageCall
from mainstay.control.web.noun_pages import (
    FieldKind,
    NounField,
    NounPages,
    Row,
    TableColumn,
    choices_field,
    own_member,
    owner_field,
    reference_field,
)
from mainstay.control.web.views.pools import value_text

API = "/api/v1"
# Characters of a text of several lines that a list shows.
MOST_SHOWN = 200
FIELD_KINDS: dict[str, FieldKind] = {
    nouns.TAG: "code",
    nouns.TAGS: "words",
    nouns.WORD: "code",
    nouns.LINE: "line",
    nouns.TEXT: "long",
    nouns.MEDIA_TYPE: "code",
    nouns.CHOICE: "choice",
    nouns.INTEGER: "number",
    nouns.BOOLEAN: "flag",
    nouns.OBJECT: "document",
    nouns.ANY: "document",
}


def declared_pages(
    noun: nouns.Noun, path: str, *, columns: Mapping[str, TableColumn | None] | None = None, **more: Any
) -> NounPages:
    """The pages of a noun. `columns`: instead of the column of a member; None: no column. The others follow the name.
    `more`: what a noun does not declare, and what the pages have instead."""
    written = dict(columns or {})
    name = written.pop("name", TableColumn("Name", lambda row: row["name"]))
    shown = [_column(noun, each, written) for each in noun.all_members if each.name != "name" and each.listed]
    created = TableColumn("Created", lambda row: row["createdAt"], "time", "c-narrow-hide")
    values: dict[str, Any] = {
        "noun": noun.name,
        "word": noun.shown,
        "plural": f"{noun.shown}s",
        "path": path,
        "api": API + noun.path,
        "columns": [each for each in (name, *written.values(), *shown, created) if each is not None],
        "fields": lambda call, row: form_fields(noun, call, row),
        "topics": noun.name,
    }
    if noun.owner is not None:
        owner = noun.owner.name
        values["fixed"] = lambda call: own_member(call, owner)
    return NounPages(**{**values, **more})


def _column(noun: nouns.Noun, member: nouns.Member, written: dict[str, TableColumn | None]) -> TableColumn | None:
    if member.name in written:
        return written.pop(member.name)
    name, heading = member.name, member.shown_heading
    if member is noun.owner:
        return TableColumn(heading, lambda row: (row[name[:-2]] or {}).get("name"), style="c2")
    if member.kind == nouns.BOOLEAN:
        return TableColumn(heading, lambda row: ("up", heading) if row[name] else ("rest", "Disabled"), "state")
    if member.kind == nouns.TEXT:
        return TableColumn(heading, lambda row: (row[name] or "")[:MOST_SHOWN], style="c2 soft")
    if member.kind == nouns.ANY:
        return TableColumn(heading, lambda row: value_text(row[name]), "code")
    if member.kind == nouns.TAGS:
        return TableColumn(heading, lambda row: row[name], "chips")
    is_code = member.kind in (nouns.TAG, nouns.WORD, nouns.MEDIA_TYPE)
    return TableColumn(heading, lambda row: row[name], "code" if is_code else "text")


async def form_fields(noun: nouns.Noun, call: PageCall, row: Row | None) -> list[NounField]:
    found: list[NounField] = []
    for each in noun.form_members(is_new=row is None):
        if each is noun.owner:
            owners = await owner_field(call, each.name, each.shown_label, required=each.required)
            found += [replace(field, hint=each.hint or field.hint) for field in owners]
        else:
            found.append(await _field(call, each))
    return found


async def _field(call: PageCall, member: nouns.Member) -> NounField:
    name, label = member.name, member.shown_label
    if member.kind == nouns.IDS:
        return await choices_field(call, name, label, API + member.refers_to, member.shown_hint)
    if member.kind == nouns.ID:
        return await reference_field(call, name, label, API + member.refers_to, required=member.required)
    return NounField(
        name,
        label,
        FIELD_KINDS.get(member.kind, "text"),
        member.shown_hint,
        member.required,
        tuple(member.choices.items()),
        member.lines,
        member.initial or _default(member.default),
    )


def _default(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else "" if value is None else str(value)
