"""The lifecycle drawing of the pages: what is lit, which labels are links, and what a screen reader gets."""

from __future__ import annotations

import xml.etree.ElementTree as ET
from typing import Any

from mainstay.control.domain.lifecycle.parse import parse_lifecycle
from mainstay.control.domain.lifecycle.schema import Lifecycle
from mainstay.control.domain.lifecycle.svg import ServiceMoves
from mainstay.control.web.drawings.lifecycle import draw_lifecycle

LINKS = {"stop": "/services/1/plan?action=stop", "update": "/u", "delete": "/d"}
HOSTILE = '"><script>alert(1)</script>'


def lifecycle(**renamed: str) -> Lifecycle:
    def name(of: str) -> str:
        return renamed.get(of, of)

    def move(origin: str, to: str, **more: Any) -> dict[str, Any]:
        return {"from": name(origin), "to": name(to), **more}

    states = ("New", "Stopped", "Starting", "Started", "Failed", "Deleted")
    starting = [
        move("Stopped", "Starting"),
        move("Starting", "Started"),
        move("Starting", "Stopped", onError=True, onErrorRegexp="quota.*<exceeded>"),
        move("Starting", "Failed", onError=True),
    ]
    return parse_lifecycle(
        {
            "states": [{"name": name(state)} for state in states],
            "initialState": name("New"),
            "terminalStates": [name("Deleted")],
            "runningStates": [name("Started")],
            "actions": [
                {"name": "create", "transitions": [move("New", "Stopped"), move("New", "Failed", onError=True)]},
                {"name": "start", "transitions": starting},
                {"name": name("stop"), "transitions": [move("Started", "Stopped")]},
                {"name": "update", "transitions": [move("Started", "Started")]},
                {"name": "delete", "transitions": [move(state, "Deleted") for state in ("New", "Started", "Failed")]},
            ],
        }
    )


def parsed(svg: str) -> ET.Element:
    """Without the namespace, which would precede every tag."""
    return ET.fromstring(svg.replace(' xmlns="http://www.w3.org/2000/svg"', "", 1))


def drawn(of: Lifecycle, moves: ServiceMoves | None = None) -> ET.Element:
    return parsed(draw_lifecycle(of, "Lifecycle of postgresql", moves or ServiceMoves()))


def with_class(root: ET.Element, wanted: str) -> list[ET.Element]:
    return [each for each in root.iter() if set(wanted.split()) <= set(each.attrib.get("class", "").split())]


def texts(root: ET.Element) -> list[str]:
    return ["".join(each.itertext()) for each in root.iter("text")]


def test_the_state_of_the_service_is_lit_and_each_state_has_its_kind() -> None:
    root = drawn(lifecycle(), ServiceMoves("Started", LINKS))
    assert [texts(node) for node in with_class(root, "node up lit")] == [["Started"]]
    assert len(with_class(root, "halo")) == 1
    kinds = {
        kind: [text for node in with_class(root, f"node {kind}") for text in texts(node)]
        for kind in ("new", "rest", "work", "bad", "end")
    }
    assert kinds == {"new": ["New"], "rest": ["Stopped"], "work": ["Starting"], "bad": ["Failed"], "end": ["Deleted"]}


def test_possible_actions_are_links_and_their_edges_are_dark() -> None:
    root = drawn(lifecycle(), ServiceMoves("Started", LINKS))
    assert {link.attrib["href"]: texts(link) for link in root.iter("a")} == {
        "/services/1/plan?action=stop": ["stop"],
        "/u": ["update"],
        "/d": ["delete"],
    }
    assert [link.attrib["href"] for link in with_class(root, "danger")] == ["/d"]
    assert len(with_class(root, "edge can")) == 3
    assert root.attrib["role"] == "group"


def test_an_action_without_a_link_is_a_plain_label() -> None:
    root = drawn(lifecycle(), ServiceMoves("Started", {"stop": "/s"}))
    assert [link.attrib["href"] for link in root.iter("a")] == ["/s"]
    assert "update" in [text for label in with_class(root, "lbl") for text in texts(label)]


def test_during_a_job_its_edge_flows_and_the_other_actions_wait() -> None:
    root = drawn(lifecycle(), ServiceMoves("Started", LINKS, running="update"))
    assert [texts(each) for each in with_class(root, "doing")] == [["update"]]
    assert sorted(text for each in with_class(root, "off") for text in texts(each)) == ["delete", "stop"]
    assert len(with_class(root, "edge moving")) == 1
    assert not list(root.iter("a"))
    assert not with_class(root, "can")


def test_a_service_type_has_no_lit_state_and_no_links() -> None:
    root = drawn(lifecycle())
    assert not with_class(root, "lit")
    assert not with_class(root, "can")
    assert not list(root.iter("a"))
    assert root.attrib["role"] == "img"


def test_failures_are_dashed_and_carry_the_expression() -> None:
    root = drawn(lifecycle())
    assert [texts(each) for each in with_class(root, "lbl err m")] == [["quota.*<exceeded>"]]
    assert len(with_class(root, "edge err")) == 3


def test_the_description_has_the_whole_meaning() -> None:
    root = drawn(lifecycle(), ServiceMoves("Started", LINKS, running="stop"))
    assert root.findtext("title") == "Lifecycle of postgresql"
    assert root.findtext("desc") == (
        "Now in Started. stop is running. Starts in New. create: New to Stopped; if it fails in New, Failed. "
        "start: Stopped to Starting; Starting to Started; if it fails in Starting, Stopped when the message matches "
        "quota.*<exceeded>; if it fails in Starting, Failed. stop: Started to Stopped. update: stays in Started. "
        "delete: New, Started or Failed to Deleted."
    )
    labelled = {each.attrib.get("id") for each in root.iter()}
    assert set(root.attrib["aria-labelledby"].split()) <= labelled


def test_names_are_escaped_everywhere() -> None:
    hostile = lifecycle(Started=HOSTILE, stop=HOSTILE)
    svg = draw_lifecycle(hostile, HOSTILE, ServiceMoves(HOSTILE, {HOSTILE: HOSTILE}))
    assert "<script" not in svg
    root = parsed(svg)
    assert HOSTILE in texts(root)
    assert [link.attrib["href"] for link in root.iter("a")] == [HOSTILE]
    assert not any("style" in each.attrib or each.tag in ("script", "style") for each in root.iter())


def test_a_long_name_is_cut_and_complete_in_its_title() -> None:
    name = "x" * 100
    root = drawn(lifecycle(Started=name))
    assert "x" * 39 + "…" in texts(root)
    assert name in [each.text for each in root.iter("title")]


def test_a_name_cannot_turn_the_text_around_it() -> None:
    root = drawn(lifecycle(Started="\u202eevil", stop="עצור"), ServiceMoves("\u202eevil"))
    assert "\u202e" not in ET.tostring(root, encoding="unicode")
    assert "\u2068עצור\u2069:" in str(root.findtext("desc"))


def test_a_small_drawing_keeps_its_text_size_and_a_large_one_scrolls() -> None:
    names = [f"Step {number}" for number in range(12)]
    moves = [{"from": names[index], "to": names[index + 1]} for index in range(11)]
    document = {"states": [{"name": name} for name in names], "initialState": names[0]}
    large = parse_lifecycle(document | {"actions": [{"name": "create", "transitions": moves}]})
    assert large.states == tuple(names)
    root = drawn(large)
    assert root.attrib["class"] == "lc wide"
    assert root.attrib["viewBox"].split()[2:] == [root.attrib["width"], root.attrib["height"]]
    single = [{"name": "create", "transitions": [{"from": "A", "to": "A"}]}]
    small = drawn(parse_lifecycle({"states": [{"name": "A"}], "initialState": "A", "actions": single}))
    assert float(small.attrib["viewBox"].split()[2]) == 760


def test_a_lifecycle_too_large_to_draw_is_a_list() -> None:
    names = [f"S{number}" for number in range(500)]
    actions = [{"name": "create", "transitions": [{"from": "S0", "to": "S1"}]}]
    actions += [{"name": f"<{number}>", "transitions": [{"from": "S0", "to": "S2"}]} for number in range(300)]
    document = {"states": [{"name": name} for name in names], "initialState": "S0", "actions": actions}
    root = drawn(parse_lifecycle(document), ServiceMoves("S0"))
    entries = ["".join(each.itertext()) for each in root.iter("li")]
    assert entries[:4] == ["Now in S0.", "Starts in S0.", "create: S0 to S1.", "<0>: S0 to S2."]
    assert entries[-1] == "103 more actions."
    assert len(entries) == 201
