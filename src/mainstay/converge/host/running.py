"""The command that a run has started. A run that is killed leaves it behind; the next one ends it before it begins."""

from __future__ import annotations

import os
import signal
import time
from contextlib import contextmanager

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

GRACE_SECONDS = 5.0


class RunningCommand:
    """One small file that names the process while it runs; it is not made durable, since a reboot ends processes too."""

    def __init__(self, path: str) -> None:
        self._path = path

    @contextmanager
    def noted(self, pid: int) -> Iterator[None]:
        try:
            descriptor = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        except OSError:
            # A full disk is no reason not to run what may make room on it.
            yield
            return
        try:
            os.write(descriptor, f"{pid} {birth(pid)} {boot_id()}".encode())
            yield
        finally:
            os.ftruncate(descriptor, 0)
            os.close(descriptor)

    def end_left_over(self) -> None:
        """The caller holds the lock, so whatever is named here belongs to a dead run."""
        try:
            with open(self._path, "rb") as file:
                words = file.read(200).decode("ascii", "replace").split()
        except OSError:
            return
        if len(words) != 3 or not words[0].isdigit() or words[2] != boot_id():
            return
        pid = int(words[0])
        until = time.monotonic() + GRACE_SECONDS
        number = signal.SIGTERM
        while birth(pid) == words[1]:
            try:
                os.killpg(pid, number)
            except (ProcessLookupError, PermissionError):
                return
            if time.monotonic() >= until:
                number = signal.SIGKILL
            time.sleep(0.05)


def birth(pid: int) -> str:
    """When a process began, in the kernel's own count: a number that is given out again has another. Empty: it is gone."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            fields = file.read().rpartition(b")")[2].split()
    except OSError:
        return ""
    return "" if fields[0] in (b"Z", b"X") else fields[19].decode()


def boot_id() -> str:
    try:
        with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
            return file.read().strip()
    except OSError:
        return "unknown"
