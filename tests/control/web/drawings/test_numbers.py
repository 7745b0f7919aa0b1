"""The drawings of numbers: every shape lies in the view box, every text is escaped, and extremes stay readable."""

from __future__ import annotations

import itertools
import xml.etree.ElementTree as ET
from datetime import date, timedelta
from math import inf, nan

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from markupsafe import Markup

from mainstay.control.web.drawings.numbers import (
    ACTIVITIES,
    OTHER_STATES,
    AgentSquare,
    JobSlot,
    MetricPoint,
    MetricSummary,
    PoolCell,
    StateShare,
    UptimeDay,
    count_activities,
    draw_activity_mark,
    draw_agent_squares,
    draw_job_bars,
    draw_metric_chart,
    draw_pool_bar,
    draw_pool_cells,
    draw_state_bar,
    draw_uptime_bar,
    legend_of,
    percent,
    summarize,
)

HOSTILE = '"><script>alert(1)</script>'
TODAY = date(2026, 11, 16)


def read(drawing: Markup) -> ET.Element:
    """Parses the drawing and checks that every shape lies in the view box."""
    assert "<script" not in drawing
    assert "nan" not in drawing.lower()
    root = ET.fromstring(drawing)
    assert root.attrib["aria-label"]
    left, top, width, height = map(float, root.attrib["viewBox"].split())
    for rect in root.iter("rect"):
        x, y, w, h = (float(rect.attrib[name]) for name in ("x", "y", "width", "height"))
        assert w >= 0 <= h
        assert left - 0.2 <= x <= x + w <= left + width + 0.2
        assert top - 0.2 <= y <= y + h <= top + height + 0.2
    for dot in root.iter("circle"):
        assert left <= float(dot.attrib["cx"]) <= left + width
        assert top <= float(dot.attrib["cy"]) <= top + height
    return root


def label(drawing: Markup) -> str:
    return read(drawing).attrib["aria-label"]


def kinds(drawing: Markup) -> list[str]:
    return [rect.attrib["class"] for rect in read(drawing).iter("rect")]


def test_the_state_bar_orders_states_by_kind_and_count() -> None:
    shares = [
        StateShare("New", "new", 21),
        StateShare("Failed", "bad", 5),
        StateShare("Started", "up", 9874),
        StateShare("Running", "up", 10_000),
        StateShare("Empty", "rest", 0),
    ]
    assert [share.state for share in legend_of(shares)] == ["Running", "Started", "Failed", "New"]
    assert kinds(draw_state_bar(shares)) == ["f-up", "f-up", "f-bad", "f-none"]
    assert label(draw_state_bar(shares)) == "19,874 of 19,900 services are in a running state"


def test_a_rare_state_is_visible_and_the_bar_is_full() -> None:
    shares = [StateShare("Started", "up", 10**12), StateShare("Failed", "bad", 1), StateShare("Stopped", "rest", 1)]
    widths = [float(rect.attrib["width"]) for rect in read(draw_state_bar(shares)).iter("rect")]
    assert min(widths) >= 5
    assert sum(widths) + 4 == pytest.approx(320, abs=0.2)


def test_many_states_become_one_but_never_a_failure() -> None:
    shares = [StateShare(f"S{number}", "rest", number + 10) for number in range(50)] + [
        StateShare("Failed", "bad", 1)
    ]
    legend = legend_of(shares)
    assert len(legend) == 8
    assert "Failed" in [share.state for share in legend]
    assert legend[-1].state == OTHER_STATES
    assert sum(share.count for share in legend) == sum(share.count for share in shares)
    assert legend_of([StateShare(f"S{number}", "rest", 1) for number in range(8)])[-1].state == "S7"


def test_a_bar_without_services_is_empty() -> None:
    assert label(draw_state_bar([])) == "No services"
    assert kinds(draw_state_bar([StateShare("New", "new", 0)])) == ["f-none"]


def test_each_agent_is_a_square_with_its_name() -> None:
    agents = [AgentSquare("a", "idle"), AgentSquare("b", "at work"), AgentSquare(HOSTILE, "offline")]
    root = read(draw_agent_squares(agents))
    assert root.attrib["aria-label"] == "3 agents: 1 idle, 1 at work, 1 offline"
    assert [each.text for each in root.iter("title")] == ["a: idle", "b: at work", f"{HOSTILE}: offline"]
    assert count_activities(agents) == (("idle", 1), ("at work", 1), ("offline", 1))
    assert label(draw_agent_squares([])) == "No agents"
    assert label(draw_agent_squares(agents[:1])) == "1 agent: 1 idle"


def test_every_activity_has_a_mark_of_its_own_in_the_legend() -> None:
    marks = [draw_activity_mark(activity) for activity in ACTIVITIES]
    assert len(set(marks)) == len(ACTIVITIES)
    for mark in marks:
        # The words beside it carry the meaning.
        assert ET.fromstring(mark).attrib["aria-hidden"] == "true"


def test_of_many_agents_the_offline_ones_are_always_drawn() -> None:
    agents = [AgentSquare(f"a{number}", "idle") for number in range(900)] + [AgentSquare("lost", "offline")]
    root = read(draw_agent_squares(agents))
    titles = [each.text for each in root.iter("title")]
    assert len(titles) == 400
    assert titles[-1] == "lost: offline"
    assert root.attrib["aria-label"] == "901 agents: 900 idle, 1 offline; 501 more are not drawn"


def test_failed_jobs_are_visible_above_done_ones() -> None:
    drawing = draw_job_bars([JobSlot("04:42", 5000, 1), JobSlot("04:47", 0, 0), JobSlot(HOSTILE, 0, 3)], "today")
    assert label(drawing) == "5,000 jobs done and 4 failed today"
    assert kinds(drawing) == ["f-rest", "f-bad", "f-none", "f-bad"]
    done, failed, *_ = read(drawing).iter("rect")
    assert float(failed.attrib["height"]) >= 3
    assert float(failed.attrib["y"]) + float(failed.attrib["height"]) < float(done.attrib["y"])


def test_job_bars_are_bounded_and_may_be_empty() -> None:
    assert label(draw_job_bars([], "today")) == "0 jobs done and 0 failed today"
    assert len(kinds(draw_job_bars([JobSlot("t", 1, 0)] * 5000, "today"))) == 96


def test_a_day_below_full_uptime_is_marked_and_named() -> None:
    days = [UptimeDay(TODAY - timedelta(number), 1.0) for number in reversed(range(88))]
    days = [UptimeDay(TODAY - timedelta(90), None), UptimeDay(TODAY - timedelta(89), 0.9, failed=True), *days]
    days[-1] = UptimeDay(TODAY, 0.999999)
    drawing = draw_uptime_bar(days, 0.99999)
    assert label(drawing) == (
        "Uptime over 90 days: 99.99 percent. Not fully up on 19 August (90.00 percent), 16 November (99.99 percent)."
    )
    assert [kind for kind in kinds(drawing) if kind != "f-up"] == ["f-none", "f-bad", "f-rest"]


@pytest.mark.parametrize(("share", "shown"), [(1.0, "100"), (0.999999, "99.99"), (0.9985, "99.85"), (0.0, "0.00")])
def test_less_than_all_is_never_shown_as_100_percent(share: float, shown: str) -> None:
    assert percent(share) == shown


def test_the_uptime_bar_is_bounded_and_may_be_empty() -> None:
    days = [UptimeDay(TODAY - timedelta(number), 0.0) for number in reversed(range(400))]
    drawing = draw_uptime_bar(days, 0.0)
    assert len(kinds(drawing)) == 90
    assert "and 85 earlier days" in label(drawing)
    assert label(draw_uptime_bar([], 0.0)).startswith("Uptime over 0 days")


def test_each_value_of_a_pool_is_a_cell() -> None:
    cells = [
        PoolCell("10.0.0.0", "out"),
        PoolCell("10.0.0.1", "used", HOSTILE, href="/services/1"),
        PoolCell("10.0.0.2", "free"),
    ]
    root = read(draw_pool_cells(cells, ringed="10.0.0.2"))
    assert root.attrib["aria-label"] == "1 of 2 values used; free: 10.0.0.2"
    assert [each.text for each in root.iter("title")] == ["10.0.0.0", f"10.0.0.1: {HOSTILE}", "10.0.0.2"]
    assert [link.attrib["href"] for link in root.iter("a")] == ["/services/1"]
    assert root.attrib["role"] == "group"
    assert len([rect for rect in root.iter("rect") if "class" not in rect.attrib]) == 1


@pytest.mark.parametrize("count", [0, 1, 25, 100, 101, 256, 400, 401, 1024])
def test_cells_fit_into_the_drawing_and_do_not_overlap(count: int) -> None:
    root = ET.fromstring(draw_pool_cells([PoolCell(str(number), "used") for number in range(count)]))
    rects = [tuple(float(rect.attrib[name]) for name in ("x", "y", "width")) for rect in root.iter("rect")]
    _, _, width, height = map(float, root.attrib["viewBox"].split())
    assert len({(x, y) for x, y, _ in rects}) == count
    assert all(x + size <= width and y + size <= height for x, y, size in rects)
    pitch = min((b[0] - a[0] for a, b in itertools.pairwise(rects) if b[0] > a[0]), default=14.0)
    assert all(size < pitch for _, _, size in rects)


def test_a_pool_of_any_size_is_a_bar() -> None:
    with pytest.raises(ValueError, match="draw_pool_bar"):
        draw_pool_cells([PoolCell("v", "free")] * 1025)
    bar = ET.fromstring(draw_pool_bar(10_391, 2**64, HOSTILE))
    assert (bar.attrib["class"], bar.attrib["value"], bar.text) == ("use", "1", "less than 1 %")
    assert bar.attrib["aria-label"] == f"{HOSTILE} in use"
    assert ET.fromstring(draw_pool_bar(0, 0, "p")).attrib["value"] == "0"
    assert ET.fromstring(draw_pool_bar(248, 254, "p")).attrib["class"] == "full"


def chart(*values: float, gap: float = 90.0) -> Markup:
    return draw_metric_chart([MetricPoint(index * 60.0, value) for index, value in enumerate(values)], "load", gap)


def paths(drawing: Markup, kind: str) -> list[str]:
    return [path.attrib["d"] for path in read(drawing).iter("path") if path.attrib["class"] == kind]


def test_a_chart_names_its_least_most_and_last_value() -> None:
    assert label(chart(3, -1.5, 12345, 7)) == "load: least -1.5, most 12,345, last 7"
    assert summarize([MetricPoint(2, 1.0), MetricPoint(1, 5.0)]) == MetricSummary(1.0, 5.0, 1.0)


def test_a_pause_breaks_the_line() -> None:
    points = [MetricPoint(at, 1.0 + at) for at in (0, 60, 120, 600, 660)]
    assert len(paths(draw_metric_chart(points, "load", 90.0), "line")) == 2
    assert len(paths(draw_metric_chart(points, "load", 900.0), "line")) == 1


def test_a_single_value_is_a_dot_and_no_value_is_an_empty_chart() -> None:
    assert len(list(read(chart(5)).iter("circle"))) == 2
    assert label(chart()) == label(chart(nan, inf, -inf)) == "load: no values"


def test_a_line_at_zero_appears_only_between_values_of_both_signs() -> None:
    assert paths(chart(-1, 1), "zero")
    assert not paths(chart(1, 2), "zero")


def test_equal_values_are_a_line_in_the_middle() -> None:
    assert set(paths(chart(7, 7, 7), "line")[0].lstrip("M").split("L")) == {"3 32", "160 32", "317 32"}


def test_a_long_series_is_bounded_and_keeps_its_peak() -> None:
    values = [1.0] * 50_000
    values[31_234] = 99.0
    (line,) = paths(chart(*values), "line")
    places = [tuple(map(float, place.split())) for place in line.lstrip("M").split("L")]
    assert len(places) <= 640
    assert min(y for _, y in places) == 3


@settings(max_examples=100, deadline=None, derandomize=True, database=None)
@given(st.lists(st.tuples(st.floats(0, 1e10), st.floats()), max_size=30))
def test_any_values_lie_in_the_chart(values: list[tuple[float, float]]) -> None:
    drawing = draw_metric_chart([MetricPoint(at, value) for at, value in values], HOSTILE, 1e9)
    root = read(drawing)
    for kind in ("line", "area", "zero"):
        for path in paths(drawing, kind):
            numbers = [
                float(word) for word in path.replace("M", " ").replace("L", " ").replace("H", " ").rstrip("z").split()
            ]
            assert all(0 <= each <= 320 for each in numbers)
    assert root.attrib["role"] == "img"
