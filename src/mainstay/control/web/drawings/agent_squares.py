"""Agents, each as a square: idle, at work, offline, or not in use."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

from markupsafe import Markup

from mainstay.control.domain.lifecycle.path_data import number
from mainstay.control.web.drawings.elements import PICTURE_WIDTH, join, picture, rectangle, tooltip

AgentActivity = Literal["idle", "at work", "offline", "not in use"]

MAX_SQUARES = 400
# Up to this many agents the squares are large.
FEW = 110
MARK_SIZE = 10.0
LARGE_COLUMNS, SMALL_COLUMNS = 22, 32
ORDER: tuple[AgentActivity, ...] = ("idle", "at work", "offline", "not in use")


@dataclass(frozen=True, slots=True)
class AgentSquare:
    name: str
    activity: AgentActivity


def count_activities(agents: Iterable[AgentSquare]) -> tuple[tuple[AgentActivity, int], ...]:
    """The legend: every activity that occurs, with its count."""
    found = [agent.activity for agent in agents]
    return tuple((activity, found.count(activity)) for activity in ORDER if activity in found)


def draw_agent_squares(agents: Sequence[AgentSquare]) -> Markup:
    """In the given order. Of more than `MAX_SQUARES` agents, offline ones are always among those drawn."""
    shown = _bounded(agents)
    columns = LARGE_COLUMNS if len(shown) <= FEW else SMALL_COLUMNS
    pitch = PICTURE_WIDTH / columns
    size = round(pitch * 0.76, 1)
    body = join(
        _square(
            agent.activity,
            ((index % columns) * pitch, (index // columns) * pitch, size, size),
            f"{agent.name}: {agent.activity}",
        )
        for index, agent in enumerate(shown)
    )
    rows = max(1, -(-len(shown) // columns))
    return picture((0, 0, PICTURE_WIDTH, rows * pitch), _label(agents, len(shown)), body, kind="pic bad-ink")


def draw_activity_mark(activity: AgentActivity) -> Markup:
    """The same shape, for the legend."""
    mark = _square(activity, (0, 0, MARK_SIZE, MARK_SIZE), "")
    return Markup('<svg viewBox="0 0 {0} {0}" aria-hidden="true">{1}</svg>').format(number(MARK_SIZE), mark)


def _bounded(agents: Sequence[AgentSquare]) -> list[AgentSquare]:
    if len(agents) <= MAX_SQUARES:
        return list(agents)
    by_need = sorted(range(len(agents)), key=lambda index: agents[index].activity != "offline")
    return [agents[index] for index in sorted(by_need[:MAX_SQUARES])]


def _label(agents: Sequence[AgentSquare], shown: int) -> str:
    if not agents:
        return "No agents"
    counts = ", ".join(f"{count:,} {activity}" for activity, count in count_activities(agents))
    more = f"; {len(agents) - shown:,} more are not drawn" if len(agents) > shown else ""
    return f"{len(agents):,} agents: {counts}{more}" if len(agents) != 1 else f"1 agent: {counts}"


def _square(activity: AgentActivity, place: tuple[float, float, float, float], title: str) -> Markup:
    x, y, size, _ = place
    if activity == "idle":
        return rectangle("f-up", place, size * 0.22, opacity=".8", title=title)
    if activity == "at work":
        return rectangle("f-work", place, size / 2, title=title)
    if activity == "not in use":
        return rectangle("f-none", place, size * 0.22, title=title)
    arm = size - 2
    cross = (
        f"M{number(x + 1)} {number(y + 1)}l{number(arm)} {number(arm)}m0-{number(arm)}l-{number(arm)} {number(arm)}"
    )
    return Markup('<path d="{}" fill="none" stroke="currentColor" stroke-width="2">{}</path>').format(
        cross, tooltip(title)
    )
