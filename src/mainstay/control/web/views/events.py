"""One event as lists show it: the name and the page of its row, what changed, and its initiator."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from mainstay.control.access import Caller
from mainstay.control.operations.events import EventView
from mainstay.control.web.views.event_changes import event_changes
from mainstay.control.web.views.event_summary import event_words, initiator_of

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
    changes, more = event_changes(event.properties)
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
