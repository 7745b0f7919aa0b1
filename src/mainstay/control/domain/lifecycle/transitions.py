"""How a service moves: which actions are open, where a completed or failed job leads, and when a run of steps ends."""

from __future__ import annotations

from dataclasses import dataclass

from mainstay.control.domain.lifecycle.schema import Action, Lifecycle
from mainstay.control.domain.refusals import TerminalState, UnknownAction, WrongState


@dataclass(frozen=True, slots=True)
class LifecycleRun:
    """One request on its way: the action, and every state it has been in, the one it began in first."""

    action: str
    visited: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Step:
    """Where a completed job leads; `goes_on` asks for the next job of the same run."""

    to: str
    goes_on: bool


def available_actions(lifecycle: Lifecycle, state: str) -> tuple[str, ...]:
    if state in lifecycle.terminal_states:
        return ()
    return tuple(action.name for action in lifecycle.actions.values() if state in action.successes)


def find_action(lifecycle: Lifecycle, name: str) -> Action:
    action = lifecycle.actions.get(name)
    if action is None:
        raise UnknownAction(name, tuple(lifecycle.actions))
    return action


def begin(lifecycle: Lifecycle, name: str, state: str) -> LifecycleRun:
    """The run that an action starts; refused where the lifecycle does not allow it."""
    action = find_action(lifecycle, name)
    if state in lifecycle.terminal_states:
        raise TerminalState(state)
    if state not in action.successes:
        raise WrongState(name, state, tuple(action.successes))
    return LifecycleRun(name, (state,))


def after_success(lifecycle: Lifecycle, run: LifecycleRun, state: str) -> Step:
    """`state` is the one the job ran in. A lifecycle changed under the job may have no transition left: then it stays."""
    action = lifecycle.actions.get(run.action)
    to = state if action is None else action.successes.get(state, state)
    if action is None or not action.advances or to in lifecycle.terminal_states:
        return Step(to, goes_on=False)
    onward = action.successes.get(to)
    seen = to == state or to in run.visited
    return Step(to, goes_on=onward is not None and onward != to and not seen)


def after_failure(lifecycle: Lifecycle, name: str, state: str, message: str) -> str | None:
    """Where a failed job leads: the first error transition that matches; None keeps the state."""
    action = lifecycle.actions.get(name)
    for transition in () if action is None else action.errors_from(state):
        if transition.search is None or transition.search(_text(message)):
            return transition.to
    return None


def advance(run: LifecycleRun, step: Step) -> LifecycleRun:
    return LifecycleRun(run.action, (*run.visited, step.to))


def run_path(lifecycle: Lifecycle, name: str, state: str) -> tuple[str, ...]:
    """Every state of a run in which all goes well, the first one included."""
    run = begin(lifecycle, name, state)
    # A run never comes to a state twice, so it ends.
    while True:
        step = after_success(lifecycle, run, run.visited[-1])
        run = advance(run, step)
        if not step.goes_on:
            return run.visited


def is_last_step(lifecycle: Lifecycle, run: LifecycleRun, state: str) -> bool:
    return not after_success(lifecycle, run, state).goes_on


def _text(message: str) -> str:
    """An agent may send half a surrogate pair; the search wants text."""
    return message.encode(errors="replace").decode()
