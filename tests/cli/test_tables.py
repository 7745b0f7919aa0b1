"""Tables and trees: aligned for every script, truncated to the terminal, without control characters."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from mainstay.cli.views.tables import (
    age,
    elapsed,
    print_fields,
    print_table,
    progress_bar,
    shrink_to_fit,
    tree_lines,
    truncate,
    width_of,
)


def test_columns_are_aligned_for_every_script(capsys: pytest.CaptureFixture[str]) -> None:
    print_table(("NAME", "STATE"), [["café", "Started"], ["部屋", ""], ["e\u0301", "Stopped"]])
    assert capsys.readouterr().out == "NAME  STATE\ncafé  Started\n部屋  -\ne\u0301     Stopped\n"


def test_control_characters_are_escaped(capsys: pytest.CaptureFixture[str]) -> None:
    print_table(("NAME",), [["a\x1b[31m\nb\tc"]])
    print_fields([("message", "a\x07\nb"), ("nothing", "")])
    assert capsys.readouterr().out == "NAME\na\\x1b[31m\\nb c\nmessage  a\\x07\n         b\n"


@pytest.mark.parametrize(
    ("text", "width", "shown"), [("abc", 3, "abc"), ("abcd", 3, "ab…"), ("部屋x", 4, "部…"), ("", 1, "")]
)
def test_a_text_is_truncated_to_a_width(text: str, width: int, shown: str) -> None:
    assert truncate(text, width) == shown
    assert width_of(shown) <= width


def test_the_widest_columns_shrink_first() -> None:
    widths = [10, 40, 30]
    shrink_to_fit(widths, 50)
    assert widths == [10, 20, 20]
    shrink_to_fit(widths, 5)
    assert widths == [6, 6, 6]


def test_a_tree_aligns_values_of_one_level() -> None:
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
    assert elapsed("2026-01-01T00:00:00Z", "2026-01-01T00:00:00.25Z") == "0.2s"
    assert elapsed("2026-01-01T00:00:00Z", "2026-01-01T00:01:30Z") == "1m30s"
    assert elapsed("2026-01-01T00:00:00Z", "2026-01-01T02:00:00Z") == "2h"
    assert elapsed("2026-01-01T00:00:00Z", None) == ""
    assert len(progress_bar(0.5)) == len(progress_bar(7.0)) == len(progress_bar(-1.0)) == 20
