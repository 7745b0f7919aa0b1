"""One program file for all tests of this folder, and one program cache for each interpreter: filling one takes seconds."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest

from mainstay.packaging.program_file import build_program_file
from program_files import ProgramRunner


@pytest.fixture(scope="session")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("program") / "mainstay.pyz"
    path.write_bytes(build_program_file())
    return path


@pytest.fixture(scope="session")
def runner_of(program: Path, tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], ProgramRunner]:
    """Returns the runner of an interpreter, given by its path."""

    @cache
    def make(python: str) -> ProgramRunner:
        return ProgramRunner(python, program, tmp_path_factory.mktemp("cache"))

    return make
