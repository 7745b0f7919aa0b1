"""Findings about a lifecycle: unreachable states, dead ends, failures without a transition, hidden error transitions."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations

from mainstay.control.domain.lifecycle.graph import leading_to, reachable
from mainstay.control.domain.lifecycle.schema import Lifecycle, Transition
from mainstay.control.domain.lifecycle.transitions import available_actions, success_path
from mainstay.control.domain.lint import Finding

# A pattern without these characters is plain text.
SPECIAL = frozenset("\\^$.|?*+()[]{}")
MATCHES_ALL = ("", ".*")


def report_lifecycle(lifecycle: Lifecycle) -> tuple[Finding, ...]:
    return tuple(
        finding
        for check in (_unreachable, _dead_ends, _no_way_out, _without_error_path, _error_order, _many_steps)
        for finding in check(lifecycle)
    )


def _unreachable(lifecycle: Lifecycle) -> Iterator[Finding]:
    found = reachable(lifecycle)
    for state in lifecycle.states:
        if state not in found:
            yield Finding("unreachable-state", f"state {state}", "no transition leads to it from the initial state")


def _dead_ends(lifecycle: Lifecycle) -> Iterator[Finding]:
    for state in lifecycle.states:
        if state not in lifecycle.terminal_states and not available_actions(lifecycle, state):
            yield Finding("dead-end", f"state {state}", "it is not terminal, and no action leads out of it")


def _no_way_out(lifecycle: Lifecycle) -> Iterator[Finding]:
    if not lifecycle.terminal_states:
        yield Finding("no-terminal-state", "lifecycle", "it has no terminal state, so a service can never be removed")
        return
    ends = leading_to(lifecycle, lifecycle.terminal_states)
    for state in lifecycle.states:
        if state not in ends and available_actions(lifecycle, state):
            yield Finding(
                "no-way-to-terminal", f"state {state}", "no chain of actions leads from it to a terminal state"
            )


def _without_error_path(lifecycle: Lifecycle) -> Iterator[Finding]:
    for action in lifecycle.actions.values():
        for state in action.successes:
            errors = action.errors_from(state)
            subject = f"action {action.name} in state {state}"
            if not errors:
                yield Finding(
                    "no-error-path", subject, f"a failure has no transition, so the service stays in {state}"
                )
            elif all(error.pattern is not None for error in errors):
                message = f"only some failures have a transition; after any other the service stays in {state}"
                yield Finding("no-catch-all", subject, message)


def _error_order(lifecycle: Lifecycle) -> Iterator[Finding]:
    for action in lifecycle.actions.values():
        for state in dict.fromkeys(each.origin for each in action.transitions if each.on_error):
            subject = f"action {action.name} in state {state}"
            errors = action.errors_from(state)
            hidden = {
                second: first
                for first, second in combinations(range(len(errors)), 2)
                if _hides(errors[first], errors[second])
            }
            for second, first in sorted(hidden.items()):
                message = f"{_named(errors[second])} is never taken: {_named(errors[first])} comes first and matches the same messages"
                yield Finding("shadowed-error", subject, message)


def _hides(first: Transition, second: Transition) -> bool:
    """Whether the first matches every message that the second matches. Only the plain cases are recognized: a catch-all,
    equal patterns, and plain text that contains the earlier plain text."""
    if first.pattern is None or first.pattern in MATCHES_ALL or first.pattern == second.pattern:
        return True
    if second.pattern is None:
        return False
    return SPECIAL.isdisjoint(first.pattern + second.pattern) and first.pattern in second.pattern


def _named(transition: Transition) -> str:
    kind = "the catch-all" if transition.pattern is None else f"/{transition.pattern}/"
    return f"{kind} to {transition.to}"


def _many_steps(lifecycle: Lifecycle) -> Iterator[Finding]:
    for action in lifecycle.actions.values():
        if action.auto_advance is None:
            found = [success_path(lifecycle, action.name, state) for state in action.successes]
            long = [path for path in found if len(path) > 2]
            if long:
                paths = "; ".join(" → ".join(path) for path in long)
                message = (
                    f"one request runs several steps: {paths}; set autoAdvance to true or false to confirm the intent"
                )
                yield Finding("implicit-auto-advance", f"action {action.name}", message)
