"""Diffs as pages show them: changed words are marked, at a bounded cost."""

from __future__ import annotations

import time

import pytest

from mainstay.control.web.views.diffs import DiffBudget, read_diff


def test_changed_words_are_marked() -> None:
    shown = read_diff("-port = 5432 # default\n+port = 5433 # default", DiffBudget())
    assert [line.parts for line in shown.lines] == [
        (("port = ", False), ("5432", True), (" # default", False)),
        (("port = ", False), ("5433", True), (" # default", False)),
    ]


def test_two_changes_in_a_line_are_marked_apart() -> None:
    (before, after) = read_diff("-a=1 and b=2 stay\n+a=3 and b=4 stay", DiffBudget()).lines
    assert [text for text, changed in before.parts if changed] == ["1", "2"]
    assert [text for text, changed in after.parts if changed] == ["3", "4"]


REPEATED = {
    "words": ("a " * 150, "b a " * 75),
    "signs": ("!" * 299 + "a", "b" + "!" * 298 + "b"),
    "mixed signs": ("!?" * 150, "?!!" * 100),
}


@pytest.mark.parametrize("lines", REPEATED.values(), ids=list(REPEATED))
def test_lines_of_repeated_words_cost_no_more_than_others(lines: tuple[str, str]) -> None:
    text = "\n".join(f"-{lines[0][:300]}\n+{lines[1][:300]}" for _ in range(150))
    started = time.process_time()
    shown = read_diff(text, DiffBudget())
    assert time.process_time() - started < 1.0
    assert (shown.added, shown.removed, len(shown.lines)) == (150, 150, 300)
