"""Events in one line: who caused them and what changed, from the patch that an event carries. Pure."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

from mainstay.control.operations.events import EventView
from mainstay.foundation.text import shorten
from mainstay.foundation.vault import is_vault_reference

MAX_NAMES = 3
MAX_VALUE = 40
# Members that change with every write, or that the type of the event names.
UNINTERESTING = frozenset({"version", "id", "attempt", "leaseExpiresAt"})
# What a new row is, in the order in which it is looked for.
NEW_NAMES = ("action", "name", "reason")
# The type of a job's event is its new state.
STATED_BY_TYPE = {"job": frozenset({"status"})}


def event_words(event: EventView) -> str:
    """`status Started → Stopped`, `maxConnections 20 → 50, allow`. "": nothing to add to the type of the event."""
    found = event.properties.get("diff")
    changes = [each for each in found if isinstance(each, dict)] if isinstance(found, list) else []
    before = {str(each.get("path")): each.get("value") for each in changes if each.get("op") == "test"}
    after = {str(each.get("path")): each.get("value") for each in changes if each.get("op") != "test"}
    if event.type.endswith(".created"):
        return next((_value_words(after[f"/{name}"]) for name in NEW_NAMES if f"/{name}" in after), "")
    stated = UNINTERESTING | STATED_BY_TYPE.get(event.type.partition(".")[0], frozenset())
    named = [_change_words(path, before.get(path), value, stated) for path, value in after.items()]
    return _listed(each for each in named if each)


def initiator_of(event: EventView) -> str:
    """The name that the caller may see, or the role."""
    if event.initiator_name is not None:
        return event.initiator_name
    if event.initiator_role == "agent":
        return "the agent" if event.agent is None else event.agent.name
    return {"admin": "an admin", "participant": "a participant"}.get(event.initiator_role or "", "the server")


def _listed(words: Iterable[str]) -> str:
    named = list(words)
    more = len(named) - MAX_NAMES
    return ", ".join(named[:MAX_NAMES]) + (f" and {more} more" if more > 0 else "")


def _change_words(pointer: str, before: object, after: object, stated: frozenset[str]) -> str:
    path = [part.replace("~1", "/").replace("~0", "~") for part in pointer.split("/")[1:]]
    if not path or path[0] in stated or path[0].endswith("At"):
        return ""
    if path[0] == "conditions":
        return _condition_words(before, after)
    if path[0] == "errorMessage" and isinstance(after, str):
        return shorten(after.split("\n", 1)[0], 2 * MAX_VALUE)
    name = shorten(path[-1])
    old, new = _value_words(before), _value_words(after)
    return f"{name} {old} → {new}" if old and new else f"{name} {new}".rstrip()


def _value_words(value: object) -> str:
    """ "": no value, or one that is too large or too secret for a line."""
    if value is None or isinstance(value, dict | list) or is_vault_reference(value):
        return ""
    return shorten(value if isinstance(value, str) else json.dumps(value), MAX_VALUE)


def _condition_words(before: object, after: object) -> str:
    old, new = _conditions(before), _conditions(after)
    return _listed(
        f"{shorten(name)} {_status(old[name])} → {_status(each)}"
        if name in old
        else f"{shorten(name)} {_status(each)}"
        for name, each in new.items()
        if _status(old.get(name, {})) != _status(each)
    )


def _conditions(value: object) -> dict[str, Mapping[str, Any]]:
    found = value if isinstance(value, list) else []
    return {str(each.get("type")): each for each in found if isinstance(each, dict)}


def _status(condition: Mapping[str, Any]) -> str:
    reason = condition.get("reason")
    return shorten(f"{condition.get('status')}{f', {reason}' if reason else ''}", MAX_VALUE)
