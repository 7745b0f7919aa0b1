"""Decides which services leave an orphan, and what a report about its clean-up means. Pure.

An orphan is what a service may have left on a host that its agent did not clean up. Until the agent confirms the
clean-up, or an admin forgets the orphan, its pool values, its instance id and its secrets stay allocated."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

# `moved`: on the agent that the service left. `move_failed`: on the target that a move did not reach.
OrphanReason = Literal["forced_delete", "moved", "move_failed"]
MAX_ERROR = 8000


@dataclass(frozen=True, slots=True)
class EndClean:
    """No agent ever claimed a job of the service: nothing of it reached a host."""


@dataclass(frozen=True, slots=True)
class LeaveOrphan:
    reason: OrphanReason


@dataclass(frozen=True, slots=True)
class FailedCleanUp:
    """The orphan stays open; the agent tries again."""

    attempts: int
    last_error: str


def on_forced_delete(*, was_claimed: bool) -> EndClean | LeaveOrphan:
    """A claim is enough: the agent may have changed the host before it reported anything."""
    return LeaveOrphan("forced_delete") if was_claimed else EndClean()


def on_failed_move(*, was_claimed: bool) -> EndClean | LeaveOrphan:
    """What the move may have left on its target."""
    return LeaveOrphan("move_failed") if was_claimed else EndClean()


def on_failed_clean_up(attempts: int, message: str) -> FailedCleanUp:
    return FailedCleanUp(attempts + 1, message[:MAX_ERROR])
