"""Every row of the `line` decision table, in a dry run and a run: outcomes, messages and the resulting tree."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from applying import Applied
from decision_tables import follow_row, load_tables
from loading import cases, faults_of

CASES = Path(__file__).parents[1] / "cases" / "line"


@pytest.mark.parametrize("case", load_tables([CASES / "rules.yaml"]))
def test_a_line_resource_follows_its_decision_table(
    case: dict[str, Any], apply: Callable[..., Applied], root: Path
) -> None:
    follow_row(case, apply, root)


@pytest.mark.parametrize("case", cases("line/faults"), ids=lambda case: case["case"])
def test_a_line_resource_that_cannot_work_does_not_load(case: dict[str, Any], root: Path) -> None:
    assert faults_of(case["manifest"], root) == case["faults"]
