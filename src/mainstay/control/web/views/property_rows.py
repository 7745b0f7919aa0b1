"""Properties as rows of a table: members of objects below their object, coming values beside the present ones. Pure."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from typing import Literal

from mainstay.control.domain.faults import locate
from mainstay.control.domain.values import equal
from mainstay.control.web.views.formatting import plural
from mainstay.control.web.views.reports import cut
from mainstay.foundation.vault import is_vault_reference

ShownKind = Literal["secret", "text", "object", "none"]

MAX_ROWS = 600
MAX_ITEMS = 50
MAX_VALUE = 2000
# The style sheet indents so far; deeper objects are shown as JSON.
MAX_DEPTH = 2
MISSING = object()


@dataclass(frozen=True, slots=True)
class ShownValue:
    # object: its members follow as rows of their own. none: not set.
    kind: ShownKind
    # One for each item of an array.
    texts: tuple[str, ...] = ()
    # Items that are not shown.
    left_out: int = 0


@dataclass(frozen=True, slots=True)
class PropertyRow:
    name: str
    # As in provenance and in faults.
    path: str
    depth: int
    value: ShownValue
    # None: the value stays.
    coming: ShownValue | None = None


def property_rows(properties: Mapping[str, object], coming: Mapping[str, object] | None = None) -> list[PropertyRow]:
    """`coming`: all properties after the active job; None: they stay as they are."""
    return list(islice(_rows(properties, properties if coming is None else coming, "", 0), MAX_ROWS))


def _rows(
    properties: Mapping[str, object], coming: Mapping[str, object], parent: str, depth: int
) -> Iterator[PropertyRow]:
    for name in dict.fromkeys((*properties, *coming)):
        value, after = properties.get(name, MISSING), coming.get(name, MISSING)
        path = locate(parent, name)
        stays = equal(value, after) if MISSING not in (value, after) else value is after
        yield PropertyRow(
            cut(name, 200),
            path,
            depth,
            _shown(value, depth),
            None if stays or _both_objects(value, after, depth) else _shown(after, MAX_DEPTH),
        )
        if isinstance(value, dict) and value and depth < MAX_DEPTH:
            yield from _rows(value, after if isinstance(after, dict) else value, path, depth + 1)


def _both_objects(value: object, after: object, depth: int) -> bool:
    """Then the rows of the members show the difference."""
    return isinstance(value, dict) and bool(value) and isinstance(after, dict) and depth < MAX_DEPTH


def _shown(value: object, depth: int) -> ShownValue:
    if value is MISSING or value is None:
        return ShownValue("none")
    if is_vault_reference(value):
        return ShownValue("secret")
    if isinstance(value, dict) and value and depth < MAX_DEPTH:
        return ShownValue("object", (plural(len(value), "member"),))
    if isinstance(value, list) and value:
        shown = value[:MAX_ITEMS]
        return ShownValue("text", tuple(_text(each) for each in shown), len(value) - len(shown))
    return ShownValue("text", (_text(value),))


def _text(value: object) -> str:
    if isinstance(value, str) and not is_vault_reference(value):
        return cut(value, MAX_VALUE) if value else '""'
    return cut(json.dumps(_without_secrets(value), ensure_ascii=False), MAX_VALUE)


def _without_secrets(value: object) -> object:
    """The depth is bounded: the server refuses bodies that are nested deeper than 64 levels."""
    if is_vault_reference(value):
        return "set, never shown"
    if isinstance(value, dict):
        return {name: _without_secrets(each) for name, each in value.items()}
    if isinstance(value, list):
        return [_without_secrets(each) for each in value]
    return value
