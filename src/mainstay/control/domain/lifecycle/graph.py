"""Which states lead to which: reachability over success and error transitions."""

from __future__ import annotations

from collections.abc import Iterable

from mainstay.control.domain.lifecycle.schema import Lifecycle


def reachable(lifecycle: Lifecycle) -> frozenset[str]:
    """Every state that a service can come to. An action fails only where it can begin."""
    edges = [(each.origin, each.to) for action, each in lifecycle.transitions() if each.origin in action.successes]
    return _closure((lifecycle.initial_state,), edges)


def leading_to(lifecycle: Lifecycle, goals: Iterable[str]) -> frozenset[str]:
    """Every state from which one of the goals can be reached, by asking for actions; the goals are among them."""
    return _closure(goals, [(to, origin) for origin, to in _asked(lifecycle)])


def _asked(lifecycle: Lifecycle) -> list[tuple[str, str]]:
    """The moves that somebody can count on: an error cannot be asked for, so it is no way out."""
    return [(each.origin, each.to) for _, each in lifecycle.transitions() if not each.on_error]


def _closure(start: Iterable[str], edges: list[tuple[str, str]]) -> frozenset[str]:
    targets: dict[str, list[str]] = {}
    for origin, to in edges:
        targets.setdefault(origin, []).append(to)
    found: set[str] = set()
    waiting = list(start)
    while waiting:
        state = waiting.pop()
        if state not in found:
            found.add(state)
            waiting += targets.get(state, ())
    return frozenset(found)
