"""Lifecycles: validation, transitions, runs, reports, diagrams, uptime and changes."""

from __future__ import annotations

import xml.etree.ElementTree as ET
from copy import deepcopy
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mainstay.control.domain.lifecycle.change import LivingService, find_stranded
from mainstay.control.domain.lifecycle.mermaid import draw_mermaid
from mainstay.control.domain.lifecycle.parse import parse_lifecycle
from mainstay.control.domain.lifecycle.report import report_lifecycle
from mainstay.control.domain.lifecycle.schema import Lifecycle
from mainstay.control.domain.lifecycle.svg import draw_svg
from mainstay.control.domain.lifecycle.transitions import (
    ActionProgress,
    Step,
    after_failure,
    after_success,
    available_actions,
    begin,
    success_path,
)
from mainstay.control.domain.lifecycle.uptime import StateEntry, uptime, uptime_by_day
from mainstay.control.domain.refusals import InvalidDefinition, TerminalState, UnknownAction, WrongState
from mainstay.control.domain.service_types import DEFAULT_LIFECYCLE
from seed_text import block

SIMPLE = "Example 1: Simple VM Lifecycle"
ADVANCED = "Example 2: Advanced Lifecycle with Error Handling"
DATABASE = "Example 3: Database Lifecycle with Maintenance States"


def seed_lifecycle(heading: str) -> Lifecycle:
    return parse_lifecycle(block(heading))


def lifecycle(*actions: dict[str, Any], states: str = "New A B C End", **more: Any) -> dict[str, Any]:
    create = {
        "name": "create",
        "transitions": [{"from": "New", "to": "A"}, {"from": "New", "to": "A", "onError": True}],
    }
    return {
        "states": [{"name": name} for name in states.split()],
        "actions": [create, *actions],
        "initialState": "New",
        "terminalStates": ["End"],
        **more,
    }


def action(name: str, *moves: str, **more: Any) -> dict[str, Any]:
    """`A>B` is a success, `A!B` an error transition, `A!B:text` an error transition with a pattern."""
    transitions: list[dict[str, Any]] = []
    for move in moves:
        if ">" in move:
            origin, to = move.split(">")
            transitions.append({"from": origin, "to": to})
        else:
            origin, rest = move.split("!")
            to, _, pattern = rest.partition(":")
            transitions.append(
                {"from": origin, "to": to, "onError": True, **({"onErrorRegexp": pattern} if pattern else {})}
            )
    return {"name": name, "transitions": transitions, **more}


def faults(document: object) -> dict[str, str]:
    try:
        parse_lifecycle(document)
    except InvalidDefinition as refusal:
        return {fault.path: fault.message for fault in refusal.faults}
    return {}


@pytest.mark.parametrize("heading", [SIMPLE, ADVANCED, DATABASE])
def test_a_lifecycle_of_the_seed_is_accepted(heading: str) -> None:
    assert faults(block(heading)) == {}


@pytest.mark.parametrize(
    "heading",
    [
        "Pattern 1: Immediate vs Progressive Actions",
        "Pattern 2: Restart as Compound Action",
        "Pattern 3: Graceful Degradation",
        "Pattern 4: Recovery Actions",
        "Error Regexp Matching",
    ],
)
def test_an_action_of_the_seed_is_accepted_in_a_lifecycle_with_its_states(heading: str) -> None:
    lead = "**Progressive**" if heading.startswith("Pattern 1") else ""
    fragment: Any = block(heading, lead)
    states = {each[key] for each in fragment["transitions"] for key in ("from", "to")}
    document = lifecycle(fragment, states=" ".join(["New", "A", "End", *sorted(states)]))
    assert faults(document) == {}


INVALID: list[tuple[str, dict[str, Any], dict[str, str]]] = [
    ("transition state", lifecycle(action("go", "A>Z")), {"actions[1].transitions[0].to": "state 'Z' is not in states; there are New, A, B, C, End"}),
    ("initial state", {**lifecycle(), "initialState": "Z"}, {"initialState": "state 'Z' is not in states; there are New, A, B, C, End"}),
    ("no initial state", {**lifecycle(), "initialState": None}, {"initialState": "initialState is required"}),
    ("terminal state", {**lifecycle(), "terminalStates": ["End", "Z"]}, {"terminalStates[1]": "state 'Z' is not in states; there are New, A, B, C, End"}),
    ("running state", {**lifecycle(), "runningStates": ["Z"]}, {"runningStates[0]": "state 'Z' is not in states; there are New, A, B, C, End"}),
    ("two successes", lifecycle(action("go", "A>B", "A>C")), {"actions[1].transitions[1]": "there is already a success transition from 'A'"}),
    ("out of a terminal state", lifecycle(action("go", "End>A")), {"actions[1].transitions[0].from": "no transition may leave the terminal state 'End'"}),
    ("no create", {**lifecycle(), "actions": []}, {"actions": "there is no action 'create'"}),
    ("create from another state", {**lifecycle(), "initialState": "A"}, {"actions[0].transitions": "action 'create' has no success transition from the initial state 'A'"}),
    ("NUL in a state", lifecycle(states="New A B \0 End"), {"states[3].name": "name contains a NUL character"}),
    ("duplicate state", lifecycle(states="New A B A End"), {"states[3].name": "duplicate name 'A'"}),
    ("duplicate action", lifecycle(action("go", "A>B"), action("go", "B>A")), {"actions[2].name": "duplicate name 'go'"}),
    ("expression", lifecycle(action("go", "A!B:(")), {"actions[1].transitions[0].onErrorRegexp": "invalid regular expression: missing ): ("}),
    ("unknown key", {**lifecycle(), "colour": 1}, {"colour": "unknown key; known keys: actions, initialState, runningStates, states, terminalStates"}),
    ("unknown action key", lifecycle(action("go", "A>B", retries=1)), {"actions[1].retries": "unknown key; known keys: autoAdvance, maxAttempts, name, pendingTimeoutSeconds, requestSchemaType, timeoutSeconds, transitions"}),
    ("timeout", lifecycle(action("go", "A>B", timeoutSeconds=0)), {"actions[1].timeoutSeconds": "timeoutSeconds must be a positive integer"}),
    ("request", lifecycle(action("go", "A>B", requestSchemaType="body")), {"actions[1].requestSchemaType": "requestSchemaType must be 'properties' or omitted"}),
    ("no name", lifecycle({"transitions": []}), {"actions[1].name": "name is required"}),
    ("no transitions", lifecycle({"name": "go"}), {"actions[1].transitions": "transitions is required; write `transitions: [{from: New, to: Started}]`"}),
]  # fmt: skip


@pytest.mark.parametrize(("document", "expected"), [case[1:] for case in INVALID], ids=[case[0] for case in INVALID])
def test_a_bad_lifecycle_is_refused_with_its_path(document: dict[str, Any], expected: dict[str, str]) -> None:
    assert faults(document) == expected


def test_an_expression_needs_an_error_transition() -> None:
    document = lifecycle({"name": "go", "transitions": [{"from": "A", "to": "B", "onErrorRegexp": "x"}]})
    assert faults(document) == {"actions[1].transitions[0].onErrorRegexp": "onErrorRegexp needs onError"}


@pytest.mark.parametrize("document", [None, [], "x", 1, {}, {"states": 1, "actions": {}, "initialState": []}])
def test_other_documents_are_refused(document: object) -> None:
    assert faults(document) != {}


def test_optional_keys_of_an_action_have_defaults() -> None:
    plain = parse_lifecycle(lifecycle(action("go", "A>B"))).actions["go"]
    assert (plain.advances, plain.timeout_seconds, plain.pending_timeout_seconds, plain.max_attempts) == (
        True,
        300,
        None,
        3,
    )
    explicit = action("go", "A>B", autoAdvance=False, timeoutSeconds=60.0, pendingTimeoutSeconds=5, maxAttempts=1)
    read = parse_lifecycle(lifecycle(explicit)).actions["go"]
    assert (read.advances, read.timeout_seconds, read.pending_timeout_seconds, read.max_attempts) == (False, 60, 5, 1)


def test_the_built_in_lifecycle_is_the_first_example_with_delete_from_new() -> None:
    example = seed_lifecycle(SIMPLE)
    assert DEFAULT_LIFECYCLE.states == example.states
    moves = {name: act.successes for name, act in example.actions.items()}
    moves["delete"] = {"New": "Deleted", **moves["delete"]}
    assert {name: act.successes for name, act in DEFAULT_LIFECYCLE.actions.items()} == moves
    assert {name for name, act in DEFAULT_LIFECYCLE.actions.items() if act.takes_properties} == {"create", "update"}
    assert DEFAULT_LIFECYCLE.initial_state == "New"
    assert DEFAULT_LIFECYCLE.terminal_states == {"Deleted"}
    assert DEFAULT_LIFECYCLE.running_states == example.running_states


def test_only_actions_with_a_transition_from_the_state_are_available() -> None:
    vm = seed_lifecycle(SIMPLE)
    assert available_actions(vm, "New") == ("create",)
    assert available_actions(vm, "Stopped") == ("start", "update", "delete")
    assert available_actions(vm, "Deleted") == ()
    with pytest.raises(UnknownAction, match="unknown action 'fly'"):
        begin(vm, "fly", "Stopped")
    with pytest.raises(TerminalState, match=r"^cannot perform action on service in terminal state: Deleted$"):
        begin(vm, "start", "Deleted")
    with pytest.raises(
        WrongState, match="action 'start' cannot be performed in state 'Started'; it starts from: Stopped"
    ):
        begin(vm, "start", "Started")


@pytest.mark.parametrize(
    ("heading", "name", "state", "path"),
    [
        (SIMPLE, "create", "New", "New Stopped"),
        (SIMPLE, "update", "Started", "Started Started"),
        (ADVANCED, "create", "New", "New Provisioning Stopped"),
        (ADVANCED, "start", "Stopped", "Stopped Starting Started"),
        (ADVANCED, "restart", "Started", "Started Stopping Starting Started"),
        (ADVANCED, "delete", "Failed", "Failed Deleted"),
        (DATABASE, "backup", "Started", "Started Backup Started"),
        (DATABASE, "maintenance", "Maintenance", "Maintenance Stopped Maintenance"),
    ],
)
def test_one_request_runs_all_its_steps(heading: str, name: str, state: str, path: str) -> None:
    assert success_path(seed_lifecycle(heading), name, state) == tuple(path.split())


def test_a_run_ends_before_a_self_loop_or_a_visited_state() -> None:
    looping = parse_lifecycle(lifecycle(action("go", "A>B", "B>B"), action("round", "A>B", "B>C", "C>B")))
    assert success_path(looping, "go", "A") == ("A", "B")
    assert success_path(looping, "round", "A") == ("A", "B", "C", "B")


def test_auto_advance_false_runs_one_step_per_request() -> None:
    stepping = parse_lifecycle(lifecycle(action("go", "A>B", "B>C", autoAdvance=False)))
    assert success_path(stepping, "go", "A") == ("A", "B")
    assert not after_success(stepping, begin(stepping, "go", "A"), "A").continues


def test_a_job_whose_transition_was_removed_keeps_the_state() -> None:
    vm = seed_lifecycle(SIMPLE)
    assert after_success(vm, ActionProgress("gone", ("Stopped",)), "Stopped") == Step("Stopped", continues=False)
    assert after_success(vm, ActionProgress("start", ("Started",)), "Started") == Step("Started", continues=False)
    assert after_failure(vm, "gone", "Stopped", "x") is None


@pytest.mark.parametrize(
    ("message", "to"),
    [
        ("disk quota was exceeded today", "QuotaExceeded"),
        ("quota", "Failed"),
        ("", "Failed"),
        ("\ud800 quota exceeded", "QuotaExceeded"),
    ],
)
def test_the_first_error_transition_that_matches_is_taken(message: str, to: str) -> None:
    start: Any = block("Error Regexp Matching")
    document = lifecycle(start, states="New A End Stopped Started QuotaExceeded Failed")
    assert after_failure(parse_lifecycle(document), "start", "Stopped", message) == to


def test_a_failure_without_a_transition_keeps_the_state() -> None:
    assert after_failure(seed_lifecycle(SIMPLE), "start", "Stopped", "boom") is None
    only = parse_lifecycle(lifecycle(action("go", "A>B", "A!C:lease expired")))
    assert after_failure(only, "go", "A", "job timed out") is None
    assert after_failure(only, "go", "A", "lease expired") == "C"


def codes(document: dict[str, Any]) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for finding in report_lifecycle(parse_lifecycle(document)):
        found.setdefault(finding.code, []).append(finding.subject)
    return found


def test_the_report_finds_unreachable_states_and_dead_ends() -> None:
    found = codes(lifecycle(action("go", "A>B", "A!B"), action("back", "C>A", "C!C"), action("loop", "B>B", "B!B")))
    assert found["unreachable-state"] == ["state C", "state End"]
    assert "dead-end" not in found
    assert found["no-way-to-terminal"] == ["state New", "state A", "state B", "state C"]
    assert codes(lifecycle(action("go", "A>B", "A!B")))["dead-end"] == ["state B", "state C"]
    assert codes({**lifecycle(), "terminalStates": []})["no-terminal-state"] == ["lifecycle"]


def test_an_action_that_cannot_start_cannot_fail() -> None:
    document = lifecycle(action("go", "A!B"), action("delete", "A>End", "A!A"))
    assert "state B" in codes(document)["unreachable-state"]
    with pytest.raises(WrongState, match=r"in state 'A'; it has no success transition at all$"):
        begin(parse_lifecycle(document), "go", "A")


def test_an_error_transition_is_not_a_way_out() -> None:
    found = codes(lifecycle(action("go", "A>A", "A!End")))
    assert "state A" in found["no-way-to-terminal"]
    assert "state End" not in found.get("unreachable-state", [])


def test_the_report_finds_failures_without_a_transition() -> None:
    found = codes(lifecycle(action("go", "A>B"), action("run", "A>B", "A!C:disk")))
    assert found["no-error-path"] == ["action go in state A"]
    assert found["no-catch-all"] == ["action run in state A"]


@pytest.mark.parametrize(
    ("moves", "code", "message"),
    [
        (["A!B", "A!C:quota"], "shadowed-error", "/quota/ to C is never taken: the catch-all to B comes first"),
        (
            ["A!B:quota", "A!C:disk quota exceeded"],
            "shadowed-error",
            "/disk quota exceeded/ to C is never taken: /quota/ to B",
        ),
        (["A!B:x.*y", "A!C:x.*y"], "shadowed-error", "/x.*y/ to C is never taken"),
        (
            ["A!B:.*", "A!C:^disk [0-9]+"],
            "shadowed-error",
            "/^disk [0-9]+/ to C is never taken: /.*/ to B comes first",
        ),
    ],
)
def test_the_report_finds_shadowed_error_transitions(moves: list[str], code: str, message: str) -> None:
    document = lifecycle(action("go", "A>B", *moves))
    found = [finding for finding in report_lifecycle(parse_lifecycle(document)) if finding.code == code]
    assert len(found) == 1
    assert message in found[0].message


@pytest.mark.parametrize(
    "moves",
    [
        ["A!B:quota", "A!C"],
        ["A!B:abc", "A!C:xyz"],
        ["A!B:q", "A!B:q+r"],
        ["A!B:a", "A!C:(?i)b"],
        ["A!B:a.c", "A!C:a.c d"],
    ],
)
def test_error_transitions_that_differ_are_not_reported(moves: list[str]) -> None:
    found = codes(lifecycle(action("go", "A>B", *moves)))
    assert "shadowed-error" not in found


def test_the_report_shows_the_path_of_a_run_with_several_steps() -> None:
    findings = report_lifecycle(seed_lifecycle(DATABASE))
    (found,) = [
        each for each in findings if each.code == "implicit-auto-advance" and each.subject == "action maintenance"
    ]
    assert "Stopped → Maintenance → Stopped" in found.message
    explicit = lifecycle(action("go", "A>B", "B>C", autoAdvance=True))
    assert "implicit-auto-advance" not in codes(explicit)


START = datetime(2026, 1, 1, tzinfo=UTC)


def hours(*numbers: float) -> list[datetime]:
    return [START + timedelta(hours=number) for number in numbers]


def test_uptime_is_the_share_of_the_time_in_running_states() -> None:
    vm = seed_lifecycle(SIMPLE)
    history = [
        StateEntry(at, state)
        for at, state in zip(hours(0, 1, 2, 5), ("New", "Stopped", "Started", "Stopped"), strict=True)
    ]
    measured = uptime(vm, history, *hours(0, 10))
    assert (measured.running, measured.total, measured.share) == (timedelta(hours=3), timedelta(hours=10), 0.3)
    assert uptime(vm, history, *hours(3, 4)).share == 1.0
    assert uptime(vm, history, *hours(-5, 2)).total == timedelta(hours=2)


def test_time_outside_of_the_life_of_a_service_does_not_count() -> None:
    vm = seed_lifecycle(SIMPLE)
    history = [StateEntry(at, state) for at, state in zip(hours(0, 1, 4), ("New", "Started", "Deleted"), strict=True)]
    assert uptime(vm, history, *hours(1, 100)).share == 1.0
    assert uptime(vm, history, *hours(50, 100)).share == 0.0
    assert uptime(vm, [], *hours(0, 1)).total == timedelta()


def test_the_uptime_of_days_adds_up_to_the_uptime_of_all() -> None:
    vm = seed_lifecycle(SIMPLE)
    states = ("New", "Started", "Stopped", "Started", "Deleted")
    history = [StateEntry(at, state) for at, state in zip(hours(0, 5, 30, 31, 60), states, strict=True)]
    (end,) = hours(80)
    days = uptime_by_day(vm, history, end, 5)
    whole = uptime(vm, history, days[0].day, end)
    assert sum((each.uptime.running for each in days), timedelta()) == whole.running == timedelta(hours=54)
    assert sum((each.uptime.total for each in days), timedelta()) == whole.total == timedelta(hours=60)
    assert [each.day for each in days] == [days[-1].day - timedelta(days=left) for left in range(4, -1, -1)]
    assert not days[0].uptime.total
    assert days[-1].states == ()
    assert max(len(each.states) for each in days) == 2


def test_a_long_history_is_read_once_for_all_days() -> None:
    vm = seed_lifecycle(SIMPLE)
    (start, end) = hours(0, 24 * 400)
    history = [
        StateEntry(start + timedelta(minutes=minute), ("Started", "Stopped")[minute % 2]) for minute in range(2000)
    ]
    days = uptime_by_day(vm, history, end, 90)
    assert {each.uptime.share for each in days} == {0.0}
    assert all(each.uptime.total == timedelta(days=1) for each in days[:-1])


def test_a_new_lifecycle_names_every_service_it_would_strand() -> None:
    new = parse_lifecycle(lifecycle(action("go", "A>B"), action("end", "A>End")))
    living = [
        LivingService("1", "Gone"),
        LivingService("2", "A", "stop"),
        LivingService("3", "End"),
        LivingService("4", "B"),
        LivingService("5", "A", "go"),
        LivingService("6", "A"),
    ]
    found = {each.service_id: (each.message, each.forceable) for each in find_stranded(new, living)}
    assert found == {
        "1": ("state 'Gone' is not in the new lifecycle", False),
        "2": ("its active job 'stop' has no success transition from 'A' in the new lifecycle", True),
        "3": ("state 'End' becomes terminal while the service is in it", True),
        "4": ("state 'B' has no way to a terminal state", True),
    }


@pytest.mark.parametrize("heading", [SIMPLE, ADVANCED, DATABASE])
def test_a_diagram_shows_every_state_and_action(heading: str) -> None:
    drawn = seed_lifecycle(heading)
    root = ET.fromstring(draw_svg(drawn, "A <title> & more"))
    texts = {element.text for element in root.iter("{http://www.w3.org/2000/svg}text")}
    assert set(drawn.states) <= texts
    assert set(drawn.actions) <= texts
    assert root.findtext("{http://www.w3.org/2000/svg}title") == "A <title> & more"
    assert not any("style" in element.attrib for element in root.iter())


def boxes(svg: str) -> list[tuple[float, float, float, float]]:
    rects = list(ET.fromstring(svg).iter("{http://www.w3.org/2000/svg}rect"))[1:]
    return [
        (float(r.attrib["x"]), float(r.attrib["y"]), float(r.attrib["width"]), float(r.attrib["height"]))
        for r in rects
    ]


@settings(max_examples=60, deadline=None, derandomize=True, database=None)
@given(
    moves=st.lists(st.tuples(st.integers(0, 7), st.integers(0, 7), st.booleans()), max_size=20),
    names=st.lists(
        st.text(min_size=1, max_size=12).filter(lambda name: name.isprintable()), min_size=8, max_size=8, unique=True
    ),
)
def test_states_of_a_diagram_never_overlap(moves: list[tuple[int, int, bool]], names: list[str]) -> None:
    transitions = {(names[a], names[b], on_error): None for a, b, on_error in moves}
    create = {"name": "create", "transitions": [{"from": names[0], "to": names[1]}]}
    others = [
        {"name": f"x{index}", "transitions": [{"from": origin, "to": to, "onError": on_error}]}
        for index, (origin, to, on_error) in enumerate(transitions)
    ]
    document = {"states": [{"name": name} for name in names], "actions": [create, *others], "initialState": names[0]}
    drawn = parse_lifecycle(document)
    found = boxes(draw_svg(drawn))
    assert len(found) == len(names)
    for index, (x, y, width, height) in enumerate(found):
        for other_x, other_y, other_width, other_height in found[index + 1 :]:
            apart = (
                x + width <= other_x
                or other_x + other_width <= x
                or y + height <= other_y
                or other_y + other_height <= y
            )
            assert apart
    assert draw_mermaid(drawn).count("state ") == len(names)
    assert report_lifecycle(drawn) == report_lifecycle(parse_lifecycle(deepcopy(document))) != ()


def test_mermaid_text_is_escaped() -> None:
    odd = lifecycle(action('go: "x"; #1', "A>B"))
    lines = draw_mermaid(parse_lifecycle(odd)).splitlines()
    assert lines[0] == "stateDiagram-v2"
    assert "    s1 --> s2 : go#58; #34;x#34;#59; #35;1" in lines
    assert lines[-1] == "    s4 --> [*]"
