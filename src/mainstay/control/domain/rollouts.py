"""Decides about roll-outs: the size of a wave, which services are left out, when a roll-out stops or is complete. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from mainstay.control.domain.jobs import JobStatus
from mainstay.control.domain.lifecycle.schema import Lifecycle
from mainstay.control.domain.refusals import BadBatch, WrongRolloutState
from mainstay.foundation.numbers import parse_count

RolloutStatus = Literal["Running", "Paused", "Stopped", "Completed", "Aborted"]
ItemStatus = Literal["Waiting", "Running", "Done", "Failed", "Skipped"]
RolloutVerb = Literal["pause", "resume", "abort"]
# A type has at most one open roll-out.
OPEN: tuple[RolloutStatus, ...] = ("Running", "Paused", "Stopped")
LARGEST_BATCH = 1_000_000
MAX_REASON = 500
_ALLOWED: Mapping[RolloutVerb, tuple[RolloutStatus, ...]] = {
    "pause": ("Running",),
    "resume": ("Paused", "Stopped"),
    "abort": OPEN,
}
_AFTER: Mapping[RolloutVerb, RolloutStatus] = {"pause": "Paused", "resume": "Running", "abort": "Aborted"}


@dataclass(frozen=True, slots=True)
class WaveSize:
    """The size of a wave: a number of services, or a share of all members."""

    number: int
    is_percentage: bool

    def of(self, members: int) -> int:
        """At least one; a share is rounded up."""
        if not self.is_percentage:
            return self.number
        return max(1, -(-members * self.number // 100))


def parse_batch(given: int | str) -> WaveSize:
    """`5`, `"5"` or `"10%"`. Raises `BadBatch`."""
    text = str(given)
    is_percentage = text.endswith("%")
    number = parse_count(text.removesuffix("%"), 1, 100 if is_percentage else LARGEST_BATCH)
    if number is None or isinstance(given, bool):
        raise BadBatch(text[:20], LARGEST_BATCH)
    return WaveSize(number, is_percentage)


def status_after(verb: RolloutVerb, status: RolloutStatus) -> RolloutStatus:
    """Raises `WrongRolloutState`."""
    allowed = _ALLOWED[verb]
    if status not in allowed:
        raise WrongRolloutState(verb, status, allowed)
    return _AFTER[verb]


def event_type(status: RolloutStatus) -> str:
    """The event of a roll-out that enters this state."""
    return {
        "Paused": "rollout.paused",
        "Running": "rollout.resumed",
        "Stopped": "rollout.stopped",
        "Completed": "rollout.completed",
        "Aborted": "rollout.aborted",
    }[status]


def reason_to_skip(lifecycle: Lifecycle, action: str, state: str, active_action: str | None) -> str | None:
    """None: the action may start. `active_action` None: the service has no active job."""
    if active_action is not None:
        return f"busy: {active_action} was active"
    found = lifecycle.actions.get(action)
    if state in lifecycle.terminal_states or found is None or state not in found.successes:
        return f"no action {action} in state {state}"
    return None


def item_status(last: JobStatus | None) -> ItemStatus:
    """By the last job of the run; None: it was deleted, so that its outcome is unknown."""
    return "Done" if last == "Completed" else "Failed"


def status_of_progress(
    status: RolloutStatus, *, failures: int, max_failures: int, waiting: int, running: int
) -> RolloutStatus:
    """A roll-out that was paused, stopped or aborted stays so; its running items only end."""
    if status != "Running":
        return status
    if failures >= max_failures:
        return "Stopped"
    return "Completed" if waiting == 0 and running == 0 else "Running"
