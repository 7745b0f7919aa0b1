"""The installed command as a process: how it ends."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

PROGRAM = "import sys; sys.argv[0] = 'mainstay'; from mainstay.cli.main import program; {}; program()"


def run_program(*arguments: str, before: str = "pass") -> subprocess.CompletedProcess[str]:
    words = [sys.executable, "-c", PROGRAM.format(before), *arguments]
    return subprocess.run(words, capture_output=True, text=True, timeout=60)


def test_everything_said_is_out_before_the_process_ends() -> None:
    done = run_program("--version")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("mainstay ")


def test_the_exit_code_is_the_commands_own(tmp_path: Path) -> None:
    done = run_program("validate", str(tmp_path / "missing.yaml"))
    assert done.returncode == 2
    assert "cannot be read" in done.stderr


def test_what_waits_for_the_end_is_called() -> None:
    done = run_program("--version", before="import atexit; atexit.register(print, 'called')")
    assert done.stdout.endswith("called\n")


def test_threads_finish_what_they_do() -> None:
    late = "import threading, time; threading.Thread(target=lambda: (time.sleep(0.2), print('late'))).start()"
    assert run_program("--version", before=late).stdout.endswith("late\n")
