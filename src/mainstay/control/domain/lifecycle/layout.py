"""The layout of a lifecycle drawing: boxes, right-angled arrows and labels that do not overlap, in drawing units.

The arrows of one action to one target share a trunk and one label. Every trunk has a level of its own where it would
run over another, so labels have their own space. `svg.py` and the pages draw the result."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from mainstay.control.domain.lifecycle.layout_columns import (
    CORNER_ROOM,
    HEAD_ROOM,
    LINE_DISTANCE,
    TOP,
    Columns,
    label_of,
    label_width,
    place_columns,
)
from mainstay.control.domain.lifecycle.layout_routes import LEVELLED, Route, Row, Zone, arrange_rows, find_routes
from mainstay.control.domain.lifecycle.schema import Lifecycle
from mainstay.control.domain.refusals import TooLargeToDraw

# Far more than a readable drawing has, and laid out within a second.
MAX_STATES, MAX_TRANSITIONS = 400, 1_000
STATE_HEIGHT, LABEL_HEIGHT = 36.0, 24.0
FIRST_LEVEL, LEVEL_PITCH, ROW_GAP = 34.0, 32.0, 44.0
MARGIN = 8.0
JOIN_LENGTH = 24.0
# How many places a label tries on each side of the best.
LABEL_TRIES = 40

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
    joining: tuple[Point, ...] | None


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


@dataclass(slots=True)
class _Heights:
    """The top of each row, and the height of the trunk of each route."""

    rows: dict[Row, float] = field(default_factory=dict)
    trunks: dict[int, float] = field(default_factory=dict)


def lay_out(lifecycle: Lifecycle) -> LifecycleLayout:
    count = sum(len(action.transitions) for action in lifecycle.actions.values())
    if len(lifecycle.states) > MAX_STATES or count > MAX_TRANSITIONS:
        raise TooLargeToDraw
    rows = arrange_rows(lifecycle)
    columns = place_columns(rows, find_routes(lifecycle, rows))
    heights = _place_heights(columns)
    boxes = [
        StateBox(state, columns.left[state], heights.rows[columns.rows.row[state]], columns.widths[state])
        for state in lifecycle.states
    ]
    branches = {id(route): tuple(_branches(columns, heights, route)) for route in columns.routes}
    labels = _place_labels(columns, heights, [line for each in branches.values() for line in _verticals(each)])
    trunks = [
        ActionTrunk(each.action, each.to, each.on_error, each.pattern, labels[id(each)], branches[id(each)])
        for each in columns.routes
    ]
    return _moved_to_origin(boxes, trunks)


def _place_heights(columns: Columns) -> _Heights:
    heights = _Heights()
    levels, counts = _assign_levels(columns)
    has_row = {Row.PATH: True, Row.FAILURE: bool(columns.rows.failures), Row.END: bool(columns.rows.ends)}
    bottom = 0.0
    tops = {Zone.ABOVE: -FIRST_LEVEL}
    for row, zone in ((Row.PATH, Zone.MIDDLE), (Row.FAILURE, Zone.BELOW), (Row.END, None)):
        heights.rows[row] = bottom
        if has_row[row]:
            bottom += STATE_HEIGHT
        if zone is not None:
            tops[zone] = bottom + FIRST_LEVEL
            rows_follow = has_row[Row.FAILURE] if zone is Zone.MIDDLE else has_row[Row.END]
            bottom += FIRST_LEVEL + LEVEL_PITCH * (counts[zone] - 1) if counts[zone] else 0.0
            bottom += (FIRST_LEVEL if counts[zone] else ROW_GAP) if rows_follow else 0.0
    for route in columns.routes:
        if route.zone in LEVELLED:
            direction = -1 if route.zone is Zone.ABOVE else 1
            heights.trunks[id(route)] = tops[route.zone] + direction * LEVEL_PITCH * levels[id(route)]
        else:
            heights.trunks[id(route)] = heights.rows[columns.rows.row[route.to]] + STATE_HEIGHT / 2
    return heights


def _assign_levels(columns: Columns) -> tuple[dict[int, int], dict[Zone, int]]:
    """Short trunks nearest to the success path; a trunk gets the first level where it touches no other."""
    levels: dict[int, int] = {}
    counts: dict[Zone, int] = {}
    for zone in LEVELLED:
        spans = [(_span(columns, route), id(route)) for route in columns.routes if route.zone is zone]
        taken: list[list[tuple[float, float]]] = []
        for (left, right), name in sorted(spans, key=lambda each: each[0][1] - each[0][0]):
            free = (
                level
                for level, others in enumerate(taken)
                if all(right + LINE_DISTANCE < start or end + LINE_DISTANCE < left for start, end in others)
            )
            level = next(free, len(taken))
            if level == len(taken):
                taken.append([])
            taken[level].append((left, right))
            levels[name] = level
        counts[zone] = len(taken)
    return levels, counts


def _span(columns: Columns, route: Route) -> tuple[float, float]:
    """The trunk from left to right, at least as wide as its label."""
    places = [columns.port(route, state) for state in route.ends()]
    if route.is_loop:
        places.append(columns.reach(route))
    left, right = min(places), max(places)
    missing = max(0.0, label_width(route) - (right - left)) / 2
    return left - missing, right + missing


def _branches(columns: Columns, heights: _Heights, route: Route) -> Iterator[TrunkBranch]:
    y = heights.trunks[id(route)]
    if route.is_loop:
        yield TrunkBranch(route.to, _loop_points(columns, heights, route), None)
        return
    if route.zone is Zone.DIRECT:
        (origin,) = route.origins
        yield TrunkBranch(origin, ((columns.right(origin), y), (columns.left[route.to], y)), None)
        return
    end = _arrival(columns, heights, route)
    starts = [columns.port(route, origin) for origin in route.origins]
    for origin, x in zip(route.origins, starts, strict=True):
        start = ((x, _edge(columns, heights, route, origin)), (x, y))
        alone = x == (min(starts) if x < end[0][0] else max(starts))
        length = min(JOIN_LENGTH, abs(end[0][0] - x))
        join = (*start, (x + length if end[0][0] > x else x - length, y))
        yield TrunkBranch(origin, (*start, *end), None if alone else join)


def _edge(columns: Columns, heights: _Heights, route: Route, state: str) -> float:
    top = heights.rows[columns.rows.row[state]]
    return top if columns.side_of(route, state) == TOP else top + STATE_HEIGHT


def _arrival(columns: Columns, heights: _Heights, route: Route) -> tuple[Point, ...]:
    """The end of every branch: from the trunk to the box of the target."""
    y = heights.trunks[id(route)]
    if route.zone is Zone.INTO_LEFT:
        return ((columns.left[route.to], y),)
    if route.zone is Zone.INTO_RIGHT:
        return ((columns.right(route.to), y),)
    x = columns.port(route, route.to)
    return ((x, y), (x, _edge(columns, heights, route, route.to)))


def _loop_points(columns: Columns, heights: _Heights, route: Route) -> tuple[Point, ...]:
    """Out of the right side, around the corner, and back through the upper or lower side."""
    side = columns.side_of(route, route.to)
    siblings = [
        each
        for each in columns.routes
        if each.is_loop and each.to == route.to and columns.side_of(each, each.to) == side
    ]
    # The outermost loop leaves nearest to the middle of the side, so that loops do not cross.
    distance = 7.0 if len(siblings) == 1 else 4.0 + 9.0 * siblings.index(route) / (len(siblings) - 1)
    middle = heights.rows[columns.rows.row[route.to]] + STATE_HEIGHT / 2
    out = middle - distance if side == TOP else middle + distance
    y, x, reach = heights.trunks[id(route)], columns.port(route, route.to), columns.reach(route)
    edge = _edge(columns, heights, route, route.to)
    return (columns.right(route.to), out), (reach, out), (reach, y), (x, y), (x, edge)


def _verticals(branches: Iterable[TrunkBranch]) -> Iterator[tuple[float, float, float]]:
    """The vertical lines as x, upper and lower end."""
    for branch in branches:
        for (x, y), (next_x, next_y) in zip(branch.points, branch.points[1:], strict=False):
            if x == next_x:
                yield x, min(y, next_y), max(y, next_y)


def _place_labels(
    columns: Columns, heights: _Heights, verticals: list[tuple[float, float, float]]
) -> dict[int, LabelBox]:
    labels = {}
    crossing: dict[float, list[float]] = {}
    for route in columns.routes:
        y = heights.trunks[id(route)]
        if y not in crossing:
            reach = LABEL_HEIGHT / 2
            crossing[y] = sorted(x for x, top, bottom in verticals if top < y + reach and bottom > y - reach)
        width = label_width(route)
        x = _label_place(_label_range(columns, route), width, crossing[y])
        labels[id(route)] = LabelBox(label_of(route), x, y, width)
    return labels


def _label_range(columns: Columns, route: Route) -> tuple[float, float]:
    """Where the label is best: between the target and the origin next to it, where all branches have met."""
    if route.is_loop:
        return columns.port(route, route.to), columns.reach(route)
    if route.zone is Zone.DIRECT:
        origin = route.origins[0]
        loops = columns.left[origin] + columns.extent(origin)
        return loops, columns.left[route.to] - (HEAD_ROOM - LINE_DISTANCE)
    starts = [columns.port(route, origin) for origin in route.origins]
    if route.zone is Zone.INTO_LEFT:
        return max(starts) + CORNER_ROOM, columns.left[route.to] - (HEAD_ROOM - LINE_DISTANCE)
    if route.zone is Zone.INTO_RIGHT:
        return columns.left[route.to] + columns.extent(route.to) + (HEAD_ROOM - LINE_DISTANCE), min(
            starts
        ) - CORNER_ROOM
    end = columns.port(route, route.to)
    width = label_width(route) + CORNER_ROOM
    for start in sorted(starts, key=lambda x: abs(x - end)):
        if abs(start - end) >= width:
            return min(start, end), max(start, end)
    return _span(columns, route)


def _label_place(between: tuple[float, float], width: float, lines: list[float]) -> float:
    """The place nearest to the middle where no vertical line runs behind the label."""
    left, right = between[0] + width / 2, between[1] - width / 2
    middle = (between[0] + between[1]) / 2
    if left >= right:
        return middle
    step = max(2.0, (right - left) / 2 / LABEL_TRIES)
    for index in range(LABEL_TRIES + 1):
        for x in (middle - index * step, middle + index * step):
            place = bisect_left(lines, x - width / 2)
            free = place == len(lines) or lines[place] > x + width / 2
            if left <= x <= right and free:
                return x
    return middle


def _moved_to_origin(boxes: list[StateBox], trunks: list[ActionTrunk]) -> LifecycleLayout:
    points = [point for trunk in trunks for branch in trunk.branches for point in branch.points]
    for box in boxes:
        points += [(box.x, box.y), (box.x + box.width, box.y + box.height)]
    for label in (trunk.label for trunk in trunks):
        points += [(label.x - label.width / 2, label.y - label.height / 2)]
        points += [(label.x + label.width / 2, label.y + label.height / 2)]
    dx, dy = MARGIN - min(x for x, _ in points), MARGIN - min(y for _, y in points)
    return LifecycleLayout(
        tuple(StateBox(box.state, box.x + dx, box.y + dy, box.width) for box in boxes),
        tuple(_moved(trunk, dx, dy) for trunk in trunks),
        max(x for x, _ in points) + dx + MARGIN,
        max(y for _, y in points) + dy + MARGIN,
    )


def _moved(trunk: ActionTrunk, dx: float, dy: float) -> ActionTrunk:
    def shifted(points: tuple[Point, ...]) -> tuple[Point, ...]:
        return tuple((x + dx, y + dy) for x, y in points)

    label = LabelBox(trunk.label.text, trunk.label.x + dx, trunk.label.y + dy, trunk.label.width)
    branches = tuple(
        TrunkBranch(each.origin, shifted(each.points), None if each.joining is None else shifted(each.joining))
        for each in trunk.branches
    )
    return ActionTrunk(trunk.action, trunk.to, trunk.on_error, trunk.pattern, label, branches)
