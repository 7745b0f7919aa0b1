"""Moves of a service: the available actions, the state after a completed or failed job, and the end of a chain of jobs."""

from __future__ import annotations

from dataclasses import dataclass

from mainstay.control.domain.lifecycle.schema import Action, Lifecycle
from mainstay.control.domain.refusals import TerminalState, UnknownAction, WrongState


@dataclass(frozen=True, slots=True)
class ActionProgress:
    """The action of one request, and the states it has passed, beginning with the first."""

    action: str
    visited: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Step:
    """The state after a completed job. `continues`: the chain needs another job."""

    to: str
    continues: bool


def available_actions(lifecycle: Lifecycle, state: str) -> tuple[str, ...]:
    if state in lifecycle.terminal_states:
        return ()
    return tuple(action.name for action in lifecycle.actions.values() if state in action.successes)


def find_action(lifecycle: Lifecycle, name: str) -> Action:
    action = lifecycle.actions.get(name)
    if action is None:
        raise UnknownAction(name, tuple(lifecycle.actions))
    return action


def begin(lifecycle: Lifecycle, name: str, state: str) -> ActionProgress:
    """Starts a chain of jobs for the action. Raises a `Refusal` if the lifecycle does not allow it."""
    action = find_action(lifecycle, name)
    if state in lifecycle.terminal_states:
        raise TerminalState(state)
    if state not in action.successes:
        raise WrongState(name, state, tuple(action.successes))
    return ActionProgress(name, (state,))


def after_success(lifecycle: Lifecycle, progress: ActionProgress, state: str) -> Step:
    """`state` is the state during the job. It stays if the lifecycle has changed and has no transition any more."""
    action = lifecycle.actions.get(progress.action)
    to = state if action is None else action.successes.get(state, state)
    if action is None or not action.advances or to in lifecycle.terminal_states:
        return Step(to, continues=False)
    following = action.successes.get(to)
    seen = to == state or to in progress.visited
    return Step(to, continues=following is not None and following != to and not seen)


def after_failure(lifecycle: Lifecycle, name: str, state: str, message: str) -> str | None:
    """The state after a failed job, by the first matching error transition. None: the state stays."""
    action = lifecycle.actions.get(name)
    for transition in () if action is None else action.errors_from(state):
        if transition.search is None or transition.search(_text(message)):
            return transition.to
    return None


def advance(progress: ActionProgress, step: Step) -> ActionProgress:
    return ActionProgress(progress.action, (*progress.visited, step.to))


def success_path(lifecycle: Lifecycle, name: str, state: str) -> tuple[str, ...]:
    """The states of a successful chain, including the first."""
    progress = begin(lifecycle, name, state)
    # Terminates, because a chain does not continue from a state that it has visited.
    while True:
        step = after_success(lifecycle, progress, progress.visited[-1])
        progress = advance(progress, step)
        if not step.continues:
            return progress.visited


def _text(message: str) -> str:
    """Replaces half surrogate pairs, which an agent may send and the search does not accept."""
    return message.encode(errors="replace").decode()
