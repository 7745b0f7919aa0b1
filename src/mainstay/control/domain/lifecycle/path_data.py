"""SVG path data: right-angled lines with round corners, and arrow heads."""

from __future__ import annotations

from collections.abc import Sequence

RADIUS = 12.0
HEAD_LENGTH, HEAD_HALF_WIDTH = 7.0, 4.0

Point = tuple[float, float]


def number(value: float) -> str:
    """At most one decimal, and none that is zero."""
    text = f"{value:.1f}"
    return text[:-2] if text.endswith(".0") else text


def rounded_path(points: Sequence[Point]) -> str:
    """A line through the points. A corner is as round as the shorter of its two sides allows."""
    path = f"M{_pair(points[0])}"
    for before, corner, after in zip(points, points[1:], points[2:], strict=False):
        radius = min(RADIUS, _distance(before, corner) / 2, _distance(corner, after) / 2)
        path += f"L{_pair(_towards(corner, before, radius))}Q{_pair(corner)} {_pair(_towards(corner, after, radius))}"
    return f"{path}L{_pair(points[-1])}"


def head_path(points: Sequence[Point]) -> str:
    """The arrow head at the end of the line."""
    (x, y), base = points[-1], _towards(points[-1], points[-2], HEAD_LENGTH)
    if base[1] == y:
        corners = ((base[0], y - HEAD_HALF_WIDTH), (base[0], y + HEAD_HALF_WIDTH))
    else:
        corners = ((x - HEAD_HALF_WIDTH, base[1]), (x + HEAD_HALF_WIDTH, base[1]))
    return f"M{_pair((x, y))}L{_pair(corners[0])}L{_pair(corners[1])}z"


def without_head(points: Sequence[Point]) -> tuple[Point, ...]:
    """The line up to its arrow head, so that a thick line does not show beside the tip."""
    return (*points[:-1], _towards(points[-1], points[-2], HEAD_LENGTH))


def _pair(point: Point) -> str:
    return f"{number(point[0])} {number(point[1])}"


def _distance(one: Point, other: Point) -> float:
    return abs(one[0] - other[0]) + abs(one[1] - other[1])


def _towards(point: Point, other: Point, length: float) -> Point:
    distance = _distance(point, other)
    share = 0.0 if distance == 0 else min(1.0, length / distance)
    return point[0] + (other[0] - point[0]) * share, point[1] + (other[1] - point[1]) * share
