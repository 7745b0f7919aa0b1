"""Rows and routes of a lifecycle drawing: which row each state is in, and on which side of the rows each arrow runs.

The success path is one row from left to right; below it failure states, and below those end states. Nothing here knows
coordinates."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import Enum

from mainstay.control.domain.lifecycle.schema import Lifecycle
from mainstay.control.domain.lifecycle.state_kind import kind_of_state


class Zone(Enum):
    """Where the horizontal part of a route runs."""

    DIRECT = "between two neighbours of the success path"
    ABOVE = "above the success path"
    MIDDLE = "between the success path and the failure states"
    BELOW = "between the failure states and the end states"
    INTO_LEFT = "in the row of its target, from the left"
    INTO_RIGHT = "in the row of its target, from the right"


# The zones with levels of their own, from the top.
LEVELLED = (Zone.ABOVE, Zone.MIDDLE, Zone.BELOW)


@dataclass(slots=True, eq=False)
class Route:
    """The arrows of one action to one target that share a trunk and a label."""

    action: str
    to: str
    on_error: bool
    # None: a success, or an error without an expression.
    pattern: str | None
    zone: Zone
    origins: list[str]

    @property
    def is_loop(self) -> bool:
        return self.origins[0] == self.to

    def ends(self) -> Iterator[str]:
        """Every state the route touches, once."""
        yield from self.origins
        if not self.is_loop:
            yield self.to


class Row(Enum):
    PATH = "the success path"
    FAILURE = "failure states"
    END = "end states"


@dataclass(frozen=True, slots=True)
class StateRows:
    path: tuple[str, ...]
    # Failure states by the column of `path` that they follow.
    slots: tuple[tuple[str, ...], ...]
    failures: tuple[str, ...]
    ends: tuple[str, ...]
    # The position of every state from left to right.
    order: dict[str, float]
    row: dict[str, Row]


def arrange_rows(lifecycle: Lifecycle) -> StateRows:
    kinds = {state: kind_of_state(lifecycle, state) for state in lifecycle.states}
    ranks = _ranks(lifecycle)
    path = sorted((state for state in lifecycle.states if kinds[state] not in ("bad", "end")), key=ranks.__getitem__)
    ends = tuple(state for state in lifecycle.states if kinds[state] == "end")
    bad = [state for state in lifecycle.states if kinds[state] == "bad"]
    slots = _assign_slots(lifecycle, {state: column for column, state in enumerate(path)}, bad)
    failures = tuple(state for slot in slots for state in slot)
    order: dict[str, float] = {state: float(column) for column, state in enumerate(path)}
    for column, slot in enumerate(slots):
        order |= {state: column + (index + 1) / (len(slot) + 1) for index, state in enumerate(slot)}
    order |= {state: float(len(path) + index) for index, state in enumerate(ends)}
    row = dict.fromkeys(path, Row.PATH) | dict.fromkeys(failures, Row.FAILURE) | dict.fromkeys(ends, Row.END)
    return StateRows(tuple(path), slots, failures, ends, order, row)


def _ranks(lifecycle: Lifecycle) -> dict[str, int]:
    """The length of the longest way to each state, without arrows that lead back. Success transitions come first, so
    that an error does not decide which arrow leads back."""
    targets: dict[str, list[str]] = {state: [] for state in lifecycle.states}
    for on_error in (False, True):
        for _, each in lifecycle.transitions():
            if each.on_error is on_error:
                targets[each.origin].append(each.to)
    finished: list[str] = []
    entered: set[str] = set()
    forward: set[tuple[str, str]] = set()
    for root in (lifecycle.initial_state, *lifecycle.states):
        if root not in entered:
            _walk(root, targets, entered, finished, forward)
    ranks = dict.fromkeys(lifecycle.states, 0)
    for origin in reversed(finished):
        for to in targets[origin]:
            if (origin, to) in forward:
                ranks[to] = max(ranks[to], ranks[origin] + 1)
    return ranks


def _walk(
    root: str, targets: dict[str, list[str]], entered: set[str], finished: list[str], forward: set[tuple[str, str]]
) -> None:
    """Depth first without recursion: a lifecycle may have more states than Python's recursion limit."""
    entered.add(root)
    stack = [(root, iter(targets[root]))]
    open_states = {root}
    while stack:
        state, remaining = stack[-1]
        to = next(remaining, None)
        if to is None:
            stack.pop()
            open_states.discard(state)
            finished.append(state)
        elif to not in open_states:
            forward.add((state, to))
            if to not in entered:
                entered.add(to)
                open_states.add(to)
                stack.append((to, iter(targets[to])))


def _assign_slots(
    lifecycle: Lifecycle, columns: dict[str, int], failures: Iterable[str]
) -> tuple[tuple[str, ...], ...]:
    """Each failure state below the middle of the states it is reached from, if that place is still free."""
    slots: list[list[str]] = [[] for _ in columns]
    last = max(len(columns) - 2, 0)
    for failure in failures:
        reached_from = [
            columns[each.origin]
            for _, each in lifecycle.transitions()
            if each.to == failure and each.origin in columns
        ]
        wanted = min(sum(reached_from) // len(reached_from), last) if reached_from else last
        nearest = min(range(last + 1), key=lambda slot: (len(slots[slot]), abs(slot - wanted)))
        slots[nearest].append(failure)
    return tuple(map(tuple, slots))


def find_routes(lifecycle: Lifecycle, rows: StateRows) -> tuple[Route, ...]:
    routes: dict[tuple[object, ...], Route] = {}
    taken: set[tuple[str, str]] = set()
    for action, each in lifecycle.transitions():
        zone = _zone(rows, each.origin, each.to, on_error=each.on_error)
        if zone is Zone.DIRECT and (each.origin, each.to) in taken:
            zone = Zone.ABOVE
        if zone is Zone.DIRECT:
            taken.add((each.origin, each.to))
        loop = each.origin if each.origin == each.to else None
        key = (action.name, each.to, each.on_error, each.pattern, zone, loop)
        if key not in routes:
            routes[key] = Route(action.name, each.to, each.on_error, each.pattern, zone, [])
        if each.origin not in routes[key].origins:
            routes[key].origins.append(each.origin)
    found = tuple(routes.values())
    _alternate_loops(rows, found)
    _enter_from_the_side(rows, found)
    return found


def _zone(rows: StateRows, origin: str, to: str, *, on_error: bool) -> Zone:
    if rows.row[to] is Row.END:
        return Zone.BELOW
    if on_error or Row.FAILURE in (rows.row[origin], rows.row[to]):
        return Zone.MIDDLE
    return Zone.DIRECT if rows.order[to] == rows.order[origin] + 1 else Zone.ABOVE


def _alternate_loops(rows: StateRows, routes: Iterable[Route]) -> None:
    """The loops of a state run alternately over and under its right side; errors always run under it."""
    seen: dict[str, int] = {}
    for route in routes:
        if route.is_loop:
            over, under = (
                (Zone.MIDDLE, Zone.BELOW) if rows.row[route.to] is Row.FAILURE else (Zone.ABOVE, Zone.MIDDLE)
            )
            count = seen[route.to] = seen.get(route.to, 0) + 1
            route.zone = over if count % 2 and not route.on_error else under


def _enter_from_the_side(rows: StateRows, routes: Iterable[Route]) -> None:
    """Lets routes enter a failure state or the first end state in its own row, where it is free: this saves two bends."""
    taken: list[tuple[Row, float, float]] = []
    for route in sorted(routes, key=lambda each: (each.on_error, -len(each.origins))):
        side = None if route.is_loop else _free_side(rows, route)
        if side is not None:
            places = [rows.order[state] for state in route.ends()]
            row, left, right = rows.row[route.to], min(places), max(places)
            if not any(row is other and left < end and start < right for other, start, end in taken):
                taken.append((row, left, right))
                route.zone = side


def _free_side(rows: StateRows, route: Route) -> Zone | None:
    if rows.ends and route.to == rows.ends[0]:
        return Zone.INTO_LEFT
    if rows.row[route.to] is not Row.FAILURE or any(rows.row[origin] is not Row.PATH for origin in route.origins):
        return None
    target = rows.order[route.to]
    places = [rows.order[origin] for origin in route.origins]
    others = [rows.order[other] for other in rows.failures if other != route.to]
    if max(places) < target and not any(min(places) < other < target for other in others):
        return Zone.INTO_LEFT
    if min(places) > target and not any(target < other < max(places) for other in others):
        return Zone.INTO_RIGHT
    return None
