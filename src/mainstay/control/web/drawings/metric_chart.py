"""A metric over time as a small line chart."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import isfinite

from markupsafe import Markup

from mainstay.control.domain.lifecycle.path_data import number
from mainstay.control.web.drawings.elements import PICTURE_WIDTH, join, picture

HEIGHT, MARGIN = 64.0, 3.0
# Two points per unit of width are all that a reader can distinguish.
MAX_POINTS = 2 * int(PICTURE_WIDTH)

Place = tuple[float, float]


@dataclass(frozen=True, slots=True)
class MetricPoint:
    # Seconds since any fixed time.
    at: float
    value: float


@dataclass(frozen=True, slots=True)
class MetricSummary:
    least: float
    most: float
    last: float


def summarize(points: Sequence[MetricPoint]) -> MetricSummary | None:
    """None: there is no finite value."""
    values = [point.value for point in _finite(points)]
    return MetricSummary(min(values), max(values), values[-1]) if values else None


def draw_metric_chart(points: Sequence[MetricPoint], name: str, gap_seconds: float) -> Markup:
    """Points in any order. A longer pause than `gap_seconds` breaks the line: no value is invented for it."""
    kept = _finite(points)
    summary = summarize(kept)
    view_box = (0.0, 0.0, PICTURE_WIDTH, HEIGHT)
    if summary is None:
        return picture(view_box, f"{name}: no values", Markup(), kind="pic chart")
    runs = [_bounded(run, len(kept)) for run in _runs(kept, gap_seconds)]
    first, last = kept[0].at, kept[-1].at
    placed = [[_place(point, summary, first, last) for point in run] for run in runs]
    label = f"{name}: least {_shown(summary.least)}, most {_shown(summary.most)}, last {_shown(summary.last)}"
    end = _place(kept[-1], summary, first, last)
    body = _zero(summary) + join(map(_run, placed)) + _dot(end)
    return picture(view_box, label, body, kind="pic chart")


def _finite(points: Sequence[MetricPoint]) -> list[MetricPoint]:
    return sorted((point for point in points if isfinite(point.value)), key=lambda point: point.at)


def _runs(points: Sequence[MetricPoint], gap_seconds: float) -> list[list[MetricPoint]]:
    runs: list[list[MetricPoint]] = []
    for point in points:
        if not runs or point.at - runs[-1][-1].at > gap_seconds:
            runs.append([])
        runs[-1].append(point)
    return runs


def _bounded(run: list[MetricPoint], total: int) -> list[MetricPoint]:
    """Keeps the least and the greatest of each group of neighbours, so that no peak is lost."""
    group = -(-2 * total // MAX_POINTS)
    if total <= MAX_POINTS or len(run) <= 2:
        return run
    kept: list[MetricPoint] = []
    for start in range(0, len(run), group):
        part = run[start : start + group]
        ends = {min(part, key=lambda point: point.value), max(part, key=lambda point: point.value)}
        kept += sorted(ends, key=lambda point: point.at)
    return kept


def _place(point: MetricPoint, summary: MetricSummary, first: float, last: float) -> Place:
    share = 0.5 if last == first else (point.at - first) / (last - first)
    return MARGIN + share * (PICTURE_WIDTH - 2 * MARGIN), _height(point.value, summary)


def _height(value: float, summary: MetricSummary) -> float:
    if summary.least == summary.most:
        return HEIGHT / 2
    # Divided first: the difference of two large values may be infinite.
    scale = max(abs(summary.least), abs(summary.most))
    span = summary.most / scale - summary.least / scale
    share = (value / scale - summary.least / scale) / span if span else 0.5
    return HEIGHT - MARGIN - share * (HEIGHT - 2 * MARGIN)


def _zero(summary: MetricSummary) -> Markup:
    """A line at zero, if values lie on both sides of it."""
    if not summary.least < 0 < summary.most:
        return Markup()
    y = number(_height(0.0, summary))
    return Markup('<path class="zero" d="M0 {}H{}"/>').format(y, number(PICTURE_WIDTH))


def _run(places: list[Place]) -> Markup:
    if len(places) == 1:
        return _dot(places[0])
    line = "L".join(f"{number(x)} {number(y)}" for x, y in places)
    floor = number(HEIGHT)
    area = f"M{number(places[0][0])} {floor}L{line}L{number(places[-1][0])} {floor}z"
    return Markup('<path class="area" d="{}"/><path class="line" d="M{}"/>').format(area, line)


def _dot(place: Place) -> Markup:
    return Markup('<circle class="f-work" cx="{}" cy="{}" r="2.5"/>').format(number(place[0]), number(place[1]))


def _shown(value: float) -> str:
    return f"{value:,.0f}" if 1000 <= abs(value) < 1e15 else f"{value:.4g}"
