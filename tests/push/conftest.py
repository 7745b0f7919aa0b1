"""Four hosts with a real sshd, shared by all tests of a session."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from fork_server import PROGRAM
from push_hosts import Fleet, booted_fleet
from torture import IS_TORTURE

HOSTS = 20 if IS_TORTURE else 4


@pytest.fixture(scope="session")
def fleet() -> Iterator[Fleet]:
    with booted_fleet([f"web{number}" for number in range(1, HOSTS + 1)]) as hosts:
        yield hosts


@pytest.fixture
def push(fleet: Fleet, tmp_path: Path) -> Callable[..., subprocess.CompletedProcess[str]]:
    """Pushes as an operator would, in the directory of the test."""

    def run(*words: str | Path, stdin: str = "", **options: Any) -> subprocess.CompletedProcess[str]:
        done = subprocess.run(
            [str(PROGRAM), "push", *map(str, words)],
            input=stdin,
            capture_output=True,
            text=True,
            timeout=240,
            cwd=tmp_path,
            env=fleet.environment(tmp_path / "state"),
            **options,
        )
        assert "Traceback" not in done.stderr, done.stderr
        return done

    return run
