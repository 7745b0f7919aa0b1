"""Runs the cases of account types: what they decide about a state, and what they refuse at load."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from loading import faults_of
from mainstay.converge.contract import ResourceType, State
from mainstay.converge.failures import Failure


def check_decision(case: dict[str, Any], resource_type: ResourceType, state: type[State]) -> None:
    """`change` or `changes`: the verbs; `refusal`: the text of the failure; neither: nothing to do."""
    given = {"type": resource_type.name, "name": "app", "id": f"{resource_type.name}#app", "place": ()}
    wanted = resource_type.resource({**given, **_tuples(case["wanted"])})
    actual = state("app", "shadow")  # type: ignore[call-arg]  # states of accounts take a name and a provider
    for key, value in _tuples(case.get("actual", {})).items():
        assert hasattr(actual, key), key
        setattr(actual, key, value)
    if "refusal" in case:
        with pytest.raises(Failure) as refusal:
            resource_type.decide(wanted, actual, refresh=False)
        assert str(refusal.value) == case["refusal"]
        return
    changes = resource_type.decide(wanted, actual, refresh=False)
    verbs = case.get("changes", [case["change"]] if "change" in case else [])
    assert [change.verb for change in changes] == verbs
    assert resource_type.desired(wanted, actual)[0] is not bool(changes)
    if "reason" in case:
        assert changes[0].reason == case["reason"]
    if "message" in case:
        assert resource_type.describe(wanted, actual, changes) == case["message"]


def _tuples(values: dict[str, Any]) -> dict[str, Any]:
    return {key: tuple(value) if isinstance(value, list) else value for key, value in values.items()}


def entry_of(type_name: str, name: str, properties: dict[str, Any]) -> str:
    return json.dumps([{type_name: [{name: properties}]}])


def check_fault(type_name: str, case: dict[str, Any], root: Path) -> None:
    found = faults_of(entry_of(type_name, "app", case["properties"]), root)
    assert len(found) == 1, found
    assert f"{type_name}#app: {case['fault']}" in found[0]
