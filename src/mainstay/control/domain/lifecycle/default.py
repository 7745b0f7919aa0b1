"""The lifecycle of a service type that brings none: new, stopped, started, deleted."""

from __future__ import annotations

from mainstay.control.domain.lifecycle.schema import Action, Lifecycle, Transition


def _action(name: str, *steps: tuple[str, str], takes_properties: bool = False) -> Action:
    return Action(name, tuple(Transition(origin, to) for origin, to in steps), takes_properties=takes_properties)


_ACTIONS = (
    _action("create", ("New", "Stopped"), takes_properties=True),
    _action("start", ("Stopped", "Started")),
    _action("stop", ("Started", "Stopped")),
    _action("update", ("Stopped", "Stopped"), ("Started", "Started"), takes_properties=True),
    # From New too: an order whose creation failed must not stay for ever.
    _action("delete", ("New", "Deleted"), ("Stopped", "Deleted"), ("Started", "Deleted")),
)

DEFAULT_LIFECYCLE = Lifecycle(
    None,
    ("New", "Stopped", "Started", "Deleted"),
    {action.name: action for action in _ACTIONS},
    initial_state="New",
    terminal_states=frozenset({"Deleted"}),
    running_states=frozenset({"Started"}),
)
