"""The benchmark of the control plane runs. Its timings are not tested."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from control_plane import find_postgresql, missing
from torture import DATABASES_OF_LONG_TESTS

pytestmark = pytest.mark.test_all

ROOT = Path(__file__).parent.parent.parent


@pytest.mark.parametrize("database", DATABASES_OF_LONG_TESTS)
def test_the_quick_benchmark_loses_no_job_and_prints_every_line(database: str) -> None:
    if database == "postgresql" and find_postgresql() is None:
        missing("PostgreSQL", "there is no initdb on this machine")
    command = [sys.executable, "-m", "benchmarks.plane", "--quick", "--database", database]
    ran = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300)
    assert ran.returncode == 0, ran.stderr
    for line in (
        "floor",
        "orders",
        "claims with completes",
        "idle agent",
        "received by its agent",
        "none lost",
        "name",
    ):
        assert line in ran.stdout
