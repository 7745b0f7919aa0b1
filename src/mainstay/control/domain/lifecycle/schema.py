"""A lifecycle as a value: states, and actions with their transitions. `parse.py` reads it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

from mainstay.control.domain.patterns import Search

DEFAULT_TIMEOUT_SECONDS = 300
DEFAULT_MAX_ATTEMPTS = 3


@dataclass(frozen=True, slots=True, eq=False)
class Transition:
    """`pattern` None: an error transition matches every message; a success transition has no pattern."""

    origin: str
    to: str
    on_error: bool = False
    pattern: str | None = None
    search: Search | None = None


@dataclass(frozen=True, eq=False)
class Action:
    name: str
    transitions: tuple[Transition, ...]
    takes_properties: bool = False
    # None: not declared; then a run continues automatically.
    auto_advance: bool | None = None
    timeout_seconds: int = DEFAULT_TIMEOUT_SECONDS
    # None: no limit.
    pending_timeout_seconds: int | None = None
    max_attempts: int = DEFAULT_MAX_ATTEMPTS

    @cached_property
    def successes(self) -> dict[str, str]:
        """State → next state after a completed job."""
        return {each.origin: each.to for each in self.transitions if not each.on_error}

    def errors_from(self, state: str) -> tuple[Transition, ...]:
        return tuple(each for each in self.transitions if each.on_error and each.origin == state)

    @property
    def advances(self) -> bool:
        return self.auto_advance is not False


@dataclass(frozen=True, eq=False)
class Lifecycle:
    # The document as it was given. None: the built-in lifecycle.
    source: object
    states: tuple[str, ...]
    actions: dict[str, Action]
    initial_state: str
    terminal_states: frozenset[str]
    running_states: frozenset[str]

    def transitions(self) -> Iterator[tuple[Action, Transition]]:
        for action in self.actions.values():
            for transition in action.transitions:
                yield action, transition
