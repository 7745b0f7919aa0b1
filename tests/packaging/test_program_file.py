"""The program file runs with nothing but Python, unpacks itself once, and starts from its cache from then on."""

from __future__ import annotations

import os
import re
import resource
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from zipfile import ZipFile

import pytest

from applying import GROUP, USER
from interpreters import need_python
from mainstay.packaging.program_file import build_program_file, program_digest
from program_files import ProgramRunner
from torture import IS_TORTURE

VERSIONS = ["3.9", "3.10", "3.11", "3.12", "3.13"] if IS_TORTURE else ["3.9", "3.13"]


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("program") / "mainstay.pyz"
    path.write_bytes(build_program_file())
    return path


def test_the_same_sources_give_the_same_bytes(program: Path) -> None:
    assert build_program_file() == program.read_bytes()


@pytest.mark.parametrize("version", VERSIONS)
def test_it_runs_with_nothing_but_python(version: str, program: Path, root: Path, tmp_path: Path) -> None:
    manifest = root / "manifest.yaml"
    manifest.write_text(
        f"- file:\n    - {root}/x:\n        ensure: present\n        content: \"{{{{ 'a' | upper }}}}\"\n"
        f"        owner: {USER}\n        group: {GROUP}\n        mode: '0644'\n"
    )
    (tmp_path / "cache").mkdir()
    run = ProgramRunner(need_python(version), program, tmp_path / "cache")
    first = run("apply", manifest)
    assert (first.returncode, first.stderr) == (0, "")
    assert "1 changed" in first.stdout
    assert (root / "x").read_text() == "A"
    assert os.listdir(run.cache) == [program_digest(program.read_bytes())]
    assert "1 stable" in run("apply", manifest).stdout
    refused = run("services")
    assert (refused.returncode, refused.stdout) == (2, "")
    assert "in this program file, which contains the commands of hosts" in refused.stderr
    # Its name resembles that of a command in the file.
    assert "no command 'order' in this program file" in run("order", "x", "y").stderr
    assert "(did you mean 'services'?)" in run("servces").stderr
    assert "more than this program file contains" in run("schema", "blueprint").stderr


def test_an_old_python_gives_one_clear_line(program: Path) -> None:
    pretend = "import runpy, sys; sys.version_info = (3, 8, 18); runpy.run_path(sys.argv[1], run_name='__main__')"
    done = subprocess.run([sys.executable, "-c", pretend, program], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == f"mainstay: Python 3.9 or newer is needed, and {sys.executable} is Python 3.8\n"
    main = ZipFile(program).read("__main__.py").decode()
    assert not re.search(r"\bf[\"']|: \w+ =|->", main), "an old Python could not compile it"


def test_from_its_cache_it_starts_within_one_and_a_half_times_the_installed_program(
    program: Path, tmp_path: Path, mainstay: Callable[..., subprocess.CompletedProcess[str]]
) -> None:
    (tmp_path / "cache").mkdir()
    run = ProgramRunner(sys.executable, program, tmp_path / "cache")
    installed, from_file, launcher = [], [], []
    # The least of several runs. On a loaded machine it takes more of them until one is undisturbed.
    for number in range(60):
        installed.append(seconds_of(lambda: mainstay("facts")))
        from_file.append(seconds_of(lambda: run("facts")))
        launcher.append(seconds_of(lambda: run.launch("true")))
        ratio = (min(from_file) - min(launcher)) / min(installed)
        if number >= 10 and ratio < 1.5:
            break
    assert ratio < 1.5


def seconds_of(act: Callable[[], subprocess.CompletedProcess[str]]) -> float:
    """The processor time of child processes, which other load on the machine changes least."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    assert act().returncode == 0
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime
