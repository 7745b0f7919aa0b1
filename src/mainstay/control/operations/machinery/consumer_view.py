"""What a consumer sees of a host: nothing that others wrote there, and no output of commands. Pure.

Reports, plans, conditions, error messages and events are stored whole and filtered here for each reader. An agent marks
what a service itself wrote with `own: true`; everything else counts as written by others."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from mainstay.control.access import Caller, Role
from mainstay.control.operations.machinery.forecast import HostForecast
from mainstay.control.operations.machinery.refusals import NotPermitted
from mainstay.control.store.events import EventRow
from mainstay.foundation.text import without_removed_lines

OUTPUT = frozenset({"output", "stdout", "stderr", "consumer_diff"})
OF_OTHERS = frozenset({"checksum", "size"})
FAILURES = frozenset({"errors", "warnings", "error", "errorMessage"})
# How the agent writes the output of a command below a failure.
OUTPUT_MARK = "  | "


def sees_host(caller: Caller | None, provider_id: str | None) -> bool:
    """Admins, agents and the provider see everything. None: the server itself."""
    return caller is None or caller.role is not Role.PARTICIPANT or caller.participant_id == provider_id


def refuse_as_criterion(caller: Caller, field: str, query: Sequence[tuple[str, str]]) -> None:
    """Refuses participants a list by a field that they do not see whole: it would confirm guesses."""
    named = {value.lstrip("+- ") if key == "sort" else key for key, value in query}
    if caller.role is Role.PARTICIPANT and field in named:
        raise NotPermitted(f"only an admin may filter or sort by {field}, which participants may not see whole")


def consumer_report(report: object) -> object:
    return _filtered(report, own=False)


def consumer_forecast(forecast: HostForecast) -> HostForecast:
    events = [_filtered_members(event, own=False) for event in forecast.events]
    return msgspec.structs.replace(forecast, events=events)


def consumer_conditions(conditions: list[dict[str, object]]) -> list[dict[str, object]]:
    return [_consumer_condition(condition) for condition in conditions]


def consumer_event(event: EventRow) -> EventRow:
    changes = event.properties.get("diff")
    if not isinstance(changes, list):
        return event
    shown = [_consumer_change(change) for change in changes]
    return msgspec.structs.replace(event, properties={**event.properties, "diff": shown})


def first_line(text: str) -> str:
    return next(iter(text.splitlines()), "")


def _consumer_condition(condition: Mapping[str, object]) -> dict[str, object]:
    shown = dict(condition)
    whole = shown.get("message", "")
    for_consumers = shown.pop("consumerMessage", None)
    shown["message"] = _without_foreign_lines(str(whole)) if for_consumers is None else for_consumers
    return shown


def _consumer_change(change: dict[str, object]) -> dict[str, object]:
    """One operation of an RFC 6902 patch. Conditions are replaced as a whole."""
    value, path = change.get("value"), str(change.get("path"))
    if path == "/conditions" and isinstance(value, list):
        return {**change, "value": consumer_conditions(value)}
    if path == "/errorMessage" and isinstance(value, str):
        return {**change, "value": first_line(value)}
    return change


def _filtered(value: object, *, own: bool) -> object:
    """The depth is bounded: the server refuses bodies that are nested deeper than 64 levels."""
    if isinstance(value, str):
        return value if own else _without_foreign_lines(value)
    if isinstance(value, list):
        return [_filtered(each, own=own) for each in value]
    if isinstance(value, dict):
        return _filtered_members(value, own=own)
    return value


def _filtered_members(document: Mapping[str, object], *, own: bool) -> dict[str, object]:
    if "own" in document:
        own = document["own"] is True
    if not own and isinstance(document.get("consumer_diff"), str):
        # It shows the new content and nothing of the old, not even which lines stay the same.
        document = {**document, "diff": document["consumer_diff"]}
    hidden = OUTPUT if own else OUTPUT | OF_OTHERS
    shown: dict[str, object] = {}
    for name, value in document.items():
        if name in FAILURES:
            shown[name] = _first_lines(value)
        elif value is None or name not in hidden:
            shown[name] = _filtered(value, own=own)
    return shown


def _first_lines(value: object) -> object:
    if isinstance(value, list):
        return [first_line(each) for each in value if isinstance(each, str)]
    return first_line(value) if isinstance(value, str) else None


def _without_foreign_lines(text: str) -> str:
    """The lines that a file or a command of the host may have had are left out."""
    if "\n" not in text:
        return text
    lines = [line for line in text.split("\n") if not line.startswith(OUTPUT_MARK)]
    return without_removed_lines("\n".join(lines))


def initiator_words(
    caller: Caller, role: str | None, name: str | None, participant_id: str | None, parties: Mapping[str, str]
) -> str:
    """`parties`: id → name of the participants that the caller sees beside it, such as provider and consumer.

    Names of tokens are for admins and for the own participant, as in events."""
    if role is None:
        return "the server"
    if role == Role.AGENT:
        return f"agent {name}" if name else "the agent"
    if role == Role.ADMIN:
        return f"admin {name}" if caller.role is Role.ADMIN and name not in (None, "admin") else "an admin"
    if name is not None and (caller.role is Role.ADMIN or caller.participant_id == participant_id):
        return name
    return parties.get(participant_id or "", "a participant")
