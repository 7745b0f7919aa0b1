"""Services by state as one bar."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from markupsafe import Markup

from mainstay.control.domain.lifecycle.state_kind import StateKind
from mainstay.control.web.drawings.elements import PICTURE_WIDTH, join, picture, rectangle

HEIGHT, GAP = 10.0, 2.0
# A state with one service of ten thousand is visible.
LEAST_WIDTH = 5.0
MAX_SHARES = 8
OTHER_STATES = "Other states"
ORDER: tuple[StateKind, ...] = ("up", "rest", "work", "bad", "new", "end")
FILLS: dict[StateKind, str] = {
    "up": "f-up",
    "rest": "f-rest",
    "work": "f-work",
    "bad": "f-bad",
    "new": "f-none",
    "end": "f-none",
}


@dataclass(frozen=True, slots=True)
class StateShare:
    state: str
    kind: StateKind
    count: int


def legend_of(shares: Iterable[StateShare]) -> tuple[StateShare, ...]:
    """The shares in the order of the bar: by kind, the largest first. The smallest of too many become one."""
    counted = [share for share in shares if share.count > 0]
    largest = sorted(counted, key=lambda share: (-share.count, share.state))
    # A failure is never among the other states: it is what the bar is read for.
    largest.sort(key=lambda share: share.kind != "bad")
    shown, rest = (
        (largest, []) if len(largest) <= MAX_SHARES else (largest[: MAX_SHARES - 1], largest[MAX_SHARES - 1 :])
    )
    ordered = sorted(shown, key=lambda share: (ORDER.index(share.kind), -share.count, share.state))
    others = sum(share.count for share in rest)
    return (*ordered, StateShare(OTHER_STATES, "rest", others)) if rest else tuple(ordered)


def draw_state_bar(shares: Iterable[StateShare]) -> Markup:
    given = tuple(shares)
    shown = legend_of(given)
    total = sum(share.count for share in shown)
    view_box = (0.0, 0.0, PICTURE_WIDTH, HEIGHT)
    if not total:
        empty = rectangle("f-none", (0.0, 0.0, PICTURE_WIDTH, HEIGHT), 2)
        return picture(view_box, "No services", empty)
    running = sum(share.count for share in given if share.kind == "up" and share.count > 0)
    widths = _widths([share.count for share in shown], PICTURE_WIDTH - GAP * (len(shown) - 1))
    parts, x = [], 0.0
    for share, width in zip(shown, widths, strict=True):
        title = f"{share.state}: {share.count:,}"
        parts.append(rectangle(FILLS[share.kind], (x, 0.0, width, HEIGHT), 2, title=title))
        x += width + GAP
    return picture(view_box, f"{running:,} of {total:,} services are in a running state", join(parts))


def _widths(counts: list[int], available: float) -> list[float]:
    """In proportion to the counts, each at least `LEAST_WIDTH`, in sum exactly `available`."""
    spare = available - LEAST_WIDTH * len(counts)
    total = sum(counts)
    wanted = [max(0.0, available * count / total - LEAST_WIDTH) for count in counts]
    scale = spare / sum(wanted) if any(wanted) else 0.0
    return [LEAST_WIDTH + width * scale for width in wanted]
