"""Reachability between states, over success and error transitions."""

from __future__ import annotations

from collections.abc import Iterable

from mainstay.control.domain.lifecycle.schema import Lifecycle


def reachable(lifecycle: Lifecycle) -> frozenset[str]:
    """Every state that a service can reach. An action can fail only in a state where it can start."""
    edges = [(each.origin, each.to) for action, each in lifecycle.transitions() if each.origin in action.successes]
    return _closure((lifecycle.initial_state,), edges)


def leading_to(lifecycle: Lifecycle, goals: Iterable[str]) -> frozenset[str]:
    """Every state from which successful actions lead to a goal, including the goals. An error cannot be requested, so it
    is not a way out."""
    return _closure(goals, [(each.to, each.origin) for _, each in lifecycle.transitions() if not each.on_error])


def _closure(start: Iterable[str], edges: list[tuple[str, str]]) -> frozenset[str]:
    targets: dict[str, list[str]] = {}
    for origin, to in edges:
        targets.setdefault(origin, []).append(to)
    found: set[str] = set()
    pending = list(start)
    while pending:
        state = pending.pop()
        if state not in found:
            found.add(state)
            pending += targets.get(state, ())
    return frozenset(found)
