"""The user type without a host: what it decides, what it refuses at load, and the password field that it wants."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from account_cases import check_decision, check_fault, entry_of
from loading import CASES, cases, faults_of
from mainstay.converge.resources.user import TYPE, UserState, password_field

FAULTS: dict[str, list[Any]] = yaml.safe_load((CASES / "user" / "faults.yaml").read_text())
NAMES: dict[str, list[str]] = yaml.safe_load((CASES / "group" / "faults.yaml").read_text())


@pytest.mark.parametrize("case", cases("user/decisions"), ids=lambda case: case["case"])
def test_the_type_decides(case: dict[str, Any]) -> None:
    check_decision(case, TYPE, UserState)


@pytest.mark.parametrize("name", [*NAMES["refused"], "a" * 33], ids=lambda name: ascii(name)[:30])
def test_a_dangerous_name_is_refused_at_load(name: str, root: Path) -> None:
    (fault,) = faults_of(entry_of("user", name, {}), root)
    assert ": user name " in fault


@pytest.mark.parametrize("properties", FAULTS["accepted"], ids=str)
def test_a_property_is_accepted(properties: dict[str, Any], root: Path) -> None:
    assert faults_of(entry_of("user", "app", properties), root) == []


@pytest.mark.parametrize("case", FAULTS["faults"], ids=lambda case: ascii(case["properties"]))
def test_a_wrong_property_is_refused_at_load(case: dict[str, Any], root: Path) -> None:
    check_fault("user", case, root)


@pytest.mark.parametrize(
    "case",
    [case for case in FAULTS["faults"] if set(case["properties"]) <= {"group", "home", "shell", "comment", "uid"}],
    ids=lambda case: ascii(case["properties"]),
)
def test_a_rendered_property_is_checked_again(case: dict[str, Any], root: Path) -> None:
    ((key, value),) = case["properties"].items()
    document = {"data": {"x": value}, "resources": [{"user": [{"app": {key: "{{ data.x }}"}}]}]}
    (fault,) = faults_of(json.dumps(document), root)
    assert f"user#app: {case['fault']}" in fault


@pytest.mark.parametrize(
    ("wanted", "found", "locked", "field"),
    [
        ({}, None, None, "!"),
        ({"password_hash": "new"}, None, None, "new"),
        ({"password_hash": "new", "locked": True}, None, None, "!new"),
        ({"password_hash": "new"}, "old", False, "new"),
        ({"password_hash": "new"}, "old", True, "!new"),
        ({"password_hash": "new"}, "", True, "new"),
        ({"password_hash": "new"}, "*", True, "new"),
        ({"password_hash": "new", "locked": False}, "old", True, "new"),
        ({"locked": True}, "old", False, "!old"),
        ({"locked": False}, "", True, "!"),
    ],
)
def test_the_password_field_follows_hash_and_lock(
    wanted: dict[str, Any], found: str | None, locked: bool | None, field: str
) -> None:
    actual = UserState("app", "shadow")
    actual.password_hash, actual.locked = found, locked
    assert password_field(TYPE.resource(wanted), actual) == field
