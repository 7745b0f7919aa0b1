"""Events in one line: what changed, from the patch that an event carries. Pure."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from mainstay.control.operations.events import EventView
from mainstay.foundation.text import shorten
from mainstay.foundation.vault import is_vault_reference

MAX_NAMES = 3
MAX_VALUE = 40
# They change with every write.
UNINTERESTING = frozenset({"", "updatedAt", "createdAt", "version", "id"})


def event_words(event: EventView) -> str:
    """`status Stopped`, `maxConnections 200, allow`; "" if there is nothing to add to the type of the event."""
    if not event.type.endswith((".updated", ".transitioned", ".failed", ".completed", ".claimed", ".requeued")):
        return ""
    changes = event.properties.get("diff")
    found = [_change_words(each) for each in changes if isinstance(each, dict)] if isinstance(changes, list) else []
    named = list(dict.fromkeys(each for each in found if each))
    more = len(named) - MAX_NAMES
    return ", ".join(named[:MAX_NAMES]) + (f" and {more} more" if more > 0 else "")


def initiator_of(event: EventView) -> str:
    """The name that the caller may see, or the role."""
    if event.initiator_name is not None:
        return event.initiator_name
    if event.initiator_role == "agent":
        return "the agent" if event.agent is None else event.agent.name
    return {"admin": "an admin", "participant": "a participant"}.get(event.initiator_role or "", "the server")


def _change_words(change: Mapping[str, Any]) -> str:
    path = [part.replace("~1", "/").replace("~0", "~") for part in str(change.get("path", "")).split("/")[1:]]
    if not path or path[0] in UNINTERESTING:
        return ""
    value = change.get("value")
    name = shorten(path[-1] if path[0] == "properties" else path[0])
    if path[0] == "conditions":
        return _condition_words(value)
    if path[0] == "leaseExpiresAt" or path[0].endswith("At"):
        return ""
    if is_vault_reference(value) or isinstance(value, dict | list) or value is None:
        return name
    return f"{name} {shorten(value if isinstance(value, str) else json.dumps(value), MAX_VALUE)}"


def _condition_words(value: object) -> str:
    conditions = value if isinstance(value, list) else [value]
    return ", ".join(
        f"{shorten(str(each.get('type')))} {each.get('status')}" for each in conditions if isinstance(each, dict)
    )
