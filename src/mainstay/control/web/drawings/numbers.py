"""Drawings of numbers: services by state, agents, jobs over time, uptime, values of pools and metrics.

Lengths are attributes, colours are classes of the style sheet. A label has all numbers for screen readers."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import date
from math import isfinite
from typing import Literal

from markupsafe import Markup

from mainstay.control.domain.lifecycle.drawn_text import printable
from mainstay.control.domain.lifecycle.path_data import number
from mainstay.control.domain.lifecycle.state_kind import StateKind

# All drawings of numbers are this wide, so that their text and gaps have the same scale side by side.
PICTURE_WIDTH = 320.0


def join(parts: Iterable[Markup]) -> Markup:
    return Markup("").join(parts)


def _picture(
    view_box: tuple[float, float, float, float], label: str, body: Markup, *, kind: str = "pic", links: bool = False
) -> Markup:
    """A drawing of numbers. `label` carries all of them for screen readers, which skip links in an image."""
    return Markup('<svg class="{}" viewBox="{}" role="{}" aria-label="{}">{}</svg>').format(
        kind, " ".join(map(number, view_box)), "group" if links else "img", printable(label), body
    )


def _rectangle(
    kind: str,
    place: tuple[float, float, float, float],
    radius: float,
    *,
    opacity: str = "",
    title: str = "",
) -> Markup:
    """`place` is x, y, width and height. `title` appears under the pointer."""
    x, y, width, height = map(number, place)
    faded = Markup(' opacity="{}"').format(opacity) if opacity else Markup()
    return Markup('<rect class="{}" x="{}" y="{}" width="{}" height="{}" rx="{}"{}>{}</rect>').format(
        kind, x, y, width, height, number(radius), faded, _tooltip(title)
    )


def _tooltip(title: str) -> Markup:
    return Markup("<title>{}</title>").format(printable(title)) if title else Markup()


BAR_HEIGHT, GAP = 10.0, 2.0
# A state with one service of ten thousand is visible.
LEAST_SHARE_WIDTH = 5.0
MAX_SHARES = 8
OTHER_STATES = "Other states"
# In the order of the bar.
STATE_FILLS: dict[StateKind, str] = {
    "up": "f-up",
    "rest": "f-rest",
    "work": "f-work",
    "bad": "f-bad",
    "new": "f-none",
    "end": "f-none",
}


@dataclass(frozen=True, slots=True)
class StateShare:
    state: str
    kind: StateKind
    count: int


def legend_of(shares: Iterable[StateShare]) -> tuple[StateShare, ...]:
    """The shares in the order of the bar: by kind, the largest first. The smallest of too many become one."""
    counted = [share for share in shares if share.count > 0]
    largest = sorted(counted, key=lambda share: (-share.count, share.state))
    # A failure is never among the other states: it is what the bar is read for.
    largest.sort(key=lambda share: share.kind != "bad")
    shown, rest = (
        (largest, []) if len(largest) <= MAX_SHARES else (largest[: MAX_SHARES - 1], largest[MAX_SHARES - 1 :])
    )
    ordered = sorted(shown, key=lambda share: (list(STATE_FILLS).index(share.kind), -share.count, share.state))
    others = sum(share.count for share in rest)
    return (*ordered, StateShare(OTHER_STATES, "rest", others)) if rest else tuple(ordered)


def draw_state_bar(shares: Iterable[StateShare]) -> Markup:
    given = tuple(shares)
    shown = legend_of(given)
    total = sum(share.count for share in shown)
    view_box = (0.0, 0.0, PICTURE_WIDTH, BAR_HEIGHT)
    if not total:
        empty = _rectangle("f-none", (0.0, 0.0, PICTURE_WIDTH, BAR_HEIGHT), 2)
        return _picture(view_box, "No services", empty)
    running = sum(share.count for share in given if share.kind == "up" and share.count > 0)
    widths = _share_widths([share.count for share in shown], PICTURE_WIDTH - GAP * (len(shown) - 1))
    parts, x = [], 0.0
    for share, width in zip(shown, widths, strict=True):
        title = f"{share.state}: {share.count:,}"
        parts.append(_rectangle(STATE_FILLS[share.kind], (x, 0.0, width, BAR_HEIGHT), 2, title=title))
        x += width + GAP
    return _picture(view_box, f"{running:,} of {total:,} services are in a running state", join(parts))


def _share_widths(counts: list[int], available: float) -> list[float]:
    """In proportion to the counts, each at least `LEAST_SHARE_WIDTH`, in sum exactly `available`."""
    spare = available - LEAST_SHARE_WIDTH * len(counts)
    total = sum(counts)
    wanted = [max(0.0, available * count / total - LEAST_SHARE_WIDTH) for count in counts]
    scale = spare / sum(wanted) if any(wanted) else 0.0
    return [LEAST_SHARE_WIDTH + width * scale for width in wanted]


AgentActivity = Literal["idle", "at work", "offline", "not in use"]

MAX_SQUARES = 400
# Up to this many agents the squares are large.
FEW_SQUARES = 110
MARK_SIZE = 10.0
LARGE_COLUMNS, SMALL_COLUMNS = 22, 32
ACTIVITIES: tuple[AgentActivity, ...] = ("idle", "at work", "offline", "not in use")
# Class, roundness and opacity of each square. An offline agent is a cross.
SQUARES = {"idle": ("f-up", 0.22, ".8"), "at work": ("f-work", 0.5, ""), "not in use": ("f-none", 0.22, "")}


@dataclass(frozen=True, slots=True)
class AgentSquare:
    name: str
    activity: AgentActivity


def count_activities(agents: Iterable[AgentSquare]) -> tuple[tuple[AgentActivity, int], ...]:
    """The legend: every activity that occurs, with its count."""
    found = [agent.activity for agent in agents]
    return tuple((activity, found.count(activity)) for activity in ACTIVITIES if activity in found)


def draw_agent_squares(agents: Sequence[AgentSquare]) -> Markup:
    """In the given order. Of more than `MAX_SQUARES` agents, offline ones are always among those drawn."""
    shown = _bounded_agents(agents)
    columns = LARGE_COLUMNS if len(shown) <= FEW_SQUARES else SMALL_COLUMNS
    pitch = PICTURE_WIDTH / columns
    size = round(pitch * 0.76, 1)
    body = join(
        _square(
            agent.activity,
            ((index % columns) * pitch, (index // columns) * pitch, size, size),
            f"{agent.name}: {agent.activity}",
        )
        for index, agent in enumerate(shown)
    )
    rows = max(1, -(-len(shown) // columns))
    return _picture((0, 0, PICTURE_WIDTH, rows * pitch), _agents_label(agents, len(shown)), body, kind="pic bad-ink")


def draw_activity_mark(activity: AgentActivity) -> Markup:
    """The same shape, for the legend."""
    mark = _square(activity, (0, 0, MARK_SIZE, MARK_SIZE), "")
    return Markup('<svg viewBox="0 0 {0} {0}" aria-hidden="true">{1}</svg>').format(number(MARK_SIZE), mark)


def _bounded_agents(agents: Sequence[AgentSquare]) -> list[AgentSquare]:
    if len(agents) <= MAX_SQUARES:
        return list(agents)
    by_need = sorted(range(len(agents)), key=lambda index: agents[index].activity != "offline")
    return [agents[index] for index in sorted(by_need[:MAX_SQUARES])]


def _agents_label(agents: Sequence[AgentSquare], shown: int) -> str:
    if not agents:
        return "No agents"
    counts = ", ".join(f"{count:,} {activity}" for activity, count in count_activities(agents))
    more = f"; {len(agents) - shown:,} more are not drawn" if len(agents) > shown else ""
    return f"{len(agents):,} agents: {counts}{more}" if len(agents) != 1 else f"1 agent: {counts}"


def _square(activity: AgentActivity, place: tuple[float, float, float, float], title: str) -> Markup:
    x, y, size, _ = place
    if activity != "offline":
        kind, roundness, opacity = SQUARES[activity]
        return _rectangle(kind, place, size * roundness, opacity=opacity, title=title)
    arm = size - 2
    cross = (
        f"M{number(x + 1)} {number(y + 1)}l{number(arm)} {number(arm)}m0-{number(arm)}l-{number(arm)} {number(arm)}"
    )
    return Markup('<path d="{}" fill="none" stroke="currentColor" stroke-width="2">{}</path>').format(
        cross, _tooltip(title)
    )


JOB_HEIGHT = 40.0
# A single job is visible beside thousands.
LEAST_JOB_HEIGHT = 3.0
MAX_SLOTS = 96


@dataclass(frozen=True, slots=True)
class JobSlot:
    """`title` names the time of the slot."""

    title: str
    done: int
    failed: int


def draw_job_bars(slots: Sequence[JobSlot], period: str) -> Markup:
    """The newest `MAX_SLOTS` slots, oldest first. `period` completes the label, such as `in the last 4 hours`."""
    shown = slots[-MAX_SLOTS:]
    pitch = PICTURE_WIDTH / max(1, len(shown))
    highest = max((slot.done + slot.failed for slot in shown), default=0)
    body = join(
        bar
        for index, slot in enumerate(shown)
        for bar in _job_bars(slot, index * pitch, max(1.0, pitch - GAP), highest)
    )
    done, failed = sum(slot.done for slot in shown), sum(slot.failed for slot in shown)
    noun = "job" if done == 1 else "jobs"
    return _picture((0, 0, PICTURE_WIDTH, JOB_HEIGHT), f"{done:,} {noun} done and {failed:,} failed {period}", body)


def _job_bars(slot: JobSlot, x: float, width: float, highest: int) -> list[Markup]:
    if not slot.done and not slot.failed:
        # A slot without jobs keeps its place on the axis.
        return [_rectangle("f-none", (x, JOB_HEIGHT - 1, width, 1), 0)]
    title = f"{slot.title}: {slot.done:,} done, {slot.failed:,} failed"
    gap = GAP if slot.done and slot.failed else 0.0
    failed = _job_height(slot.failed, highest)
    done = min(_job_height(slot.done, highest), JOB_HEIGHT - failed - gap)
    bars = []
    if slot.done:
        bars.append(_rectangle("f-rest", (x, JOB_HEIGHT - done, width, done), 1, opacity=".55", title=title))
    if slot.failed:
        bars.append(_rectangle("f-bad", (x, JOB_HEIGHT - done - gap - failed, width, failed), 1, title=title))
    return bars


def _job_height(count: int, highest: int) -> float:
    return max(LEAST_JOB_HEIGHT, (JOB_HEIGHT - GAP) * count / highest) if count else 0.0


DAY_HEIGHT = 28.0
MAX_DAYS = 90
LEAST_DOWN_HEIGHT = 8.0
# The label names this many days that were not fully up.
MAX_NAMED_DAYS = 5


@dataclass(frozen=True, slots=True)
class UptimeDay:
    day: date
    # From 0 to 1. None: the service did not exist.
    share: float | None
    # Whether the service was in a failure state on this day.
    failed: bool = False


def draw_uptime_bar(days: Sequence[UptimeDay], share: float) -> Markup:
    """The last `MAX_DAYS` days, oldest first. `share` is the uptime of the whole period, from 0 to 1."""
    shown = days[-MAX_DAYS:]
    pitch = PICTURE_WIDTH / max(1, len(shown))
    width = pitch * 0.7
    body = join(part for index, day in enumerate(shown) for part in _day_bars(day, index * pitch, width))
    return _picture((0, 0, PICTURE_WIDTH, DAY_HEIGHT), _uptime_label(shown, share), body)


def _day_bars(day: UptimeDay, x: float, width: float) -> list[Markup]:
    full = (x, 0.0, width, DAY_HEIGHT)
    name = f"{day.day.day} {day.day:%b}"
    if day.share is None:
        return [_rectangle("f-none", full, 1, title=f"{name}: no service")]
    title = f"{name}: {percent(day.share)} % up{', failed' if day.failed else ''}"
    if day.share >= 1.0:
        return [_rectangle("f-up", full, 1, opacity=".75", title=title)]
    down = max(LEAST_DOWN_HEIGHT, DAY_HEIGHT * (1 - max(0.0, day.share)))
    bars = [_rectangle("f-bad" if day.failed else "f-rest", (x, DAY_HEIGHT - down, width, down), 1, title=title)]
    if down < DAY_HEIGHT:
        bars.insert(0, _rectangle("f-up", (x, 0.0, width, DAY_HEIGHT - down), 1, opacity=".3", title=title))
    return bars


def percent(share: float) -> str:
    """Two decimals, and never 100 for less than all: a second of downtime in a year is visible."""
    rounded = f"{share * 100:.2f}"
    if rounded == "100.00":
        return "100" if share >= 1 else "99.99"
    return rounded


def _uptime_label(days: Sequence[UptimeDay], share: float) -> str:
    down = [day for day in days if day.share is not None and day.share < 1]
    text = f"Uptime over {len(days)} days: {percent(share)} percent."
    if not down:
        return text
    named = [f"{day.day.day} {day.day:%B} ({percent(day.share or 0.0)} percent)" for day in down[-MAX_NAMED_DAYS:]]
    more = f" and {len(down) - len(named)} earlier days" if len(down) > len(named) else ""
    return f"{text} Not fully up on {', '.join(named)}{more}."


CellKind = Literal["used", "free", "out"]

MAX_CELLS = 1024
CELLS_WIDTH = 350.0
# Columns by the most cells: more cells are smaller.
CELL_COLUMNS = ((100, 25), (256, 32), (400, 40), (MAX_CELLS, 64))
RING_MARGIN = 2.0
# The label names free values up to this many.
MAX_NAMED_VALUES = 6
NEARLY_FULL = 0.9


@dataclass(frozen=True, slots=True)
class PoolCell:
    """`out`: the value is excluded from the pool, such as a network address."""

    value: str
    kind: CellKind
    # What the pointer shows besides the value, such as the service that has it.
    title: str = ""
    # Empty: the cell is no link.
    href: str = ""


def draw_pool_cells(cells: Sequence[PoolCell], *, ringed: str | None = None) -> Markup:
    """`ringed` is the value that the page is about."""
    if len(cells) > MAX_CELLS:
        raise ValueError(f"{len(cells)} cells: more than {MAX_CELLS} values are drawn with draw_pool_bar")
    columns = next(count for most, count in CELL_COLUMNS if len(cells) <= most)
    pitch = CELLS_WIDTH / columns
    size = pitch - min(2.0, pitch * 0.2)
    places = [((index % columns) * pitch, (index // columns) * pitch) for index in range(len(cells))]
    body = join(_cell(cell, x, y, size) for cell, (x, y) in zip(cells, places, strict=True))
    rings = join(
        _ring(x, y, size)
        for cell, (x, y) in zip(cells, places, strict=True)
        if ringed is not None and cell.value == ringed
    )
    height = max(1, -(-len(cells) // columns)) * pitch
    view_box = (-RING_MARGIN, -RING_MARGIN, CELLS_WIDTH + 2 * RING_MARGIN, height + 2 * RING_MARGIN)
    links = any(cell.href for cell in cells)
    return _picture(view_box, _cells_label(cells), body + rings, kind="pic cells", links=links)


def draw_pool_bar(used: int, total: int, name: str) -> Markup:
    """For a pool of any size, up to the addresses of an IPv6 network."""
    share = 0.0 if total <= 0 else min(1.0, used / total)
    # A single used value of very many is visible.
    shown = max(share * 100, 1.0) if used else 0.0
    kind = "full" if share >= NEARLY_FULL else "use"
    percent = "less than 1 %" if 0 < share < 0.01 else f"{share * 100:.0f} %"
    return Markup('<progress class="{}" max="100" value="{}" aria-label="{} in use">{}</progress>').format(
        kind, number(shown), printable(name), percent
    )


def _cells_label(cells: Sequence[PoolCell]) -> str:
    counted = [cell for cell in cells if cell.kind != "out"]
    free = [cell.value for cell in counted if cell.kind == "free"]
    label = f"{len(counted) - len(free):,} of {len(counted):,} values used"
    if not 0 < len(free) <= MAX_NAMED_VALUES:
        return label
    return f"{label}; free: {', '.join(free)}"


def _cell(cell: PoolCell, x: float, y: float, size: float) -> Markup:
    # The border of a free cell lies inside, so that all cells have the same size.
    inset = 0.5 if cell.kind == "free" else 0.0
    edge = number(size - 2 * inset)
    title = f"{cell.value}: {cell.title}" if cell.title else cell.value
    shape = Markup('<rect class="f-{}" x="{}" y="{}" width="{}" height="{}">{}</rect>').format(
        cell.kind, number(x + inset), number(y + inset), edge, edge, _tooltip(title)
    )
    if not cell.href:
        return shape
    return Markup('<a href="{}" aria-label="{}">{}</a>').format(cell.href, printable(title), shape)


def _ring(x: float, y: float, size: float) -> Markup:
    edge = number(size + 4)
    return Markup(
        '<rect x="{}" y="{}" width="{}" height="{}" rx="3" fill="none" stroke="currentColor" stroke-width="1.5"/>'
    ).format(number(x - 2), number(y - 2), edge, edge)


CHART_HEIGHT, CHART_MARGIN = 64.0, 3.0
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
    values = [point.value for point in _finite_points(points)]
    return MetricSummary(min(values), max(values), values[-1]) if values else None


def draw_metric_chart(points: Sequence[MetricPoint], name: str, gap_seconds: float) -> Markup:
    """Points in any order. A longer pause than `gap_seconds` breaks the line: no value is invented for it."""
    kept = _finite_points(points)
    summary = summarize(kept)
    view_box = (0.0, 0.0, PICTURE_WIDTH, CHART_HEIGHT)
    if summary is None:
        return _picture(view_box, f"{name}: no values", Markup(), kind="pic chart")
    runs = [_bounded_run(run, len(kept)) for run in _chart_runs(kept, gap_seconds)]
    first, last = kept[0].at, kept[-1].at
    placed = [[_chart_place(point, summary, first, last) for point in run] for run in runs]
    label = f"{name}: least {_shown_value(summary.least)}, most {_shown_value(summary.most)}, last {_shown_value(summary.last)}"
    end = _chart_place(kept[-1], summary, first, last)
    body = _zero_line(summary) + join(map(_chart_run, placed)) + _dot(end)
    return _picture(view_box, label, body, kind="pic chart")


def _finite_points(points: Sequence[MetricPoint]) -> list[MetricPoint]:
    return sorted((point for point in points if isfinite(point.value)), key=lambda point: point.at)


def _chart_runs(points: Sequence[MetricPoint], gap_seconds: float) -> list[list[MetricPoint]]:
    runs: list[list[MetricPoint]] = []
    for point in points:
        if not runs or point.at - runs[-1][-1].at > gap_seconds:
            runs.append([])
        runs[-1].append(point)
    return runs


def _bounded_run(run: list[MetricPoint], total: int) -> list[MetricPoint]:
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


def _chart_place(point: MetricPoint, summary: MetricSummary, first: float, last: float) -> Place:
    share = 0.5 if last == first else (point.at - first) / (last - first)
    return CHART_MARGIN + share * (PICTURE_WIDTH - 2 * CHART_MARGIN), _chart_height(point.value, summary)


def _chart_height(value: float, summary: MetricSummary) -> float:
    if summary.least == summary.most:
        return CHART_HEIGHT / 2
    # Divided first: the difference of two large values may be infinite.
    scale = max(abs(summary.least), abs(summary.most))
    span = summary.most / scale - summary.least / scale
    share = (value / scale - summary.least / scale) / span if span else 0.5
    return CHART_HEIGHT - CHART_MARGIN - share * (CHART_HEIGHT - 2 * CHART_MARGIN)


def _zero_line(summary: MetricSummary) -> Markup:
    """A line at zero, if values lie on both sides of it."""
    if not summary.least < 0 < summary.most:
        return Markup()
    y = number(_chart_height(0.0, summary))
    return Markup('<path class="zero" d="M0 {}H{}"/>').format(y, number(PICTURE_WIDTH))


def _chart_run(places: list[Place]) -> Markup:
    if len(places) == 1:
        return _dot(places[0])
    line = "L".join(f"{number(x)} {number(y)}" for x, y in places)
    floor = number(CHART_HEIGHT)
    area = f"M{number(places[0][0])} {floor}L{line}L{number(places[-1][0])} {floor}z"
    return Markup('<path class="area" d="{}"/><path class="line" d="M{}"/>').format(area, line)


def _dot(place: Place) -> Markup:
    return Markup('<circle class="f-work" cx="{}" cy="{}" r="2.5"/>').format(number(place[0]), number(place[1]))


def _shown_value(value: float) -> str:
    return f"{value:,.0f}" if 1000 <= abs(value) < 1e15 else f"{value:.4g}"
