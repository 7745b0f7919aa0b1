"""The `apply` type: another manifest, applied in place. The loader reads its resources (`manifest/children.py`), and the loop
manages them before their `apply` resource, whose result is theirs. It has no provider."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from mainstay.converge.contract import Change, Property, Resource, ResourceType, State
from mainstay.converge.report import FAILED, SKIPPED, UNMET, Event
from mainstay.converge.value_kinds import TEXT, VALUES
from mainstay.foundation import Any
from mainstay.foundation.text import shorten

MOST_NAMED = 5


class Apply(Resource):
    manifest: str | None = None
    data: Mapping[str, Any] = {}


class ApplyState(State):
    """The events of the resources of the other manifest, and its outputs; None: not evaluated."""

    ensure = "present"

    def __init__(self, events: Sequence[Event]) -> None:
        # Reports count the resources of a child, not its `apply` resource, unless the child failed to load.
        own = [event for event in events if event.resource.child is None]
        self.total = len(own)
        self.changed = sum(event.changed for event in own)
        bad = [event for event in events if event.outcome in (FAILED, UNMET)]
        self.bad: list[str] = [
            event.resource.id for event in bad if not (isinstance(event.state, ApplyState) and event.state.bad)
        ]
        self.is_skipped = bool(events) and all(event.outcome == SKIPPED for event in events)
        self.outputs: dict[str, Any] | None = None


class ApplyType(ResourceType):
    name = "apply"
    resource = Apply
    composes = True
    from_command_line = False
    properties: Mapping[str, Property] = {
        "manifest": Property(TEXT, "path of the manifest, relative to this one; default: the name"),
        "data": Property(VALUES, "data of the manifest, over its own data and hierarchy", private=True),
    }

    def summarize(self, events: Sequence[Event]) -> ApplyState:
        return ApplyState(events)

    def desired(self, wanted: Apply, actual: ApplyState) -> tuple[bool, str]:
        if not actual.bad:
            return True, ""
        named = ", ".join(shorten(name) for name in actual.bad[:MOST_NAMED])
        more = ", …" if len(actual.bad) > MOST_NAMED else ""
        return False, f"{_count(len(actual.bad), actual.total)} failed or unmet: {named}{more}"

    def decide(self, wanted: Apply, actual: ApplyState, *, refresh: bool) -> tuple[Change, ...]:
        return (Change("apply", f"{_count(actual.changed, actual.total)} changed"),) if actual.changed else ()

    def describe(self, wanted: Apply, actual: ApplyState, changes: tuple[Change, ...]) -> str:
        return f"Would have applied: {changes[0].reason}"

    def was_altered(self, wanted: Apply, before: ApplyState, after: ApplyState) -> bool:
        return bool(after.changed)


def _count(some: int, total: int) -> str:
    return f"{some} of {total} resource{'' if total == 1 else 's'}"


TYPE = ApplyType()
