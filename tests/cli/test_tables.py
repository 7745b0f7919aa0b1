"""Tables and trees: aligned for every script, cut to the terminal, and never steered by what they show."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from mainstay.cli.views.tables import age, bar, cut, fit, lasted, print_fields, print_table, tree_lines, width_of


def test_columns_are_aligned_whatever_the_script(capsys: pytest.CaptureFixture[str]) -> None:
    print_table(("NAME", "STATE"), [["café", "Started"], ["部屋", ""], ["e\u0301", "Stopped"]])
    assert capsys.readouterr().out == "NAME  STATE\ncafé  Started\n部屋  -\ne\u0301     Stopped\n"


def test_what_steers_a_terminal_is_shown_and_not_sent(capsys: pytest.CaptureFixture[str]) -> None:
    print_table(("NAME",), [["a\x1b[31m\nb\tc"]])
    print_fields([("told", "a\x07\nb"), ("nothing", "")])
    assert capsys.readouterr().out == "NAME\na\\x1b[31m\\nb c\ntold  a\\x07\n      b\n"


@pytest.mark.parametrize(
    ("text", "wide", "shown"), [("abc", 3, "abc"), ("abcd", 3, "ab…"), ("部屋x", 4, "部…"), ("", 1, "")]
)
def test_a_text_is_cut_to_its_places(text: str, wide: int, shown: str) -> None:
    assert cut(text, wide) == shown
    assert width_of(shown) <= wide


def test_the_widest_columns_give_way_first() -> None:
    widths = [10, 40, 30]
    fit(widths, 50)
    assert widths == [10, 20, 20]
    fit(widths, 5)
    assert widths == [6, 6, 6]


def test_a_tree_aligns_neighbours_and_nests_the_rest() -> None:
    document = {"cpu": 4, "db": {"host": "h", "port": 1}, "tags": ["a", "b"], "users": [{"name": "x"}], "none": None}
    assert tree_lines({**document, "empty": "", "object": {}}) == [
        "  cpu     4",
        "  db",
        "    host  h",
        "    port  1",
        "  tags    a, b",
        "  users",
        "    [0]",
        "      name  x",
        "  none    -",
        "  empty   ''",
        "  object  {}",
    ]


def test_times_and_bars() -> None:
    now = datetime(2026, 1, 2, tzinfo=UTC)
    assert [age(text, now=now) for text in ("2026-01-01T23:59:30Z", "2025-12-01T00:00:00Z", "", None)] == [
        "30s",
        "32d",
        "",
        "",
    ]
    assert age("2027-01-01T00:00:00Z", now=now) == "0s"
    assert lasted("2026-01-01T00:00:00Z", "2026-01-01T00:00:00.25Z") == "0.2s"
    assert lasted("2026-01-01T00:00:00Z", "2026-01-01T00:01:30Z") == "1m30s"
    assert lasted("2026-01-01T00:00:00Z", "2026-01-01T02:00:00Z") == "2h"
    assert lasted("2026-01-01T00:00:00Z", None) == ""
    assert len(bar(0.5)) == len(bar(7.0)) == len(bar(-1.0)) == 20
