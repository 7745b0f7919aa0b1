"""The kind of a state: pages choose shape and colour by it. A lifecycle is written by users, so the kind follows from
the role of the state, never from its name."""

from __future__ import annotations

from typing import Literal

from mainstay.control.domain.lifecycle.schema import Lifecycle

StateKind = Literal["end", "up", "bad", "new", "work", "rest"]


def kind_of_state(lifecycle: Lifecycle, state: str) -> StateKind:
    """`rest` too for a state that the lifecycle does not contain, such as that of an old service after a change."""
    if state in lifecycle.terminal_states:
        return "end"
    if state in lifecycle.running_states:
        return "up"
    if state == lifecycle.initial_state:
        # A service begins here, so no error transition makes it a failure state.
        return "new"
    if _only_errors_lead_to(lifecycle, state):
        return "bad"
    return "work" if _only_passed(lifecycle, state) else "rest"


def _only_errors_lead_to(lifecycle: Lifecycle, state: str) -> bool:
    arrivals = [each for _, each in lifecycle.transitions() if each.to == state != each.origin]
    return bool(arrivals) and all(each.on_error for each in arrivals)


def _only_passed(lifecycle: Lifecycle, state: str) -> bool:
    """Whether every run that enters the state leaves it without another request."""
    continues = [
        action.advances and action.successes.get(state, state) != state
        for action in lifecycle.actions.values()
        for origin, to in action.successes.items()
        if to == state != origin
    ]
    return bool(continues) and all(continues)
