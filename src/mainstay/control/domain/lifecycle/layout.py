"""The layout of a lifecycle drawing: boxes, right-angled arrows and labels that do not overlap, in drawing units.

Every state has a column of its own and one of three rows: the success path, below it failure states, below those end
states. So a vertical line meets no box, and no two run on top of each other. The arrows of one action to one target
share a trunk and one label. A trunk runs above a row, at a level where it touches no other. `svg.py` draws the result."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import pairwise

from mainstay.control.domain.lifecycle.drawn_text import shortened, text_width
from mainstay.control.domain.lifecycle.schema import Lifecycle
from mainstay.control.domain.lifecycle.state_kind import StateKind, kind_of_state
from mainstay.control.domain.refusals import TooLargeToDraw

# Far more than a readable drawing has, and laid out within a second.
MAX_STATES, MAX_TRANSITIONS = 400, 1_000
PATH, FAILURES, ENDS = range(3)
ROWS: Mapping[StateKind, int] = {"bad": FAILURES, "end": ENDS}
# The lit state is bold, which is wider.
STATE_FONT, LABEL_FONT = 14.0, 12.0
STATE_HEIGHT, LABEL_HEIGHT = 36.0, 24.0
LEAST_BOX_WIDTH, BOX_PADDING, BOX_GAP = 84.0, 38.0, 20.0
LABEL_PADDING, MAX_LABEL_LENGTH = 20.0, 24
# Beside a label: room for the corner before it and the arrow head behind it.
LABEL_GAP = 13.0
PORT_PITCH, LEVEL_PITCH, LINE_DISTANCE = 16.0, 32.0, 8.0
LOOP_REACH, LOOP_PITCH = 20.0, 12.0
MARGIN, JOIN_LENGTH = 8.0, 24.0

Point = tuple[float, float]


@dataclass(frozen=True, slots=True)
class StateBox:
    state: str
    x: float
    y: float
    width: float
    height: float = STATE_HEIGHT


@dataclass(frozen=True, slots=True)
class LabelBox:
    """The space of a label, by its centre."""

    text: str
    x: float
    y: float
    width: float
    height: float = LABEL_HEIGHT


@dataclass(frozen=True, slots=True)
class TrunkBranch:
    origin: str
    # From the origin to the target.
    points: tuple[Point, ...]
    # Only the part up to the trunk, if a longer branch draws the rest. None: this branch draws all of it.
    joining: tuple[Point, ...] | None = None


@dataclass(frozen=True, slots=True)
class ActionTrunk:
    action: str
    to: str
    on_error: bool
    pattern: str | None
    label: LabelBox
    branches: tuple[TrunkBranch, ...]


@dataclass(frozen=True, slots=True)
class LifecycleLayout:
    boxes: tuple[StateBox, ...]
    trunks: tuple[ActionTrunk, ...]
    width: float
    height: float


@dataclass(frozen=True, slots=True, eq=False)
class _Route:
    """A trunk before it has a place."""

    action: str
    to: str
    on_error: bool
    # None: a success, or an error without an expression.
    pattern: str | None
    # The row above which it runs. None: straight from a state of the success path to the next.
    zone: int | None
    origins: list[str] = field(default_factory=list)

    @property
    def is_loop(self) -> bool:
        return self.to in self.origins

    @property
    def label(self) -> str:
        name = shortened(self.pattern or self.action, MAX_LABEL_LENGTH)
        return f"{name} fails" if self.on_error and self.pattern is None else name

    @property
    def label_width(self) -> float:
        return text_width(self.label, LABEL_FONT) + LABEL_PADDING

    def others(self, state: str) -> list[str]:
        return self.origins if state == self.to else [self.to]


def lay_out(lifecycle: Lifecycle) -> LifecycleLayout:
    count = sum(len(action.transitions) for action in lifecycle.actions.values())
    if len(lifecycle.states) > MAX_STATES or count > MAX_TRANSITIONS:
        raise TooLargeToDraw
    rows = {state: ROWS.get(kind_of_state(lifecycle, state), PATH) for state in lifecycle.states}
    columns = _columns(lifecycle, rows)
    drawing = _Drawing(rows, columns, _routes(lifecycle, rows, [state for state in columns if rows[state] == PATH]))
    drawing.place_ports()
    drawing.place_columns()
    drawing.place_levels()
    return LifecycleLayout(
        tuple(
            StateBox(each, drawing.left[each], drawing.top(each), drawing.widths[each]) for each in lifecycle.states
        ),
        tuple(map(drawing.trunk, drawing.routes)),
        max(drawing.left[state] + drawing.extents[state] for state in columns) + MARGIN,
        drawing.bottom + MARGIN,
    )


def _columns(lifecycle: Lifecycle, rows: Mapping[str, int]) -> dict[str, int]:
    """The column of every state: origins before targets along the success path, a failure state behind the middle of the
    states that it is reached from, end states last."""
    order: list[str] = []
    for root in (lifecycle.initial_state, *lifecycle.states):
        order += reversed(list(_visited(lifecycle, root, set(order))))
    place = {state: float(index) for index, state in enumerate(order)}
    for state in (each for each in order if rows[each] == FAILURES):
        origins = [order.index(each.origin) for _, each in lifecycle.transitions() if each.to == state]
        place[state] = sum(origins) / len(origins) + 0.5
    order.sort(key=lambda state: (rows[state] == ENDS, place[state]))
    return {state: column for column, state in enumerate(order)}


def _visited(lifecycle: Lifecycle, state: str, seen: set[str]) -> Iterator[str]:
    """Targets of success transitions before their origins, the last declared first."""
    if state not in seen:
        seen.add(state)
        for action in reversed(lifecycle.actions.values()):
            if state in action.successes:
                yield from _visited(lifecycle, action.successes[state], seen)
        yield state


def _routes(lifecycle: Lifecycle, rows: Mapping[str, int], path: list[str]) -> tuple[_Route, ...]:
    routes: dict[tuple[object, ...], _Route] = {}
    straight = set(pairwise(path))
    for action, each in lifecycle.transitions():
        zone: int | None = max(rows[each.origin], rows[each.to], int(each.on_error))
        if zone == PATH and (each.origin, each.to) in straight:
            straight.discard((each.origin, each.to))
            zone = None
        kind = (action.name, each.to, each.on_error, each.pattern, zone)
        # A straight arrow and a loop have no trunk that others could join.
        alone = each.origin if zone is None or each.origin == each.to else None
        route = routes.setdefault((*kind, alone), _Route(*kind))
        if each.origin not in route.origins:
            route.origins.append(each.origin)
    return tuple(routes.values())


@dataclass(slots=True)
class _Drawing:
    rows: Mapping[str, int]
    # In the order of columns.
    columns: dict[str, int]
    routes: tuple[_Route, ...]
    widths: dict[str, float] = field(default_factory=dict)
    # The width of a box with its self-loops.
    extents: dict[str, float] = field(default_factory=dict)
    # Where a route touches the upper or lower side of a box, from the left edge of the box.
    ports: dict[tuple[_Route, str], float] = field(default_factory=dict)
    # The right end of a self-loop, from the left edge of the box, and the distance of its start from the middle.
    loops: dict[_Route, tuple[float, float]] = field(default_factory=dict)
    left: dict[str, float] = field(default_factory=dict)
    tops: list[float] = field(default_factory=list)
    trunks: dict[_Route, float] = field(default_factory=dict)
    bottom: float = MARGIN

    def place_ports(self) -> None:
        sides: dict[tuple[str, bool], list[_Route]] = {
            (state, up): [] for state in self.columns for up in (True, False)
        }
        for route in self.routes:
            if route.zone is not None:
                for state in dict.fromkeys((*route.origins, route.to)):
                    sides[state, self._is_above(route, state)].append(route)
        for state in self.columns:
            count = max(len(sides[state, True]), len(sides[state, False]))
            name_width = text_width(shortened(state), STATE_FONT) + BOX_PADDING
            self.widths[state] = self.extents[state] = max(LEAST_BOX_WIDTH, name_width, PORT_PITCH * (count + 1))
        for (state, _), touching in sides.items():
            touching.sort(key=lambda route: self._port_rank(route, state))
            for index, route in enumerate(touching):
                self.ports[route, state] = self.widths[state] * (index + 1) / (len(touching) + 1)
            self._place_loops(state, [route for route in reversed(touching) if route.is_loop])

    def _port_rank(self, route: _Route, state: str) -> float:
        """From left to right: near targets on the left, far ones, far ones on the right, near ones, and loops. So few
        lines cross, because short trunks are next to the row."""
        if route.is_loop:
            return float("inf")
        others = route.others(state)
        distance = sum(self.columns[other] for other in others) / len(others) - self.columns[state]
        return 1 / distance if distance else 0.0

    def _place_loops(self, state: str, loops: list[_Route]) -> None:
        """From the innermost. The outermost leaves nearest to the middle of the right side, so that loops do not cross."""
        reach = self.widths[state] + LOOP_REACH
        for index, route in enumerate(loops):
            reach = max(reach, self.ports[route, state] + route.label_width + LABEL_GAP)
            self.loops[route] = reach, 10 - 6 * index / len(loops)
            self.extents[state] = max(self.extents[state], reach)
            reach += LOOP_PITCH

    def place_columns(self) -> None:
        """From left to right, with room for the label of every route between its target and the nearest origin."""
        labelled: dict[str, list[_Route]] = {state: [] for state in self.columns}
        for route in self.routes:
            if not route.is_loop:
                labelled[self._beside_label(route)[1]].append(route)
        edge = MARGIN
        for state, routes in labelled.items():
            self.left[state] = edge
            for route in routes:
                start, end = self._label_range(route)
                self.left[state] += max(0.0, start + route.label_width + 2 * LABEL_GAP - end)
            edge = self.left[state] + self.extents[state] + BOX_GAP

    def _beside_label(self, route: _Route) -> list[str]:
        """The target and the nearest origin, between which all branches from that side have met, from left to right."""
        nearest = min(route.origins, key=lambda origin: abs(self.columns[origin] - self.columns[route.to]))
        return sorted((route.to, nearest), key=self.columns.__getitem__)

    def _label_range(self, route: _Route) -> tuple[float, float]:
        if route.is_loop:
            return self._port(route, route.to), self.left[route.to] + self.loops[route][0]
        first, last = self._beside_label(route)
        if route.zone is None:
            return self.left[first] + self.extents[first], self.left[last]
        return self._port(route, first), self._port(route, last)

    def place_levels(self) -> None:
        """Short trunks nearest to the success path; a trunk gets the first level where it touches no other."""
        for zone in (PATH, FAILURES, ENDS):
            taken: list[list[tuple[float, float]]] = []
            levels: dict[_Route, int] = {}
            spans = {route: self._span(route) for route in self.routes if route.zone == zone}
            for route, (left, right) in sorted(spans.items(), key=lambda each: each[1][1] - each[1][0]):
                free = (
                    level
                    for level, others in enumerate(taken)
                    if all(right + LINE_DISTANCE < start or end + LINE_DISTANCE < left for start, end in others)
                )
                levels[route] = next(free, len(taken))
                if levels[route] == len(taken):
                    taken.append([])
                taken[levels[route]].append((left, right))
            self._place_row(zone, levels, len(taken))

    def _span(self, route: _Route) -> tuple[float, float]:
        places = [*self._label_range(route), *(self._port(route, origin) for origin in route.origins)]
        return min(places), max(places)

    def _place_row(self, row: int, levels: Mapping[_Route, int], count: int) -> None:
        has_states = row in self.rows.values()
        if count or (has_states and row != PATH):
            self.bottom += LEVEL_PITCH * (count + 1)
        self.tops.append(self.bottom)
        for route, level in levels.items():
            self.trunks[route] = self.bottom - LEVEL_PITCH * (level + 1 if row == PATH else count - level)
        self.bottom += STATE_HEIGHT if has_states else 0.0

    def trunk(self, route: _Route) -> ActionTrunk:
        start, end = self._label_range(route)
        y = self.trunks.get(route, self.tops[PATH] + STATE_HEIGHT / 2)
        label = LabelBox(route.label, (start + end) / 2, y, route.label_width)
        return ActionTrunk(
            route.action, route.to, route.on_error, route.pattern, label, tuple(self._branches(route, y))
        )

    def _branches(self, route: _Route, y: float) -> Iterator[TrunkBranch]:
        if route.zone is None:
            (origin,) = route.origins
            yield TrunkBranch(origin, ((self.left[origin] + self.widths[origin], y), (self.left[route.to], y)))
            return
        x = self._port(route, route.to)
        arrival = ((x, y), (x, self._edge(route, route.to)))
        if route.is_loop:
            yield TrunkBranch(route.to, (*self._loop_start(route, y), *arrival))
            return
        starts = [self._port(route, origin) for origin in route.origins]
        for origin, start in zip(route.origins, starts, strict=True):
            corner = ((start, self._edge(route, origin)), (start, y))
            is_outermost = start == (min(starts) if start < x else max(starts))
            join = (*corner, (start + (JOIN_LENGTH if start < x else -JOIN_LENGTH), y))
            yield TrunkBranch(origin, (*corner, *arrival), None if is_outermost else join)

    def _loop_start(self, route: _Route, y: float) -> tuple[Point, ...]:
        """Out of the right side and around the corner."""
        reach, distance = self.loops[route]
        left, middle = self.left[route.to], self.top(route.to) + STATE_HEIGHT / 2
        out = middle - distance if self._is_above(route, route.to) else middle + distance
        return (left + self.widths[route.to], out), (left + reach, out), (left + reach, y)

    def top(self, state: str) -> float:
        return self.tops[self.rows[state]]

    def _is_above(self, route: _Route, state: str) -> bool:
        return route.zone == self.rows[state]

    def _edge(self, route: _Route, state: str) -> float:
        return self.top(state) + (0.0 if self._is_above(route, state) else STATE_HEIGHT)

    def _port(self, route: _Route, state: str) -> float:
        return self.left[state] + self.ports[route, state]
