"""The layout of lifecycle drawings: rows, shared trunks, and space for every box and label."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations, pairwise
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from mainstay.control.domain.lifecycle.layout import LabelBox, LifecycleLayout, StateBox, lay_out
from mainstay.control.domain.lifecycle.parse import parse_lifecycle
from mainstay.control.domain.lifecycle.schema import Lifecycle
from mainstay.control.domain.refusals import TooLargeToDraw
from mainstay.control.domain.service_types import DEFAULT_LIFECYCLE
from seed_text import block

Rectangle = tuple[float, float, float, float]
EXAMPLES = sorted((Path(__file__).parents[3] / "examples" / "blueprints").glob("*/service-type.yaml"))
SEEDS = (
    "Example 1: Simple VM Lifecycle",
    "Example 2: Advanced Lifecycle with Error Handling",
    "Example 3: Database Lifecycle with Maintenance States",
)
LONG = "a name of exactly forty characters, yes!"


def lifecycle(states: list[str], *actions: dict[str, Any], ends: int = 0, running: int = 0) -> Lifecycle:
    """The last states are end states, the ones before them running states."""
    first_end = len(states) - ends
    return parse_lifecycle(
        {
            "states": [{"name": name} for name in states],
            "actions": list(actions),
            "initialState": states[0],
            "terminalStates": states[first_end:],
            "runningStates": states[first_end - running : first_end],
        }
    )


def action(name: str, *moves: tuple[str, str], errors: tuple[tuple[str, str], ...] = ()) -> dict[str, Any]:
    failures = [{"from": origin, "to": to, "onError": True} for origin, to in errors]
    return {"name": name, "transitions": [{"from": origin, "to": to} for origin, to in moves] + failures}


def rectangle(box: StateBox | LabelBox) -> Rectangle:
    if isinstance(box, StateBox):
        return box.x, box.y, box.x + box.width, box.y + box.height
    return box.x - box.width / 2, box.y - box.height / 2, box.x + box.width / 2, box.y + box.height / 2


def overlap(one: Rectangle, other: Rectangle) -> bool:
    gap = 0.01
    return one[0] + gap < other[2] and other[0] + gap < one[2] and one[1] + gap < other[3] and other[1] + gap < one[3]


def lines(layout: LifecycleLayout) -> Iterator[Rectangle]:
    for trunk in layout.trunks:
        for branch in trunk.branches:
            for (x, y), (next_x, next_y) in pairwise(branch.points):
                assert x == next_x or y == next_y, "every line is horizontal or vertical"
                yield min(x, next_x) - 0.1, min(y, next_y) - 0.1, max(x, next_x) + 0.1, max(y, next_y) + 0.1


def check(layout: LifecycleLayout) -> None:
    states = [rectangle(box) for box in layout.boxes]
    labels = [rectangle(trunk.label) for trunk in layout.trunks]
    for one, other in combinations(states + labels, 2):
        assert not overlap(one, other)
    # An end of a line touches its box by the width of a stroke.
    shrunk = [(left + 1, top + 1, right - 1, bottom - 1) for left, top, right, bottom in states]
    drawn = list(lines(layout))
    assert not any(overlap(line, box) for line in drawn for box in shrunk)
    for left, top, right, bottom in states + labels + drawn:
        assert left >= 0
        assert top >= 0
        assert right <= layout.width
        assert bottom <= layout.height


def check_lines_are_apart(layout: LifecycleLayout) -> None:
    own = [set(lines(LifecycleLayout((), (trunk,), 0, 0))) for trunk in layout.trunks]
    for one, other in combinations(own, 2):
        for (left, top, right, bottom), (start, upper, end, lower) in ((a, b) for a in one for b in other):
            along = (min(right, end) - max(left, start), min(bottom, lower) - max(top, upper))
            assert not (min(along) > 0 and max(along) > 1)


NAMES = st.lists(
    st.one_of(
        st.text(min_size=1, max_size=12).filter(lambda name: "\0" not in name),
        st.sampled_from(["متوقف", "קיים", "運行中", LONG, "W" * 100, "e\u0301\u0301"]),
    ),
    min_size=2,
    max_size=9,
    unique=True,
)


@st.composite
def lifecycles(draw: st.DrawFn) -> Lifecycle:
    names = draw(NAMES)
    ends = draw(st.integers(0, min(2, len(names) - 1)))
    running = draw(st.integers(0, len(names) - ends))
    origin = st.integers(0, len(names) - ends - 1)
    move = st.tuples(
        origin, st.integers(0, len(names) - 1), st.booleans(), st.sampled_from([None, "quota.*", "x" * 60])
    )
    actions = draw(st.lists(st.lists(move, min_size=1, max_size=6), max_size=7))
    made: list[dict[str, Any]] = [{"name": "create", "transitions": [{"from": names[0], "to": names[-1]}]}]
    for index, moves in enumerate(actions):
        transitions: dict[object, dict[str, Any]] = {}
        for start, to, on_error, pattern in moves:
            each: dict[str, Any] = {"from": names[start], "to": names[to]}
            if on_error:
                each |= {"onError": True} | ({"onErrorRegexp": pattern} if pattern else {})
            transitions[(start, to, pattern) if on_error else start] = each
        made.append({"name": f"action {index}" * draw(st.integers(1, 4)), "transitions": list(transitions.values())})
    return lifecycle(names, *made, ends=ends, running=running)


@settings(max_examples=150, deadline=None, derandomize=True, database=None)
@given(drawn=lifecycles())
def test_boxes_labels_and_lines_never_overlap_and_no_line_runs_through_a_box(drawn: Lifecycle) -> None:
    layout = lay_out(drawn)
    assert {box.state for box in layout.boxes} == set(drawn.states)
    shown = {(trunk.action, branch.origin, trunk.to) for trunk in layout.trunks for branch in trunk.branches}
    assert shown == {(act.name, each.origin, each.to) for act, each in drawn.transitions()}
    check(layout)
    check_lines_are_apart(layout)


def test_the_default_lifecycle_and_every_example_have_space_for_all_labels() -> None:
    assert len(EXAMPLES) >= 3
    documents = [yaml.safe_load(path.read_text())["lifecycleSchema"] for path in EXAMPLES] + [
        block(each) for each in SEEDS
    ]
    for drawn in (DEFAULT_LIFECYCLE, *map(parse_lifecycle, documents)):
        layout = lay_out(drawn)
        check(layout)
        # The success path of a usual lifecycle fits on a screen.
        assert layout.width < 1200


def test_the_success_path_is_one_row_with_failures_below_and_ends_at_the_bottom_right() -> None:
    layout = lay_out(
        lifecycle(
            ["New", "Failed", "Starting", "Stopped", "Started", "Deleted"],
            action("create", ("New", "Stopped"), errors=(("New", "Failed"),)),
            action("start", ("Stopped", "Starting"), ("Starting", "Started"), errors=(("Starting", "Failed"),)),
            action("delete", ("Started", "Deleted"), ("Failed", "Deleted")),
            ends=1,
            running=1,
        )
    )
    place = {box.state: box for box in layout.boxes}
    path = ["New", "Stopped", "Starting", "Started"]
    assert len({place[state].y for state in path}) == 1
    assert [place[state].x for state in path] == sorted(place[state].x for state in path)
    assert place["New"].y < place["Failed"].y < place["Deleted"].y
    assert place["Deleted"].x + place["Deleted"].width == max(box.x + box.width for box in layout.boxes)


def test_the_edges_of_one_action_to_one_target_share_a_trunk_and_a_label() -> None:
    (delete,) = [trunk for trunk in lay_out(DEFAULT_LIFECYCLE).trunks if trunk.action == "delete"]
    assert {branch.origin for branch in delete.branches} == {"New", "Stopped", "Started"}
    assert len({branch.points[-1] for branch in delete.branches}) == 1
    assert [branch.origin for branch in delete.branches if branch.joining is None] == ["New"]


def test_two_actions_between_the_same_states_have_a_label_each() -> None:
    layout = lay_out(lifecycle(["A", "B"], action("create", ("A", "B")), action("import", ("A", "B"))))
    assert sorted(trunk.label.text for trunk in layout.trunks) == ["create", "import"]
    check(layout)


def test_a_loop_is_on_the_right_of_its_state() -> None:
    layout = lay_out(lifecycle(["A"], action("create", ("A", "A")), *(action(f"x{n}", ("A", "A")) for n in range(9))))
    (box,) = layout.boxes
    for trunk in layout.trunks:
        assert max(x for x, _ in trunk.branches[0].points) > box.x + box.width
    check(layout)


@pytest.mark.parametrize("count", [12, 100])
def test_a_chain_of_states_stays_in_one_row(count: int) -> None:
    names = [f"S{number}" for number in range(count)]
    layout = lay_out(lifecycle(names, action("create", *pairwise(names))))
    assert len({box.y for box in layout.boxes}) == 1
    check(layout)


def test_the_largest_lifecycle_that_is_drawn_keeps_its_space() -> None:
    names = [f"S{number}" for number in range(100)]
    moves = [[(name, names[(index * 7 + offset) % 100]) for index, name in enumerate(names)] for offset in range(9)]
    actions = [action(f"a{number}", *each) for number, each in enumerate(moves)]
    layout = lay_out(lifecycle(names, action("create", ("S0", "S1")), *actions))
    for one, other in combinations([rectangle(box) for box in layout.boxes], 2):
        assert not overlap(one, other)
    with pytest.raises(TooLargeToDraw):
        lay_out(
            lifecycle(names, action("create", ("S0", "S1")), *actions, *(action(f"b{n}", *moves[n]) for n in (0, 1)))
        )


def test_lines_of_different_trunks_do_not_run_on_top_of_each_other() -> None:
    """Two failure states whose arrows would both be shortest in the row of the failures."""
    names = ["New", "A", "B", "C", "Left", "Right"]
    drawn = lifecycle(
        names,
        action("create", ("New", "A"), errors=(("C", "Left"), ("New", "Left"))),
        action("next", ("A", "B"), ("B", "C"), errors=(("A", "Right"), ("New", "Right"))),
    )
    check_lines_are_apart(lay_out(drawn))
