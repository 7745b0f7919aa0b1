"""The horizontal places of a lifecycle drawing: boxes, the ports where arrows touch them, and self-loops."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from mainstay.control.domain.lifecycle.drawn_text import shortened, text_width
from mainstay.control.domain.lifecycle.layout_routes import Route, Row, StateRows, Zone

# The lit state is bold, which is wider.
STATE_FONT, LABEL_FONT = 14.0, 12.0
LEAST_BOX_WIDTH = 104.0
# Room for the mark at the start of a box and its padding.
BOX_PADDING = 44.0
LABEL_PADDING = 26.0
MAX_LABEL_LENGTH = 24
PORT_PITCH = 16.0
# Vertical lines of different routes keep this distance.
LINE_DISTANCE = 8.0
# Beside a label: the corner before it, and the arrow head behind it.
CORNER_ROOM, HEAD_ROOM = 16.0, 22.0
COLUMN_GAP, BOX_GAP, PASSING_GAP = 44.0, 28.0, 14.0
LOOP_REACH, LOOP_PITCH = 22.0, 12.0

TOP, BOTTOM = "top", "bottom"


def label_of(route: Route) -> str:
    if route.pattern is not None:
        return shortened(route.pattern, MAX_LABEL_LENGTH)
    name = shortened(route.action, MAX_LABEL_LENGTH)
    return f"{name} fails" if route.on_error else name


def label_width(route: Route) -> float:
    return text_width(label_of(route), LABEL_FONT) + LABEL_PADDING


@dataclass(slots=True)
class Columns:
    rows: StateRows
    routes: tuple[Route, ...]
    widths: dict[str, float] = field(default_factory=dict)
    # The left edge of every box.
    left: dict[str, float] = field(default_factory=dict)
    # Where a route touches a state, from the left edge of the box.
    offsets: dict[tuple[int, str], float] = field(default_factory=dict)
    # The right end of each self-loop, from the left edge of the box.
    reaches: dict[int, float] = field(default_factory=dict)
    # More room behind a column, for labels that the gap is too narrow for.
    extra: list[float] = field(default_factory=list)
    # By state: the offsets of the lines that go down to the row of failure states or past it.
    passing: dict[str, list[float]] = field(default_factory=dict)

    def side_of(self, route: Route, state: str) -> str:
        row = self.rows.row[state]
        if row is Row.PATH:
            return TOP if route.zone is Zone.ABOVE else BOTTOM
        return TOP if row is Row.END or route.zone is Zone.MIDDLE else BOTTOM

    def port(self, route: Route, state: str) -> float:
        return self.left[state] + self.offsets[id(route), state]

    def reach(self, route: Route) -> float:
        return self.left[route.to] + self.reaches[id(route)]

    def right(self, state: str) -> float:
        return self.left[state] + self.widths[state]

    def extent(self, state: str) -> float:
        """The width of a state with its self-loops."""
        loops = (self.reaches[id(each)] for each in self.routes if each.is_loop and each.to == state)
        return max(self.widths[state], *loops, 0.0)


def place_columns(rows: StateRows, routes: tuple[Route, ...]) -> Columns:
    columns = Columns(rows, routes, extra=[0.0] * len(rows.path))
    _place_ports(columns)
    _place_loops(columns)
    _sweep(columns)
    if _widen(columns):
        _sweep(columns)
    _place_ends(columns)
    _keep_lines_apart(columns)
    return columns


def _place_ports(columns: Columns) -> None:
    ports: dict[tuple[str, str], list[Route]] = {}
    for route in columns.routes:
        for state in _touched(route):
            ports.setdefault((state, columns.side_of(route, state)), []).append(route)
    for state in (*columns.rows.path, *columns.rows.failures, *columns.rows.ends):
        count = max(len(ports.get((state, side), ())) for side in (TOP, BOTTOM))
        name_width = text_width(shortened(state), STATE_FONT) + BOX_PADDING
        columns.widths[state] = max(LEAST_BOX_WIDTH, name_width, PORT_PITCH * (count + 1))
    for (state, _), touching in ports.items():
        touching.sort(key=lambda route: _port_rank(columns, route, state))
        pitch = columns.widths[state] / (len(touching) + 1)
        for index, route in enumerate(touching):
            columns.offsets[id(route), state] = pitch * (index + 1)
    columns.passing = {state: [] for state in columns.rows.path}
    for route in columns.routes:
        if route.zone in (Zone.BELOW, Zone.INTO_LEFT, Zone.INTO_RIGHT):
            for state in route.origins:
                if columns.rows.row[state] is Row.PATH:
                    columns.passing[state].append(columns.offsets[id(route), state])


def _touched(route: Route) -> Iterable[str]:
    """The states whose upper or lower side the route touches."""
    if route.zone is Zone.DIRECT:
        return ()
    return route.origins if route.zone in (Zone.INTO_LEFT, Zone.INTO_RIGHT) else route.ends()


def _port_rank(columns: Columns, route: Route, state: str) -> tuple[int, float]:
    """Lines down to the end states first, then lines to the left, to the right, and loops: few lines cross."""
    order = columns.rows.order
    if route.is_loop:
        return 3, 0.0
    others = route.origins if state == route.to else [route.to]
    distance = sum(order[other] for other in others) / len(others) - order[state]
    if columns.rows.row[route.to] is Row.END and state != route.to:
        return 0, distance
    if route.zone in (Zone.INTO_LEFT, Zone.INTO_RIGHT):
        # Deeper than every level, so outside of the lines that turn before it.
        distance *= len(order)
    return (1, -distance) if distance < 0 else (2, -distance)


def _place_loops(columns: Columns) -> None:
    """The last loop of a side is the innermost: its port is the rightmost."""
    reached: dict[tuple[str, str], float] = {}
    for route in reversed(columns.routes):
        if route.is_loop:
            side = (route.to, columns.side_of(route, route.to))
            least = reached.get(side, columns.widths[route.to] + LOOP_REACH - LOOP_PITCH) + LOOP_PITCH
            needed = columns.offsets[id(route), route.to] + label_width(route) + CORNER_ROOM
            reached[side] = columns.reaches[id(route)] = max(least, needed)


def _sweep(columns: Columns) -> None:
    """Places the success path from left to right, with room below for the failure states of each column."""
    rows, passed = columns.rows, -PASSING_GAP
    end_of_failures = -BOX_GAP
    # No line down from the success path is allowed left of this.
    free_from = 0.0
    edge = 0.0
    for column, state in enumerate(rows.path):
        passing = columns.passing[state]
        columns.left[state] = max(edge, free_from - min(passing)) if passing else edge
        passed = max([passed, *(columns.left[state] + offset for offset in passing)])
        edge = columns.left[state] + columns.extent(state) + _gap(columns, column)
        for failure in rows.slots[column]:
            entry = _entry(columns, failure, Zone.INTO_LEFT)
            stubs = [columns.port(entry, origin) for origin in entry.origins] if entry else []
            room = CORNER_ROOM + label_width(entry) + HEAD_ROOM if entry else 0.0
            columns.left[failure] = max([passed + PASSING_GAP, end_of_failures + BOX_GAP, *(x + room for x in stubs)])
            end_of_failures = columns.left[failure] + columns.extent(failure)
            free_from = end_of_failures + _room_right(columns, failure)
    _centre_failures(columns)


def _entry(columns: Columns, failure: str, side: Zone) -> Route | None:
    return next((route for route in columns.routes if route.to == failure and route.zone is side), None)


def _room_right(columns: Columns, failure: str) -> float:
    entry = _entry(columns, failure, Zone.INTO_RIGHT)
    return PASSING_GAP if entry is None else CORNER_ROOM + label_width(entry) + HEAD_ROOM


def _gap(columns: Columns, column: int) -> float:
    state = columns.rows.path[column]
    direct = [label_width(each) for each in columns.routes if each.zone is Zone.DIRECT and each.origins[0] == state]
    return max([COLUMN_GAP, *(LINE_DISTANCE + width + HEAD_ROOM for width in direct)]) + columns.extra[column]


def _centre_failures(columns: Columns) -> None:
    """Moves failure states to the right, towards the middle of their gap, as far as lines and neighbours allow."""
    rows = columns.rows
    bound = float("inf")
    for column in reversed(range(len(rows.path))):
        for failure in reversed(rows.slots[column]):
            width = columns.extent(failure)
            lines = [
                columns.left[state] + offset for state in rows.path[column + 1 :] for offset in columns.passing[state]
            ]
            limit = min([bound - BOX_GAP, *(x - _room_right(columns, failure) for x in lines)]) - width
            following = rows.path[min(column + 1, len(rows.path) - 1)]
            middle = (columns.right(rows.path[column]) + columns.left[following]) / 2 - columns.widths[failure] / 2
            columns.left[failure] = max(columns.left[failure], min(middle, limit))
            bound = columns.left[failure]


def _widen(columns: Columns) -> bool:
    """Widens gaps of the success path until the label of each arrow between two of its states fits."""
    widened = False
    for route in columns.routes:
        if (
            route.zone in (Zone.ABOVE, Zone.MIDDLE)
            and not route.is_loop
            and all(columns.rows.row[state] is Row.PATH for state in route.ends())
        ):
            places = [columns.port(route, state) for state in route.ends()]
            missing = label_width(route) + 2 * CORNER_ROOM - (max(places) - min(places))
            if missing > 0:
                first = min(int(columns.rows.order[state]) for state in route.ends())
                columns.extra[first] = max(columns.extra[first], missing)
                widened = True
    return widened


def _place_ends(columns: Columns) -> None:
    """At the right edge of the success path, or further right where the label of the first needs it."""
    rows = columns.rows
    if not rows.ends:
        return
    total = sum(columns.widths[state] for state in rows.ends) + BOX_GAP * (len(rows.ends) - 1)
    left = max(0.0, columns.right(rows.path[-1]) - total)
    entry = _entry(columns, rows.ends[0], Zone.INTO_LEFT)
    if entry is not None:
        stubs = [columns.port(entry, origin) for origin in entry.origins]
        left = max(left, max(stubs) + CORNER_ROOM + label_width(entry) + HEAD_ROOM)
    for state in rows.ends:
        columns.left[state] = left
        left += columns.widths[state] + BOX_GAP


def _keep_lines_apart(columns: Columns) -> None:
    """Moves ports of the lower rows so that no line from above runs on top of theirs."""
    for states, zone in ((columns.rows.failures, Zone.MIDDLE), (columns.rows.ends, Zone.BELOW)):
        lower = set(states)
        occupied = _lines_from_above(columns, lower)
        for route in columns.routes:
            if route.zone is zone:
                for state in route.ends():
                    if state in lower:
                        place = _free_place(columns, route, state, occupied)
                        columns.offsets[id(route), state] = place - columns.left[state]
                        occupied.append(place)


def _lines_from_above(columns: Columns, lower: set[str]) -> list[float]:
    upper = [(route, state) for route in columns.routes for state in _touched(route) if state not in lower]
    found = [columns.port(route, state) for route, state in upper if columns.side_of(route, state) == BOTTOM]
    return found + [columns.reach(route) for route, _ in upper if route.is_loop]


def _free_place(columns: Columns, route: Route, state: str, occupied: Iterable[float]) -> float:
    wanted = columns.port(route, state)
    left, right = columns.left[state] + LINE_DISTANCE, columns.right(state) - LINE_DISTANCE
    near = sorted(x for x in occupied if left - LINE_DISTANCE < x < right + LINE_DISTANCE)
    candidates = [wanted, *(x + LINE_DISTANCE for x in near), *(x - LINE_DISTANCE for x in near)]
    free = [
        x for x in candidates if left <= x <= right and all(abs(x - other) >= LINE_DISTANCE - 0.01 for other in near)
    ]
    return min(free, key=lambda x: abs(x - wanted), default=wanted)
