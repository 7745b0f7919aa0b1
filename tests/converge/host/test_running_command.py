"""A command that a killed run left behind is ended, also when the run died before it knew the command's number."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from mainstay.converge.host.running_command import RunningCommand, birth, boot_id

# Starts a command as a run does, and dies: before it has told the number, or after.
DIES = """
import os, signal, subprocess, sys
from mainstay.converge.host.running_command import RunningCommand
path, tells, *words = sys.argv[1:]
with RunningCommand(path).noted(words) as started:
    child = subprocess.Popen(words, process_group=0, stdout=subprocess.DEVNULL)
    print(child.pid, flush=True)
    if tells == "tells":
        started(child.pid)
    os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.fixture
def started() -> Iterator[list[int]]:
    """Processes that are gone after the test, whatever became of them in it."""
    pids: list[int] = []
    yield pids
    for pid in pids:
        if birth(pid):
            os.killpg(pid, signal.SIGKILL)


def die_with(path: Path, tells: str, words: list[str], started: list[int]) -> int:
    done = subprocess.run([sys.executable, "-c", DIES, path, tells, *words], stdout=subprocess.PIPE, text=True)
    assert done.returncode == -signal.SIGKILL
    pid = int(done.stdout)
    started.append(pid)
    # From here on it has the words of its program, not ours.
    while b"sleep" not in Path(f"/proc/{pid}/cmdline").read_bytes():
        time.sleep(0.01)
    return pid


@pytest.fixture(params=["program", "script"])
def words(request: pytest.FixtureRequest, tmp_path: Path) -> list[str]:
    if request.param == "program":
        return ["sleep", f"{600 + os.getpid()}.5"]
    script = tmp_path / "sleeper"
    script.write_text('#!/bin/sh\nsleep "$1"\n')
    script.chmod(0o755)
    return [str(script), "600"]


@pytest.mark.parametrize("tells", ["tells", "does not"])
def test_what_a_killed_run_left_is_ended(tells: str, words: list[str], tmp_path: Path, started: list[int]) -> None:
    path = tmp_path / "running"
    pid = die_with(path, tells, words, started)
    RunningCommand(str(path)).end_left_over()
    assert not birth(pid)


def test_only_what_it_left_is_ended(tmp_path: Path, started: list[int]) -> None:
    """Neither what has other words, nor what has the same and a parent that lives, nor what is older."""
    words = ["sleep", f"{700 + os.getpid()}.5"]
    older = die_with(tmp_path / "older", "does not", words, started)
    time.sleep(0.05)
    left = die_with(tmp_path / "running", "does not", words, started)
    other = die_with(tmp_path / "other", "does not", ["sleep", f"{800 + os.getpid()}.5"], started)
    with subprocess.Popen(words, process_group=0) as of_ours:
        started.append(of_ours.pid)
        RunningCommand(str(tmp_path / "running")).end_left_over()
        assert [bool(birth(pid)) for pid in (older, left, other, of_ours.pid)] == [True, False, True, True]
        of_ours.kill()


@pytest.mark.parametrize(
    "text", ["", "x", "1 2 3\n", "starting 0 1 x 0 boot\n", "starting a b c d e\n", "\xff" * 400]
)
def test_rubbish_in_its_file_ends_nobody(text: str, tmp_path: Path) -> None:
    path = tmp_path / "running"
    path.write_text(text.replace("BOOT", boot_id()))
    RunningCommand(str(path)).end_left_over()
