"""The units of `mainstay schedule` as systemd reads them. Schedules of a real host: tests/system/test_schedule.py."""

from __future__ import annotations

import re
import shlex
import subprocess

import pytest

from mainstay.cli.main import load_command, make_parser
from mainstay.cli.schedule_units import Schedule, calendar_times, nearest_intervals, read_timer, timer_text
from mainstay.cli.systemd_units import quoted_word
from required_parts import need_program

DAY_MINUTES = 24 * 60
FITTING = [minutes for minutes in range(1, DAY_MINUTES + 1) if DAY_MINUTES % minutes == 0]


def test_an_interval_gives_the_times_of_a_day_that_systemd_computes() -> None:
    need_program("systemd-analyze")
    for minutes in FITTING:
        times = calendar_times(minutes * 60)
        assert times is not None
        assert len(times) <= 24
        done = subprocess.run(
            ["systemd-analyze", "calendar", "--base-time=2026-11-16 23:59:59", "--iterations=1500", *times],
            capture_output=True,
            text=True,
            env={"TZ": "UTC", "PATH": "/usr/bin:/bin"},
            timeout=30,
        )
        found = re.findall(r"2026-11-17 (\d\d):(\d\d):00 UTC", done.stdout)
        assert {60 * int(hour) + int(minute) for hour, minute in found} == set(range(0, DAY_MINUTES, minutes)), times


@pytest.mark.parametrize(
    ("seconds", "near"),
    [
        (30, ["1m"]),
        (90, ["1m", "2m"]),
        (7 * 60, ["6m", "8m"]),
        (5 * 3600, ["4h48m", "6h"]),
        (2 * 86400, ["1d", "7d"]),
        (30 * 86400, ["7d"]),
    ],
)
def test_an_interval_that_does_not_fill_a_day_has_neighbours_that_do(seconds: float, near: list[str]) -> None:
    assert calendar_times(seconds) is None
    assert nearest_intervals(seconds) == near
    assert calendar_times(7 * 86400) == ["Mon *-*-* 00:00:00"]


@pytest.mark.parametrize(
    "path", ["/a b", "/a'b", '/a"b', "/50%", "/$HOME", "/a\\", "/a;b", "/#x", "/é", "/{{ x }}", "/a\nb"]
)
def test_a_word_of_a_unit_is_one_line_and_one_word(path: str) -> None:
    written = quoted_word(path)
    assert "\n" not in written
    read = written.replace("%%", "%").replace("$$", "$").replace("\\x0a", "\n")
    assert shlex.split(read) == [path]


def test_a_timer_names_its_manifest_and_a_foreign_one_none() -> None:
    schedule = Schedule("web", '/srv/a "b" \\', "30m", None, ["--data", "/srv/c\\"])
    text = timer_text(schedule, ["*-*-* *:00/30:00"], 0.0)
    first, _, rest = text.partition("\n")
    assert not first.endswith("\\")
    assert "/srv" not in rest
    found = read_timer("web", text)
    assert found is not None
    assert (found.manifest, found.every, found.splay) == (schedule.manifest, "30m", None)
    assert found.options == ["--data", "/srv/c\\"]
    earlier = read_timer("web", '# mainstay schedule: {"manifest": "/x", "every": "1h", "splay": null}\n')
    assert earlier is not None
    assert earlier.options == []
    for other in (
        "",
        "[Timer]\n",
        "# mainstay schedule: {}\n",
        "# mainstay schedule: []\n",
        "# mainstay schedule: x\n",
    ):
        assert read_timer("web", other) is None


def test_every_option_of_apply_is_taken_or_refused_with_a_reason() -> None:
    """A new option of `apply` must be one or the other: add it to `_add_run_options` or `NOT_SCHEDULED`."""
    options = {}
    for name in ("apply", "schedule"):
        command = load_command(name)
        assert command is not None
        options[name] = {word for action in make_parser(name, command)._actions for word in action.option_strings}
    assert options["apply"] - options["schedule"] == set()
