"""Merging of data from its layers."""

from __future__ import annotations

from typing import Any

import pytest

from mainstay.converge.manifest.hierarchy import apply_hierarchy, merge_deep, nest, overlay

BASE: dict[str, Any] = {"a": 0, "map": {"x": 0, "y": 0}, "list": [0]}
OVERRIDES: dict[str, dict[str, Any]] = {
    "one": {"a": 1, "map": {"x": 1}, "list": [1]},
    "two": {"a": 2, "map": {"y": 2}, "list": [2]},
    "empty": {},
}


@pytest.mark.parametrize(
    ("order", "expected"),
    [
        ([], BASE),
        (["nope"], BASE),
        (["one", "two"], {"a": 1, "map": {"x": 1}, "list": [1]}),
        (["nope", "two", "one"], {"a": 2, "map": {"y": 2}, "list": [2]}),
        (["empty", "one"], BASE),
    ],
)
def test_first_stops_at_the_first_override_that_exists(order: list[str], expected: dict[str, Any]) -> None:
    assert apply_hierarchy(BASE, OVERRIDES, order, "first") == expected


@pytest.mark.parametrize(
    ("order", "expected"),
    [
        ([], BASE),
        (["one", "two"], {"a": 2, "map": {"x": 1, "y": 2}, "list": [0, 1, 2]}),
        (["two", "one"], {"a": 1, "map": {"x": 1, "y": 2}, "list": [0, 2, 1]}),
        (["nope", "one", "empty"], {"a": 1, "map": {"x": 1, "y": 0}, "list": [0, 1]}),
    ],
)
def test_deep_merges_all_overrides_and_the_later_wins(order: list[str], expected: dict[str, Any]) -> None:
    assert apply_hierarchy(BASE, OVERRIDES, order, "deep") == expected


def test_merging_does_not_change_the_layers() -> None:
    before = repr((BASE, OVERRIDES))
    apply_hierarchy(BASE, OVERRIDES, ["one", "two"], "deep")
    overlay(BASE, OVERRIDES["one"])
    assert repr((BASE, OVERRIDES)) == before


@pytest.mark.parametrize(
    ("under", "over", "merged", "overlaid"),
    [
        ({"a": {"b": 1}}, {"a": 2}, {"a": 2}, {"a": 2}),
        ({"a": 2}, {"a": {"b": 1}}, {"a": {"b": 1}}, {"a": {"b": 1}}),
        ({"a": [1]}, {"a": [2]}, {"a": [1, 2]}, {"a": [2]}),
        ({"a": [1]}, {"a": None}, {"a": None}, {"a": None}),
        (
            {"a": {"b": {"c": 1}}},
            {"a": {"b": {"d": 2}}},
            {"a": {"b": {"c": 1, "d": 2}}},
            {"a": {"b": {"c": 1, "d": 2}}},
        ),
        ({}, {}, {}, {}),
    ],
)
def test_a_hierarchy_concatenates_lists_and_the_command_line_replaces_them(
    under: dict[str, Any], over: dict[str, Any], merged: dict[str, Any], overlaid: dict[str, Any]
) -> None:
    assert merge_deep(under, over) == merged
    assert overlay(under, over) == overlaid


def test_dotted_keys_nest() -> None:
    assert nest("a", 1) == {"a": 1}
    assert nest("a.b.0", 1) == {"a": {"b": {"0": 1}}}
