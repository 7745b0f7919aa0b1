"""Runs a command and measures wall and CPU seconds (including its children) and peak memory."""

from __future__ import annotations

import os
import time
from typing import NamedTuple


class Cost(NamedTuple):
    wall_seconds: float
    cpu_seconds: float
    peak_megabytes: float

    def best(self, other: Cost) -> Cost:
        """The lowest time, because noise on a shared machine only adds; the highest memory."""
        return Cost(
            min(self.wall_seconds, other.wall_seconds),
            min(self.cpu_seconds, other.cpu_seconds),
            max(self.peak_megabytes, other.peak_megabytes),
        )


class ContestantFailed(Exception):
    """A contestant failed; the message contains the end of its output."""


def measure(words: list[str], environ: dict[str, str], output: str) -> Cost:
    """Measures one run in a new process, with its output in a file. Peak memory below the benchmark's own is not visible."""
    write = os.O_WRONLY | os.O_CREAT | os.O_TRUNC
    actions = [
        (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
        (os.POSIX_SPAWN_OPEN, 1, output, write, 0o600),
        (os.POSIX_SPAWN_DUP2, 1, 2),
    ]
    started = time.perf_counter()
    pid = os.posix_spawnp(words[0], words, environ, file_actions=actions)
    _, status, used = os.wait4(pid, 0)
    wall = time.perf_counter() - started
    if status != 0:
        with open(output, encoding="utf-8", errors="replace") as file:
            raise ContestantFailed(f"{words[0]} exited with status {status}: …{file.read()[-1500:]}")
    return Cost(wall, used.ru_utime + used.ru_stime, used.ru_maxrss / 1024)
