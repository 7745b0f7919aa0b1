"""May a lifecycle be replaced while services live by the old one? Names every service that would be stranded, and how."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from mainstay.control.domain.lifecycle.graph import leading_to
from mainstay.control.domain.lifecycle.schema import Lifecycle


@dataclass(frozen=True, slots=True)
class LivingService:
    """`active_action` is the action of its job that is pending or processing; None if it has none."""

    id: str
    state: str
    active_action: str | None = None


@dataclass(frozen=True, slots=True)
class Stranded:
    service_id: str
    message: str
    # A state that is gone cannot be forced: the service would be nowhere.
    forceable: bool


def find_stranded(new: Lifecycle, living: Iterable[LivingService]) -> tuple[Stranded, ...]:
    ends = leading_to(new, new.terminal_states)
    found = []
    for service in living:
        problem = _problem(new, service, ends)
        if problem is not None:
            found.append(problem)
    return tuple(found)


def _problem(new: Lifecycle, service: LivingService, ends: frozenset[str]) -> Stranded | None:
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
