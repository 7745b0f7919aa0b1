"""How pages show times, durations, numbers and states. Pure."""

from __future__ import annotations

from datetime import datetime, timedelta

JOB_STATES = {
    "Pending": ("queued", "Queued"),
    "Processing": ("work", "Running"),
    "Completed": ("done", "Done"),
    "Failed": ("bad", "Failed"),
    "Cancelled": ("rest", "Cancelled"),
}
AGENT_STATES = {
    "Connected": ("up", "Connected"),
    "Disconnected": ("bad", "Offline"),
    "Error": ("bad", "Error"),
    "New": ("new", "New"),
    "Disabled": ("rest", "Disabled"),
}
# The last known status of `InSync`, before its time.
LAST_SYNC = {"True": "in sync", "False": "drifted", "Unknown": "unknown"}
# The shape of each kind of state: a symbol of templates/parts/icons.html.
SHAPES = {
    "up": "s-up",
    "rest": "s-rest",
    "new": "s-new",
    "end": "s-end",
    "work": "s-work",
    "queued": "s-queued",
    "done": "s-done",
    "bad": "s-failed",
    "warn": "s-warn",
}
OWN_SHAPES = {
    "Cancelled": "s-cancelled",
    "Offline": "s-offline",
    "Drifted": "s-drift",
    "Disabled": "s-off",
    "Unknown": "s-unknown",
}


def shape_of(kind: str, word: str) -> str:
    return OWN_SHAPES.get(word, SHAPES[kind])


def relative_time(time: datetime, now: datetime) -> str:
    """`4 min ago` up to a day, then the date."""
    seconds = (now - time).total_seconds()
    if seconds < -60:
        return absolute_time(time) if seconds < -86400 else f"in {duration(-seconds)}"
    if seconds < 60:
        return "just now" if seconds < 10 else f"{int(seconds)} s ago"
    if seconds < 3600:
        return f"{int(seconds // 60)} min ago"
    if seconds < 86400:
        return f"{int(seconds // 3600)} h ago"
    return f"{time.day} {time:%b}" if time.year == now.year else f"{time.day} {time:%b %Y}"


def moment(time: datetime, now: datetime) -> str:
    """The time of the day, for another day with its date."""
    return f"{time:%H:%M:%S}" if time.date() == now.date() else f"{time.day} {time:%b %H:%M}"


def absolute_time(time: datetime) -> str:
    return f"{time:%Y-%m-%d %H:%M:%S} UTC"


def duration(seconds: float) -> str:
    """The duration of something that ended: `0.3 s`, `4.1 s`, `2:05 min`, `3 h 12 min`, `2 d 3 h`."""
    if seconds < 10:
        return f"{seconds:.1f} s"
    if seconds < 60:
        return f"{seconds:.0f} s"
    whole = timedelta(seconds=int(seconds))
    minutes, rest = divmod(whole.seconds, 60)
    if whole < timedelta(hours=1):
        return f"{minutes}:{rest:02} min"
    if whole < timedelta(days=1):
        return f"{minutes // 60} h {minutes % 60} min"
    return f"{whole.days} d {minutes // 60} h"


def running_time(seconds: float) -> str:
    """The time since something started that still runs: `0:42`, `2:14:07`."""
    whole = max(0, int(seconds))
    hours, minutes, rest = whole // 3600, whole // 60 % 60, whole % 60
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


def thousands(number: float) -> str:
    return f"{number:,}"


def plural(count: int, noun: str, several: str = "") -> str:
    return f"{count:,} {noun if count == 1 else several or noun + 's'}"
