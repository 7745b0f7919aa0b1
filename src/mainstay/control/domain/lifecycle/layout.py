"""The layout of a lifecycle diagram: layers from the initial state down, few crossings, no overlapping labels.

Every arrow has its own points between the layers. The point with the label is as wide as the text."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from mainstay.control.domain.refusals import TooLargeToDraw

SWEEPS = 8
GAP = 24.0
# Far more than a readable diagram has, and drawn within a second.
MAX_POINTS = 10_000
POINT_WIDTH = 12.0


@dataclass(slots=True, eq=False)
class Spot:
    """A state, or a point that an arrow passes through."""

    width: float
    layer: int
    x: float = 0.0
    above: list[Spot] = field(default_factory=list)
    below: list[Spot] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Line:
    """An arrow to lay out: the indexes of its states and the width of its label."""

    origin: int
    to: int
    label_width: float


@dataclass(frozen=True, slots=True)
class Layout:
    states: tuple[Spot, ...]
    # The points of each line from origin to target.
    routes: tuple[tuple[Spot, ...], ...]
    layers: tuple[tuple[Spot, ...], ...]


def lay_out(widths: Sequence[float], lines: Sequence[Line], first: int) -> Layout:
    """`lines` contains no loops: `svg.py` draws those beside their state."""
    ranks = _ranks(len(widths), [(line.origin, line.to) for line in lines], first)
    if sum(2 * abs(ranks[line.origin] - ranks[line.to]) for line in lines) > MAX_POINTS:
        raise TooLargeToDraw
    # Every second layer contains the labels.
    states = [Spot(width, 2 * rank) for width, rank in zip(widths, ranks, strict=True)]
    layers: list[list[Spot]] = [[] for _ in range(2 * max(ranks, default=0) + 1)]
    for index in sorted(range(len(states)), key=lambda each: (ranks[each], each)):
        layers[states[index].layer].append(states[index])
    routes = [_route(states[line.origin], states[line.to], line.label_width, layers) for line in lines]
    for _ in range(SWEEPS):
        _order(layers)
    _place(layers)
    return Layout(tuple(states), tuple(routes), tuple(map(tuple, layers)))


def _ranks(count: int, edges: list[tuple[int, int]], first: int) -> list[int]:
    """The length of the longest path to each state, without arrows that lead back."""
    targets: list[list[int]] = [[] for _ in range(count)]
    for origin, to in edges:
        targets[origin].append(to)
    finished: list[int] = []
    entered = [False] * count
    forward: set[tuple[int, int]] = set()
    for root in (first, *range(count)):
        _walk(root, targets, entered, finished, forward)
    ranks = [0] * count
    for origin in reversed(finished):
        for to in targets[origin]:
            if (origin, to) in forward:
                ranks[to] = max(ranks[to], ranks[origin] + 1)
    return ranks


def _walk(
    root: int, targets: list[list[int]], entered: list[bool], finished: list[int], forward: set[tuple[int, int]]
) -> None:
    """Depth first without recursion: a lifecycle may have more states than Python's recursion limit."""
    if entered[root]:
        return
    entered[root] = True
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
            if not entered[to]:
                entered[to] = True
                open_states.add(to)
                stack.append((to, iter(targets[to])))


def _route(origin: Spot, to: Spot, label_width: float, layers: list[list[Spot]]) -> tuple[Spot, ...]:
    upper, lower = (origin, to) if origin.layer <= to.layer else (to, origin)
    if upper.layer == lower.layer:
        # States of one layer: the arrow goes through the label layer below, or the last layer.
        between = [min(upper.layer + 1, len(layers) - 1)]
    else:
        between = list(range(upper.layer + 1, lower.layer))
    middle = between[len(between) // 2]
    points = [Spot(label_width if layer == middle else POINT_WIDTH, layer) for layer in between]
    for point in points:
        layers[point.layer].append(point)
    chain = [upper, *points, lower]
    for above, below in pairwise(chain):
        above.below.append(below)
        below.above.append(above)
    return tuple(chain if upper is origin else reversed(chain))


def _order(layers: list[list[Spot]]) -> None:
    """Sorts each layer by the mean position of the neighbours; once downwards, once upwards."""
    position: dict[int, float] = {}
    for layer in layers:
        _renumber(layer, position)
    for downwards in (True, False):
        for layer in layers if downwards else reversed(layers):
            wanted = {
                id(spot): _mean_position(spot.above if downwards else spot.below, spot, position) for spot in layer
            }
            layer.sort(key=lambda spot: wanted[id(spot)])
            _renumber(layer, position)


def _renumber(layer: list[Spot], position: dict[int, float]) -> None:
    for index, spot in enumerate(layer):
        position[id(spot)] = (index + 0.5) / len(layer)


def _mean_position(neighbours: list[Spot], spot: Spot, position: dict[int, float]) -> float:
    if not neighbours:
        return position[id(spot)]
    return sum(position[id(each)] for each in neighbours) / len(neighbours)


def _place(layers: list[list[Spot]]) -> None:
    for layer in layers:
        _spread(layer, [0.0] * len(layer))
    for sweep in range(SWEEPS):
        for layer in layers if sweep % 2 == 0 else reversed(layers):
            _spread(layer, [_wanted_x(spot) for spot in layer])
    left = min((spot.x - spot.width / 2 for layer in layers for spot in layer), default=0.0)
    for layer in layers:
        for spot in layer:
            spot.x -= left


def _wanted_x(spot: Spot) -> float:
    neighbours = spot.above + spot.below
    return sum(each.x for each in neighbours) / len(neighbours) if neighbours else spot.x


def _spread(layer: list[Spot], wanted: list[float]) -> None:
    """Places the spots as close to `wanted` as their widths allow, in the same order."""
    placed: list[float] = []
    for index, (spot, x) in enumerate(zip(layer, wanted, strict=True)):
        least = x if index == 0 else placed[-1] + (layer[index - 1].width + spot.width) / 2 + GAP
        placed.append(max(x, least))
    # The loop only pushes spots to the right, so the layer shifts back by the mean.
    shift = sum(x - now for x, now in zip(wanted, placed, strict=True)) / max(len(layer), 1)
    for spot, x in zip(layer, placed, strict=True):
        spot.x = x + shift
