"""The uptime of a service, one bar for each day."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date

from markupsafe import Markup

from mainstay.control.web.drawings.elements import PICTURE_WIDTH, join, picture, rectangle

HEIGHT = 28.0
MAX_DAYS = 90
LEAST_HEIGHT = 8.0
# The label names this many days that were not fully up.
MAX_NAMED_DAYS = 5


@dataclass(frozen=True, slots=True)
class UptimeDay:
    day: date
    # From 0 to 1. None: the service did not exist.
    share: float | None
    # Whether the service was in a failure state on this day.
    failed: bool = False


def draw_uptime_bar(days: Sequence[UptimeDay], share: float) -> Markup:
    """The last `MAX_DAYS` days, oldest first. `share` is the uptime of the whole period, from 0 to 1."""
    shown = days[-MAX_DAYS:]
    pitch = PICTURE_WIDTH / max(1, len(shown))
    width = pitch * 0.7
    body = join(part for index, day in enumerate(shown) for part in _bar(day, index * pitch, width))
    return picture((0, 0, PICTURE_WIDTH, HEIGHT), _label(shown, share), body)


def _bar(day: UptimeDay, x: float, width: float) -> list[Markup]:
    full = (x, 0.0, width, HEIGHT)
    name = f"{day.day.day} {day.day:%b}"
    if day.share is None:
        return [rectangle("f-none", full, 1, title=f"{name}: no service")]
    title = f"{name}: {percent(day.share)} % up{', failed' if day.failed else ''}"
    if day.share >= 1.0:
        return [rectangle("f-up", full, 1, opacity=".75", title=title)]
    down = max(LEAST_HEIGHT, HEIGHT * (1 - max(0.0, day.share)))
    bars = [rectangle("f-bad" if day.failed else "f-rest", (x, HEIGHT - down, width, down), 1, title=title)]
    if down < HEIGHT:
        bars.insert(0, rectangle("f-up", (x, 0.0, width, HEIGHT - down), 1, opacity=".3", title=title))
    return bars


def percent(share: float) -> str:
    """Two decimals, and never 100 for less than all: a second of downtime in a year is visible."""
    rounded = f"{share * 100:.2f}"
    if rounded == "100.00":
        return "100" if share >= 1 else "99.99"
    return rounded


def _label(days: Sequence[UptimeDay], share: float) -> str:
    down = [day for day in days if day.share is not None and day.share < 1]
    text = f"Uptime over {len(days)} days: {percent(share)} percent."
    if not down:
        return text
    named = [f"{day.day.day} {day.day:%B} ({percent(day.share or 0.0)} percent)" for day in down[-MAX_NAMED_DAYS:]]
    more = f" and {len(down) - len(named)} earlier days" if len(down) > len(named) else ""
    return f"{text} Not fully up on {', '.join(named)}{more}."
