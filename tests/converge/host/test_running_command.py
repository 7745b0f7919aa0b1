"""The command of a killed run is ended, also if the run was killed before it recorded the process id."""

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

# Starts a command as a run does, and is killed before or after it records the process id.
DIES = """
import os, signal, subprocess, sys
from mainstay.converge.host.running_command import RunningCommand
path, records, *words = sys.argv[1:]
with RunningCommand(path).noted(words) as started:
    child = subprocess.Popen(words, process_group=0, stdout=subprocess.DEVNULL)
    print(child.pid, flush=True)
    if records == "records":
        started(child.pid)
    os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.fixture
def started() -> Iterator[list[int]]:
    """Processes that are killed after the test."""
    pids: list[int] = []
    yield pids
    for pid in pids:
        if birth(pid):
            os.killpg(pid, signal.SIGKILL)


def die_with(path: Path, records: str, words: list[str], started: list[int]) -> int:
    done = subprocess.run([sys.executable, "-c", DIES, path, records, *words], stdout=subprocess.PIPE, text=True)
    assert done.returncode == -signal.SIGKILL
    pid = int(done.stdout)
    started.append(pid)
    # Wait for the exec: before it, the child has the command line of this process.
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


@pytest.mark.parametrize("records", ["records", "does not"])
def test_the_command_of_a_killed_run_is_ended(
    records: str, words: list[str], tmp_path: Path, started: list[int]
) -> None:
    path = tmp_path / "running"
    pid = die_with(path, records, words, started)
    RunningCommand(str(path)).end_left_over()
    assert not birth(pid)


def test_only_the_command_of_the_killed_run_is_ended(tmp_path: Path, started: list[int]) -> None:
    """Not a process with other words, a process with a living parent, or an older process."""
    words = ["sleep", f"{700 + os.getpid()}.5"]
    older = die_with(tmp_path / "older", "does not", words, started)
    time.sleep(0.05)
    left = die_with(tmp_path / "running", "does not", words, started)
    other = die_with(tmp_path / "other", "does not", ["sleep", f"{800 + os.getpid()}.5"], started)
    with subprocess.Popen(words, process_group=0) as own_child:
        started.append(own_child.pid)
        RunningCommand(str(tmp_path / "running")).end_left_over()
        assert [bool(birth(pid)) for pid in (older, left, other, own_child.pid)] == [True, False, True, True]
        own_child.kill()


@pytest.mark.parametrize(
    "text", ["", "x", "1 2 3\n", "starting 0 1 x 0 boot\n", "starting a b c d e\n", "\xff" * 400]
)
def test_an_invalid_record_ends_no_process(text: str, tmp_path: Path) -> None:
    path = tmp_path / "running"
    path.write_text(text.replace("BOOT", boot_id()))
    RunningCommand(str(path)).end_left_over()
