"""One event as lists show it: the name and the page of its row, what changed, and its initiator."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from mainstay.control.access import Caller
from mainstay.control.operations.events import EventView
from mainstay.control.web.views.event_summary import event_words, initiator_of
from mainstay.foundation.text import shorten
from mainstay.foundation.vault import is_vault_reference

# The page of a row, by the noun of the event.
PAGES_OF_NOUNS = {
    "agent": "/agents/{}",
    "agent_type": "/agent-types/{}/edit",
    "config_pool": "/config-pools/{}",
    "job": "/jobs/{}",
    "metric_type": "/metric-types/{}/edit",
    "orphan": "/orphans/{}",
    "participant": "/participants/{}",
    "service": "/services/{}",
    "service_group": "/groups/{}/edit",
    "service_option": "/options/{}/edit",
    "service_option_type": "/option-types/{}",
    "service_pool": "/pools/{}",
    "service_pool_set": "/pools?set={}",
    "service_type": "/service-types/{}",
    "token": "/tokens/{}/edit",
}


def show_event(event: EventView, names: Mapping[str, str], caller: Caller) -> dict[str, Any]:
    """`names` are those of the rows that still exist, by id."""
    changes, more = _event_changes(event.properties)
    noun = event.type.partition(".")[0]
    name = names.get(event.entity_id)
    href = PAGES_OF_NOUNS.get(noun, "") if name is not None else ""
    if href.endswith("/edit") and caller.read_only:
        # A form.
        href = ""
    return {
        "event": event,
        "name": name or _last_name(event) or event.entity_id,
        "href": href.format(event.entity_id),
        "words": event_words(event),
        "by": initiator_of(event),
        "changes": changes,
        "more": more,
    }


def _last_name(event: EventView) -> str:
    """The name of a row that no longer exists, from the event of its creation or deletion."""
    patch = event.properties.get("diff")
    for each in patch if isinstance(patch, list) else ():
        if isinstance(each, dict) and each.get("path") == "/name" and isinstance(each.get("value"), str):
            return str(each["value"])
    return ""


MAX_CHANGES = 60
MAX_VALUE = 400
# Members that change with every write.
UNINTERESTING = frozenset({"updatedAt", "createdAt", "version", "id"})
NOT_SHOWN = "secret, not shown"


@dataclass(frozen=True, slots=True)
class EventChange:
    """None: there is no such value."""

    path: str
    old: str | None
    new: str | None


def _event_changes(properties: Mapping[str, object]) -> tuple[list[EventChange], int]:
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
