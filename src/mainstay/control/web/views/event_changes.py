"""The patch that an event carries, as lines of old and new values. Pure."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from mainstay.foundation.text import shorten
from mainstay.foundation.vault import is_vault_reference

MAX_CHANGES = 60
MAX_VALUE = 400
# They change with every write.
UNINTERESTING = frozenset({"updatedAt", "createdAt", "version", "id"})
NOT_SHOWN = "secret, not shown"


@dataclass(frozen=True, slots=True)
class EventChange:
    """None: there is no such value."""

    path: str
    old: str | None
    new: str | None


def event_changes(properties: Mapping[str, object]) -> tuple[list[EventChange], int]:
    """The changes of an event, and how many more there are."""
    patch = properties.get("diff")
    found = [each for each in _changes(patch if isinstance(patch, list) else []) if _is_interesting(each)]
    return found[:MAX_CHANGES], max(0, len(found) - MAX_CHANGES)


def _changes(patch: list[Any]) -> Iterator[EventChange]:
    old: dict[str, object] = {}
    for each in patch:
        if not isinstance(each, dict):
            continue
        path, value = str(each.get("path", "")), each.get("value")
        if each.get("op") == "test":
            old[path] = value
        else:
            before = _shown(old[path]) if path in old else None
            yield EventChange(path, before, None if each.get("op") == "remove" else _shown(value))


def _is_interesting(change: EventChange) -> bool:
    return change.path.split("/")[1] not in UNINTERESTING if change.path.startswith("/") else True


def _shown(value: object) -> str:
    if is_vault_reference(value):
        return NOT_SHOWN
    return shorten(value if isinstance(value, str) else json.dumps(value, ensure_ascii=False), MAX_VALUE)
