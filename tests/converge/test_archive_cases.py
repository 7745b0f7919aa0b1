"""Every row of the `archive` decision table, in a dry run and a run: outcomes, messages and the resulting tree."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from applying import Applied
from archive_samples import make_app
from decision_tables import follow_row, load_tables
from loading import cases, faults_of

CASES = Path(__file__).parents[1] / "cases" / "archive"


@pytest.mark.parametrize("case", load_tables([CASES / "rules.yaml"]))
def test_an_archive_resource_follows_its_decision_table(
    case: dict[str, Any], apply: Callable[..., Applied], root: Path
) -> None:
    path = root.parent / "app.tgz"
    text = json.dumps(case).replace("DIGEST", make_app(path))
    shown = path.read_bytes().decode("utf-8", "backslashreplace")
    # Manifests get the root when they are applied; messages contain it.
    row = json.loads(text.replace('"ARCHIVE"', json.dumps(shown)))
    for key in ("message", "reason"):
        if key in row:
            row[key] = json.loads(json.dumps(row[key]).replace("ROOT", str(root)))
    follow_row(row, apply, root)


@pytest.mark.parametrize("case", cases("archive/faults"), ids=lambda case: case["case"])
def test_an_archive_resource_that_cannot_work_does_not_load(case: dict[str, Any], root: Path) -> None:
    assert faults_of(case["manifest"], root) == case["faults"]
