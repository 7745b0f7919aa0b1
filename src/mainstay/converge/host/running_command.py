"""Records the command that a run has started, so that the next run can end it if this run is killed."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress

from mainstay.foundation import Struct
from mainstay.foundation.digests import sha256_of

GRACE_SECONDS = 5.0
STARTING = "starting"


class RunningCommand(Struct):
    """A small file that names the process while it runs; not durable, because a reboot ends processes too.

    It contains a digest of the command's words before the command is started, and its process id afterwards: a run may
    be killed between the two."""

    _path: str

    @contextmanager
    def noted(self, arguments: Sequence[str]) -> Iterator[Callable[[int], None]]:
        """Yields a function that must be called with the process id as soon as it is known."""
        try:
            descriptor = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        except OSError:
            # The command may be what frees space on a full disk.
            yield lambda _: None
            return

        def note(text: str) -> None:
            with suppress(OSError):
                os.pwrite(descriptor, f"{text} {boot_id()}\n".encode(), 0)

        try:
            note(f"{STARTING} {os.getsid(0)} {len(arguments)} {_digest(arguments)} {_ticks()}")
            yield lambda pid: note(f"{pid} {birth(pid)}")
        finally:
            os.ftruncate(descriptor, 0)
            os.close(descriptor)

    def end_left_over(self) -> None:
        """Ends the command of a killed run. The caller holds the lock, so the recorded command has no run."""
        try:
            with open(self._path, "rb") as file:
                words = file.readline(300).decode("ascii", "replace").split()
        except OSError:
            return
        if not words or words[-1] != boot_id():
            return
        if len(words) == 3 and words[0].isdigit():
            _end_group(int(words[0]), words[1])
        elif len(words) == 6 and words[0] == STARTING and "".join((words[1], words[2], words[4])).isdigit():
            for pid in _orphans(int(words[1]), int(words[2]), words[3], int(words[4])):
                _end_group(pid, birth(pid))


def _end_group(pid: int, born: str) -> None:
    until = time.monotonic() + GRACE_SECONDS
    number = signal.SIGTERM
    while born and birth(pid) == born:
        try:
            os.killpg(pid, number)
        except (ProcessLookupError, PermissionError):
            return
        if time.monotonic() >= until:
            number = signal.SIGKILL
        time.sleep(0.05)


def _orphans(session: int, count: int, wanted: str, not_before: int) -> Iterator[int]:
    """Yields group leaders of a session with these words that started after that moment and have lost their parent."""
    for entry in filter(str.isdigit, os.listdir("/proc")):
        fields = _status(int(entry))
        if not fields or fields[2] != entry.encode() or int(fields[3]) != session or int(fields[19]) < not_before:
            continue
        parent = _status(int(fields[1]))
        if fields[1] != b"1" and parent and int(parent[3]) == session:
            continue
        try:
            with open(f"/proc/{entry}/cmdline", "rb") as file:
                words = file.read().decode("utf-8", "surrogateescape").split("\0")[:-1]
        except OSError:
            continue
        # The command line of a script begins with its interpreter.
        if _digest(words[-count:]) == wanted:
            yield int(entry)


def _digest(arguments: Sequence[str]) -> str:
    """Identifies the words of a command without revealing them."""
    words = [os.path.basename(arguments[0]), *arguments[1:]] if arguments else []
    return sha256_of("\0".join(words).encode("utf-8", "surrogateescape"))


def _ticks() -> int:
    """The current time in the unit of process start times."""
    return int(time.clock_gettime(time.CLOCK_BOOTTIME) * os.sysconf("SC_CLK_TCK"))


def _status(pid: int) -> list[bytes]:
    """Returns the fields of /proc/PID/stat from the state on; empty if the process has ended."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            return file.read().rpartition(b")")[2].split()
    except OSError:
        return []


def birth(pid: int) -> str:
    """Returns the start time of a process, which differs if its id was reused; empty if it has ended."""
    fields = _status(pid)
    return "" if not fields or fields[0] in (b"Z", b"X") else fields[19].decode()


def boot_id() -> str:
    try:
        with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
            return file.read().strip()
    except OSError:
        return "unknown"
