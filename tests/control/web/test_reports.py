"""Reports of agents as pages show them, whatever an agent sends."""

from __future__ import annotations

import pytest

from mainstay.control.web.views.diffs import DiffBudget
from mainstay.control.web.views.formatting import duration
from mainstay.control.web.views.reports import read_report


@pytest.mark.parametrize("seconds", [1e300, 1e15, 10**400, -1, True, "1", None])
def test_a_duration_that_cannot_be_one_is_not_shown(seconds: object) -> None:
    report = {"events": [{"type": "file", "name": "a", "outcome": "changed", "duration_seconds": seconds}]}
    (resource,) = read_report(report, DiffBudget()).resources
    assert resource.seconds is None


def test_a_duration_is_shown() -> None:
    report = {"events": [{"type": "file", "name": "a", "outcome": "changed", "duration_seconds": 75}]}
    (resource,) = read_report(report, DiffBudget()).resources
    assert resource.seconds is not None
    assert duration(resource.seconds) == "1:15 min"


def test_a_resource_of_an_applied_manifest_shows_where_it_belongs() -> None:
    within = ["apply#site", "apply#shop"]
    events = [
        {"type": "file", "name": "a", "outcome": "changed", "within": within},
        {"type": "file", "name": "b", "outcome": "stable", "within": within[:1]},
        {"type": "file", "name": "c", "outcome": "stable", "within": 3},
    ]
    shown = read_report({"events": events}, DiffBudget())
    assert [each.within for each in shown.resources] == ["apply#site › apply#shop"]
    assert shown.stable == ("file#b in apply#site", "file#c")
