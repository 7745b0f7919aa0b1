"""Finds living services that a new lifecycle would strand, and why."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from mainstay.control.domain.lifecycle.graph import leading_to
from mainstay.control.domain.lifecycle.schema import Lifecycle


@dataclass(frozen=True, slots=True)
class LivingService:
    """`active_action` is the action of its active job. None: no active job."""

    id: str
    state: str
    active_action: str | None = None


@dataclass(frozen=True, slots=True)
class Stranded:
    service_id: str
    message: str
    # False for a removed state: the service would be in no state at all.
    forceable: bool


def find_stranded(new: Lifecycle, living: Iterable[LivingService]) -> tuple[Stranded, ...]:
    ends = leading_to(new, new.terminal_states)
    return tuple(found for service in living if (found := _check(new, service, ends)) is not None)


def _check(new: Lifecycle, service: LivingService, ends: frozenset[str]) -> Stranded | None:
    state, action = service.state, service.active_action
    if state not in new.states:
        return Stranded(service.id, f"state '{state}' is not in the new lifecycle", forceable=False)
    if state in new.terminal_states:
        return Stranded(service.id, f"state '{state}' becomes terminal while the service is in it", forceable=True)
    if action is not None and (action not in new.actions or state not in new.actions[action].successes):
        message = f"its active job '{action}' has no success transition from '{state}' in the new lifecycle"
        return Stranded(service.id, message, forceable=True)
    if new.terminal_states and state not in ends:
        return Stranded(service.id, f"state '{state}' has no way to a terminal state", forceable=True)
    return None
