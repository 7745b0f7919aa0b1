"""Diffs, reports and properties as pages show them."""

from __future__ import annotations

import pytest

from mainstay.control.web.views.diffs import MAX_LINE, MAX_LINES, DiffBudget, read_diff
from mainstay.control.web.views.property_rows import MAX_ROWS, property_rows
from mainstay.control.web.views.reports import MAX_RESOURCES, read_drift, read_report


def marked(text: str) -> list[tuple[str, str]]:
    """(kind, line with the changed words in brackets)"""
    return [
        (line.kind, "".join(f"[{part}]" if changed else part for part, changed in line.parts))
        for line in read_diff(text, DiffBudget()).lines
    ]


def test_changed_words_of_a_replaced_line_are_marked() -> None:
    assert marked("--- a\n+++ b\n@@ -1,2 +1,2 @@\n same\n-size = 50\n+size = 200\n") == [
        ("place", "@@ -1,2 +1,2 @@"),
        ("same", "same"),
        ("removed", "size = [50]"),
        ("added", "size = [200]"),
    ]


def test_lines_without_common_text_are_not_marked() -> None:
    assert marked("-alpha beta\n+one two three") == [("removed", "alpha beta"), ("added", "one two three")]


def test_a_removed_line_that_looks_like_a_header_is_counted() -> None:
    diff = read_diff("--- a\n+++ b\n@@ -1 +1 @@\n--- x\n+++ y", DiffBudget())
    assert (diff.added, diff.removed) == (1, 1)


@pytest.mark.parametrize("text", ["", "\n", "@@", "-", "+", "\\ No newline at end of file", "text"])
def test_any_text_is_a_diff(text: str) -> None:
    read_diff(text, DiffBudget())


def test_a_long_diff_is_cut_and_counts_all_lines() -> None:
    diff = read_diff("\n".join(["+x"] * (MAX_LINES + 10)), DiffBudget())
    assert (len(diff.lines), diff.left_out, diff.added) == (MAX_LINES, 10, MAX_LINES + 10)
    assert "more characters" in read_diff("+" + "x" * (2 * MAX_LINE), DiffBudget()).lines[0].parts[0][0]


def test_the_diffs_of_a_page_share_a_budget() -> None:
    budget = DiffBudget(lines=3)
    assert len(read_diff("+a\n+b", budget).lines) == 2
    assert len(read_diff("+a\n+b", budget).lines) == 1
    assert read_diff("+a\n+b", budget).left_out == 2


def test_failed_resources_come_first_and_stable_ones_are_listed_by_name() -> None:
    events = [
        {"type": "file", "name": "/a", "outcome": "stable"},
        {"type": "file", "name": "/b", "outcome": "changed"},
        {"type": "exec", "name": "c", "outcome": "failed"},
    ]
    report = read_report({"events": events}, DiffBudget())
    assert [each.name for each in report.resources] == ["c", "/b"]
    assert report.stable == ("file#/a",)
    assert report.counts == {"failed": 1, "changed": 1, "stable": 1}


def test_resources_above_the_bound_are_counted() -> None:
    events = [{"type": "file", "name": str(number), "outcome": "changed"} for number in range(MAX_RESOURCES + 7)]
    assert read_report({"events": events}, DiffBudget()).left_out == 7


def test_a_message_about_drift_is_split_at_its_resources() -> None:
    message = "file#/a: would change (x)\n@@ -1 +1 @@\n-file#/c: old\n+new\nunit#b: would start"
    first, second = read_drift(message, DiffBudget())
    assert (first.type, first.name, first.message) == ("file", "/a", "would change (x)")
    assert first.diff is not None
    assert (first.diff.added, first.diff.removed) == (1, 1)
    assert (second.type, second.name, second.diff) == ("unit", "b", None)


def test_a_message_in_another_form_is_shown_whole() -> None:
    (only,) = read_drift("a secret cannot be opened", DiffBudget())
    assert (only.type, only.name) == ("", "a secret cannot be opened")


def test_members_of_objects_are_rows_with_the_paths_of_provenance() -> None:
    rows = property_rows({"backup": {"keep.days": 14, "deep": {"x": {"y": 1}}}, "allow": ["a", "b"]})
    assert [(row.path, row.depth, row.value.texts) for row in rows] == [
        ("backup", 0, ("2 members",)),
        ('backup["keep.days"]', 1, ("14",)),
        ("backup.deep", 1, ("1 member",)),
        ("backup.deep.x", 2, ('{"y": 1}',)),
        ("allow", 0, ("a", "b")),
    ]


def test_coming_values_stand_beside_the_present_ones() -> None:
    before = {"size": 1, "same": 1, "gone": 1, "backup": {"keep": 1}}
    rows = property_rows(before, {"size": 2, "same": 1, "new": 3, "backup": {"keep": 2}})
    coming = {row.path: (row.coming.kind, row.coming.texts) for row in rows if row.coming is not None}
    assert coming == {
        "size": ("text", ("2",)),
        "gone": ("none", ()),
        "backup.keep": ("text", ("2",)),
        "new": ("text", ("3",)),
    }


def test_secrets_are_not_shown_at_any_depth() -> None:
    reference = "vault://canary"
    rows = property_rows(
        {"a": reference, "b": [reference], "c": {"d": {"e": {"f": [reference]}}}}, {"a": "vault://canary2"}
    )
    assert "canary" not in repr(rows)
    assert rows[0].value.kind == "secret"


def test_very_many_properties_are_cut() -> None:
    assert len(property_rows({str(number): number for number in range(5 * MAX_ROWS)})) == MAX_ROWS
