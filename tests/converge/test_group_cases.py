"""The group type without a host: what it decides, and what it refuses at load."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from account_cases import check_decision, check_fault, entry_of
from loading import CASES, cases, faults_of
from mainstay.converge.resources.group import TYPE, GroupState

FAULTS: dict[str, list[Any]] = yaml.safe_load((CASES / "group" / "faults.yaml").read_text())


@pytest.mark.parametrize("case", cases("group/decisions"), ids=lambda case: case["case"])
def test_the_type_decides(case: dict[str, Any]) -> None:
    check_decision(case, TYPE, GroupState)


@pytest.mark.parametrize("name", FAULTS["accepted"])
def test_a_name_is_accepted(name: str, root: Path) -> None:
    assert faults_of(entry_of("group", name, {}), root) == []


@pytest.mark.parametrize("name", [*FAULTS["refused"], "a" * 33], ids=lambda name: ascii(name)[:30])
def test_a_dangerous_name_is_refused_at_load(name: str, root: Path) -> None:
    (fault,) = faults_of(entry_of("group", name, {}), root)
    assert ": group name " in fault


@pytest.mark.parametrize("name", [name for name in FAULTS["refused"] if "\0" not in name], ids=ascii)
def test_a_dangerous_name_is_refused_after_rendering(name: str, root: Path) -> None:
    document = {"data": {"name": name}, "resources": [{"group": [{"{{ data.name }}": {}}]}]}
    (fault,) = faults_of(json.dumps(document), root)
    assert ": group name contains dangerous characters" in fault


@pytest.mark.parametrize("case", FAULTS["faults"], ids=lambda case: str(case["properties"]))
def test_a_wrong_property_is_refused_at_load(case: dict[str, Any], root: Path) -> None:
    check_fault("group", case, root)
