"""The kind of a state follows from its role in the lifecycle."""

from __future__ import annotations

import pytest

from mainstay.control.domain.lifecycle.parse import parse_lifecycle
from mainstay.control.domain.lifecycle.state_kind import kind_of_state

STATES = [
    "New",
    "Stopped",
    "Starting",
    "Started",
    "Degraded",
    "Failed",
    "Quarantined",
    "Unused",
    "Deleted",
    "Aborted",
    "Paused",
]
LIFECYCLE = parse_lifecycle(
    {
        "states": [{"name": name} for name in STATES],
        "initialState": "New",
        "terminalStates": ["Deleted", "Aborted"],
        "runningStates": ["Started", "Degraded"],
        "actions": [
            {
                "name": "create",
                "transitions": [
                    {"from": "New", "to": "Stopped"},
                    {"from": "New", "to": "New", "onError": True, "onErrorRegexp": "busy"},
                    {"from": "New", "to": "Failed", "onError": True},
                ],
            },
            {
                "name": "start",
                "transitions": [
                    {"from": "Stopped", "to": "Starting"},
                    {"from": "Starting", "to": "Started"},
                    {"from": "Starting", "to": "Degraded", "onError": True, "onErrorRegexp": "slow"},
                    {"from": "Starting", "to": "Stopped", "onError": True},
                    {"from": "Stopped", "to": "New", "onError": True},
                    {"from": "Stopped", "to": "Aborted", "onError": True},
                ],
            },
            # Passes through Stopped, where other runs come to rest.
            {
                "name": "delete",
                "transitions": [{"from": "Started", "to": "Stopped"}, {"from": "Stopped", "to": "Deleted"}],
            },
            {"name": "retry", "transitions": [{"from": "Failed", "to": "Failed"}]},
            {"name": "lock", "transitions": [{"from": "Stopped", "to": "Quarantined"}]},
            {
                "name": "step",
                "autoAdvance": False,
                "transitions": [{"from": "Started", "to": "Paused"}, {"from": "Paused", "to": "Started"}],
            },
        ],
    }
)


@pytest.mark.parametrize(
    ("state", "kind", "because"),
    [
        ("Deleted", "end", "it is terminal"),
        ("Aborted", "end", "it is terminal, although only an error leads to it"),
        ("Started", "up", "it is a running state"),
        ("Degraded", "up", "it is a running state, although only an error leads to it"),
        ("Failed", "bad", "only errors lead to it; its own loop does not count"),
        ("New", "new", "it is the initial state, although an error leads back to it"),
        ("Starting", "work", "a run passes through it by itself"),
        ("Stopped", "rest", "one run passes through it, but another ends there"),
        ("Paused", "rest", "the action does not advance by itself"),
        ("Quarantined", "rest", "an action ends there"),
        ("Unused", "rest", "nothing leads to it"),
        ("Unknown", "rest", "the lifecycle does not contain it"),
    ],
)
def test_the_kind_of_a_state_follows_from_its_role(state: str, kind: str, because: str) -> None:
    assert kind_of_state(LIFECYCLE, state) == kind, because
