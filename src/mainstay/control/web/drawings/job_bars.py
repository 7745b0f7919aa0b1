"""Jobs over time: done and failed in each slot."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from markupsafe import Markup

from mainstay.control.web.drawings.elements import PICTURE_WIDTH, join, picture, rectangle

HEIGHT, GAP = 40.0, 2.0
# A single job is visible beside thousands.
LEAST_HEIGHT = 3.0
MAX_SLOTS = 96


@dataclass(frozen=True, slots=True)
class JobSlot:
    """`title` names the time of the slot."""

    title: str
    done: int
    failed: int


def draw_job_bars(slots: Sequence[JobSlot], period: str) -> Markup:
    """The newest `MAX_SLOTS` slots, oldest first. `period` completes the label, such as `in the last 4 hours`."""
    shown = slots[-MAX_SLOTS:]
    pitch = PICTURE_WIDTH / max(1, len(shown))
    highest = max((slot.done + slot.failed for slot in shown), default=0)
    body = join(
        bar for index, slot in enumerate(shown) for bar in _bars(slot, index * pitch, max(1.0, pitch - GAP), highest)
    )
    done, failed = sum(slot.done for slot in shown), sum(slot.failed for slot in shown)
    noun = "job" if done == 1 else "jobs"
    return picture((0, 0, PICTURE_WIDTH, HEIGHT), f"{done:,} {noun} done and {failed:,} failed {period}", body)


def _bars(slot: JobSlot, x: float, width: float, highest: int) -> list[Markup]:
    if not slot.done and not slot.failed:
        # A slot without jobs keeps its place on the axis.
        return [rectangle("f-none", (x, HEIGHT - 1, width, 1), 0)]
    title = f"{slot.title}: {slot.done:,} done, {slot.failed:,} failed"
    gap = GAP if slot.done and slot.failed else 0.0
    failed = _height(slot.failed, highest)
    done = min(_height(slot.done, highest), HEIGHT - failed - gap)
    bars = []
    if slot.done:
        bars.append(rectangle("f-rest", (x, HEIGHT - done, width, done), 1, opacity=".55", title=title))
    if slot.failed:
        bars.append(rectangle("f-bad", (x, HEIGHT - done - gap - failed, width, failed), 1, title=title))
    return bars


def _height(count: int, highest: int) -> float:
    return max(LEAST_HEIGHT, (HEIGHT - GAP) * count / highest) if count else 0.0
