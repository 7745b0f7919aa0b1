"""Every row of the `file` decision tables, in a dry run and a run: outcomes, messages and the resulting tree."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from applying import Applied
from decision_tables import follow_row, load_tables

CASES = Path(__file__).parents[1] / "cases" / "file"


@pytest.mark.parametrize("case", load_tables(sorted(CASES.glob("*.yaml"))))
def test_a_file_resource_follows_its_decision_table(
    case: dict[str, Any], apply: Callable[..., Applied], root: Path
) -> None:
    follow_row(case, apply, root)
