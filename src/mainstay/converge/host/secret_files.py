"""The files of this host that hold a secret: their old content is never shown, whatever a later run writes there.

One file of the state directory serves all manifests and services: a line per change, the last one of a path counts. A
path is recorded before the secret is written and struck off after other content replaced it, so that a run that is
killed in between leaves too much recorded, never too little.
"""

from __future__ import annotations

import fcntl
import json
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager

from mainstay.foundation.private_files import (
    Closing,
    fsync_directory,
    remove_incomplete_line,
    write_all,
    write_private_file,
)

HOLDS, ENDED = "secret", "plain"
# The file is rewritten when its number of lines reaches this, or a larger power of two.
REWRITTEN_FROM_LINES = 256
# A path that does not exist is forgotten after this time; a run may be about to create a younger one.
FORGOTTEN_AFTER_SECONDS = 24 * 3600
# Further secret files of a run become durable together, at its end.
FSYNC_EACH_UP_TO = 256


class SecretFiles:
    def __init__(self, path: str) -> None:
        self._path = path
        # Path → when it was recorded. Everything below it holds a secret too, except what is in `_ended`.
        self._holding: dict[str, int] = {}
        self._ended: set[str] = set()
        self._lines = 0
        self._read_status: tuple[int, int, int] | None = None
        self._appended = 0
        self.read()

    def holds_exactly(self, path: str) -> bool:
        """Whether this very path is recorded, as of the last read."""
        return path in self._holding

    def holds(self, path: str) -> bool:
        """Whether the path, or a directory above it, is recorded. Reads what other runs recorded since."""
        self.read()
        return self._is_holding(path)

    def record(self, path: str) -> None:
        """Call it before a secret is written to the path, or below it."""
        if path not in self._holding or any(_is_below(other, path) for other in self._ended):
            self._append(HOLDS, path)

    def strike_off(self, path: str) -> None:
        """Call it after other content replaced the secret, or after the path was removed."""
        if self.holds(path):
            self._append(ENDED, path)

    def close(self) -> None:
        if self._appended > FSYNC_EACH_UP_TO:
            with self._locked() as descriptor:
                os.fsync(descriptor)

    def read(self) -> None:
        try:
            descriptor = os.open(self._path, os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:
            return
        with open(descriptor, "rb") as file:
            status = _status(descriptor)
            if status == self._read_status:
                return
            # A run that is killed leaves its last line incomplete, and has not written that secret.
            *lines, _incomplete = file.read(status[1]).split(b"\n")
        self._holding, self._ended = {}, set()
        for line in lines:
            self._apply(line)
        self._lines = len(lines)
        self._read_status = status

    def _is_holding(self, path: str) -> bool:
        while path not in self._holding:
            if path in self._ended or len(path) <= 1:
                return False
            path = os.path.dirname(path)
        return True

    def _apply(self, line: bytes) -> None:
        try:
            verb, path, seconds = json.loads(line)
            recorded = int(seconds)
        except (TypeError, ValueError):
            # Damaged by a power cut.
            return
        if verb == HOLDS:
            self._holding[path] = recorded
            self._ended = {other for other in self._ended if other != path and not _is_below(other, path)}
            return
        self._holding.pop(path, None)
        if self._is_holding(path):
            self._ended.add(path)

    def _append(self, verb: str, path: str) -> None:
        with self._locked() as descriptor:
            self.read()
            remove_incomplete_line(descriptor)
            line = _line(verb, path, int(time.time()))
            write_all(descriptor, line)
            self._appended += 1
            if verb == HOLDS and self._appended <= FSYNC_EACH_UP_TO:
                os.fsync(descriptor)
            self._apply(line)
            self._lines += 1
            self._read_status = _status(descriptor)
            if self._lines >= REWRITTEN_FROM_LINES and self._lines & (self._lines - 1) == 0:
                self._rewrite()

    def _rewrite(self) -> None:
        """Drops superseded lines and paths that are gone. The caller holds the lock."""
        oldest = time.time() - FORGOTTEN_AFTER_SECONDS
        kept = [
            _line(HOLDS, path, seconds)
            for path, seconds in sorted(self._holding.items())
            if seconds > oldest or os.path.lexists(path)
        ]
        kept += [_line(ENDED, path, 0) for path in sorted(self._ended) if os.path.lexists(path)]
        write_private_file(self._path, b"".join(kept), durable=True)

    @contextmanager
    def _locked(self) -> Iterator[int]:
        """Opens the file with an exclusive lock; opens it again if another run has just replaced it."""
        while True:
            is_new = not os.path.exists(self._path)
            flags = os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC
            with Closing(os.open(self._path, flags, 0o600)) as descriptor:
                fcntl.flock(descriptor, fcntl.LOCK_EX)
                if not _is_same_file(descriptor, self._path):
                    continue
                if is_new:
                    fsync_directory(os.path.dirname(self._path))
                yield descriptor
                return


def _status(descriptor: int) -> tuple[int, int, int]:
    """Identifies the content: the file only grows or is replaced."""
    found = os.fstat(descriptor)
    return found.st_ino, found.st_size, found.st_mtime_ns


def _is_same_file(descriptor: int, path: str) -> bool:
    try:
        return os.stat(path).st_ino == os.fstat(descriptor).st_ino
    except FileNotFoundError:
        return False


def _is_below(path: str, directory: str) -> bool:
    return path.startswith(f"{directory}/")


def _line(verb: str, path: str, seconds: int) -> bytes:
    return json.dumps([verb, path, seconds]).encode() + b"\n"
