"""The units of `mainstay schedule`: their text, and what their text says. Pure; nothing here touches the host."""

from __future__ import annotations

from collections.abc import Sequence

from mainstay.cli.systemd_units import quoted_word
from mainstay.foundation import Struct

PREFIX = "mainstay-apply-"
# The first line of a timer: how `mainstay schedule` recognises and lists it. A comment for systemd.
HEADER = "# mainstay schedule: "
HOUR, DAY = 60, 24 * 60
LONGEST_NAME = 100
NAME_CHARACTERS = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_.-")
# SuccessExitStatus: 3 means that another run of the manifest is in progress, such as one by hand.
# KillMode=process, TimeoutStopSec: as for the agent, a stop lets the current resource end in order.
SERVICE = """\
[Unit]
Description=Mainstay: scheduled apply {name}
Wants=network-online.target
After=network-online.target

[Service]
Type=oneshot
ExecStart={command}
SuccessExitStatus=3
KillMode=process
TimeoutStartSec=1d
TimeoutStopSec=15min
"""
# Persistent needs calendar times: a time missed while the host was off is made up for after the boot.
# FixedRandomDelay: every host has its own delay and keeps it, so that the interval stays what it is.
TIMER = """\
{header}
[Unit]
Description=Mainstay: schedule {name}

[Timer]
{times}
Persistent=true
RandomizedDelaySec={splay}
FixedRandomDelay=true
AccuracySec=1s
Unit={prefix}{name}.service

[Install]
WantedBy=timers.target
"""


class Schedule(Struct):
    """One schedule. `every` and `splay` are as typed; `options` are words of `mainstay apply`."""

    name: str
    manifest: str
    every: str
    splay: str | None
    options: Sequence[str] = ()

    @property
    def service(self) -> str:
        return f"{PREFIX}{self.name}.service"

    @property
    def timer(self) -> str:
        return f"{PREFIX}{self.name}.timer"


def name_problem(name: str) -> str | None:
    """Why a name cannot be part of the name of a unit, or None."""
    if not name or not NAME_CHARACTERS.issuperset(name) or name[0] in ".-":
        return "use letters, digits, '_', '.' and '-', and begin with a letter, a digit or '_'"
    return f"use at most {LONGEST_NAME} characters" if len(name) > LONGEST_NAME else None


def calendar_times(seconds: float) -> list[str] | None:
    """The times of day of an interval, as OnCalendar values; None if no whole number of runs fills a day."""
    minutes = int(seconds // 60)
    if minutes * 60 != seconds or minutes < 1:
        return None
    if minutes == 7 * DAY:
        return ["Mon *-*-* 00:00:00"]
    if DAY % minutes:
        return None
    # After this many hours the minutes of the runs repeat.
    cycle = next(hours for hours in range(1, 25) if hours * HOUR % minutes == 0)
    found = []
    for hour in range(cycle):
        first = -(hour * HOUR) % minutes
        if first >= HOUR:
            continue
        hours = "*" if cycle == 1 else f"{hour:02}" if cycle == 24 else f"{hour:02}/{cycle}"
        found.append(f"*-*-* {hours}:{first:02}{f'/{minutes}' if first + minutes < HOUR else ''}:00")
    return found


def nearest_intervals(seconds: float) -> list[str]:
    """The intervals around one that does not fill a day."""
    fitting = [minutes for minutes in range(1, DAY + 1) if DAY % minutes == 0] + [7 * DAY]
    below = [minutes for minutes in fitting if minutes * 60 < seconds][-1:]
    above = [minutes for minutes in fitting if minutes * 60 > seconds][:1]
    return [_shown_minutes(minutes) for minutes in below + above]


def _shown_minutes(minutes: int) -> str:
    days, rest = divmod(minutes, DAY)
    hours, rest = divmod(rest, HOUR)
    return "".join(f"{count}{unit}" for count, unit in ((days, "d"), (hours, "h"), (rest, "m")) if count)


def service_text(schedule: Schedule, program: Sequence[str]) -> str:
    command = " ".join(quoted_word(word) for word in (*program, "apply", schedule.manifest, *schedule.options))
    return SERVICE.format(name=schedule.name, command=command)


def timer_text(schedule: Schedule, times: Sequence[str], splay_seconds: float) -> str:
    from json import dumps

    # ASCII, and never a line break or a backslash at its end.
    header = dumps({name: value for name, value in vars(schedule).items() if name != "name"})
    return TIMER.format(
        header=f"{HEADER}{header}",
        name=schedule.name,
        times="\n".join(f"OnCalendar={time}" for time in times),
        splay=f"{splay_seconds:g}s",
        prefix=PREFIX,
    )


def read_timer(name: str, text: str) -> Schedule | None:
    """The schedule that a timer was written for; None if `mainstay schedule` did not write it."""
    from json import loads

    first = text.partition("\n")[0]
    if not first.startswith(HEADER):
        return None
    try:
        found = loads(first[len(HEADER) :])
        # Timers of earlier versions have no options.
        options = [str(word) for word in found.get("options", ())]
        return Schedule(name, str(found["manifest"]), str(found["every"]), found["splay"], options)
    except (ValueError, KeyError, TypeError, AttributeError):
        return None
