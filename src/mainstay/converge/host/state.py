"""The state directory: locks, journals, small files that are replaced whole. Directories 0700, files 0600."""

from __future__ import annotations

import errno
import fcntl
import os
import stat as modes
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager

from mainstay.converge.failures import StopFlag, Stopped
from mainstay.foundation import Struct
from mainstay.foundation.private_files import (
    Closing,
    fsync_directory,
    remove,
    remove_incomplete_line,
    write_all,
    write_private_file,
)

DIRECTORY_MODE = 0o700
# Version of everything below the state directory. Raise it when an older program would misread or damage what this
# one writes.
FORMAT = 1
TEMP_PREFIX = ".mainstay-"
# Streams of this process, wherever they lead.
OWN_STREAMS = ("/dev/stdout", "/dev/stderr", "/dev/fd/", "/proc/self/fd/")


class Busy(Exception):
    """Another run holds the lock; the text names it."""


class Unusable(Exception):
    """The state directory cannot be used; the text says why and what to set."""


def state_path(environ: Mapping[str, str]) -> str:
    return _place(environ, "MAINSTAY_STATE_DIR", "/var/lib/mainstay", "XDG_STATE_HOME", ".local/state")


def configuration_path(environ: Mapping[str, str]) -> str:
    return _place(environ, "MAINSTAY_CONFIG_DIR", "/etc/mainstay", "XDG_CONFIG_HOME", ".config")


def _place(environ: Mapping[str, str], own: str, system: str, base: str, fallback: str) -> str:
    if environ.get(own):
        return os.path.abspath(environ[own])
    if os.geteuid() == 0:
        return system
    home = environ.get("HOME") or os.path.expanduser("~")
    return os.path.join(environ.get(base) or os.path.join(home, fallback), "mainstay")


class StateDirectory(Struct):
    path: str
    _is_checked: bool = False

    def directory(self, *parts: str) -> str:
        """Returns a directory below the state directory; creates it if it is missing."""
        path = os.path.join(self.path, *parts)
        if parts and not self._is_checked:
            self._require_private()
        try:
            if not os.path.isdir(path):
                os.makedirs(path, mode=DIRECTORY_MODE, exist_ok=True)
                # `makedirs` gives parents the default mode, but the state directory is private.
                for depth in range(len(parts) + 1):
                    os.chmod(os.path.join(self.path, *parts[:depth]), DIRECTORY_MODE)
        except OSError as error:
            raise self._unusable(error) from None
        if parts and not self._is_checked:
            self._require_private()
        return path

    def _require_private(self) -> None:
        """Raises `Unusable` if other users could plant links in the directory, through which a run would write."""
        try:
            statuses = (os.lstat(self.path), os.stat(self.path))
        except OSError:
            # Missing, or reported when it is used.
            return
        for found in statuses:
            if found.st_uid not in (0, os.geteuid()):
                raise self._unusable_by_others(f"it belongs to user {found.st_uid}")
        is_group_foreign = found.st_gid not in (0, os.getegid())
        if found.st_mode & modes.S_IWOTH or (found.st_mode & modes.S_IWGRP and is_group_foreign):
            self._close_to_others()
        self._require_known_format()
        self._is_checked = True

    def _require_known_format(self) -> None:
        """Raises `Unusable` if a newer program wrote the directory. One without a number is of the first format."""
        path = os.path.join(self.path, "format")
        try:
            with open(path, "rb") as file:
                # A crash can leave an empty file, or zeros.
                text = file.read(20).strip(b"\0\n")
        except FileNotFoundError:
            text = b""
        except OSError as error:
            raise self._unusable(error) from None
        if not text:
            self._write_format(path)
        elif not text.isdigit() or int(text) > FORMAT:
            found = text.decode("ascii", "replace")
            raise Unusable(
                f"the state directory {self.path} was written by a newer mainstay: its format is {found!r}, this program"
                f" knows {FORMAT}; install the newer version, or set MAINSTAY_STATE_DIR to another directory"
            )

    def _write_format(self, path: str) -> None:
        try:
            self.write(path, f"{FORMAT}\n".encode())
        except OSError:
            # On a full or read-only file system; what needs the directory reports it.
            return

    def _close_to_others(self) -> None:
        """Makes an open directory private, as a new tmpfs, unless another user already placed something in it."""
        self._refuse_foreign_entries()
        try:
            os.chmod(self.path, DIRECTORY_MODE)
        except OSError as error:
            raise self._unusable(error) from None
        self._refuse_foreign_entries()

    def _refuse_foreign_entries(self) -> None:
        for entry in os.scandir(self.path):
            found = entry.stat(follow_symlinks=False)
            if found.st_uid not in (0, os.geteuid()) or (found.st_nlink > 1 and not modes.S_ISDIR(found.st_mode)):
                raise self._unusable_by_others(f"other users may write to it, and {entry.name} may be of one")

    def _unusable_by_others(self, reason: str) -> Unusable:
        return Unusable(
            f"the state directory {self.path} cannot be used: {reason}; change its owner and mode, or set"
            " MAINSTAY_STATE_DIR to a private one"
        )

    def _unusable(self, error: OSError) -> Unusable:
        return Unusable(
            f"the state directory {self.path} cannot be used: {error.strerror}; set MAINSTAY_STATE_DIR to one that can"
        )

    def identity_path(self, identity: str) -> str:
        """Returns the path of the state of one manifest; it need not exist."""
        return os.path.join(self.path, "manifests", file_name(identity))

    def identity_directory(self, identity: str) -> str:
        return self.directory("manifests", file_name(identity))

    def write(self, path: str, content: bytes | Iterable[bytes], *, durable: bool = False) -> None:
        """Replaces a file whole."""
        write_private_file(path, content, durable=durable)

    @contextmanager
    def scratch_file(self, run_id: str, chunks: Iterable[bytes]) -> Iterator[str]:
        """Yields a private copy that is removed afterwards; also removes the copies of killed runs."""
        directory = self.directory("scratch")
        for name in os.listdir(directory):
            pid = name.rpartition("-")[2]
            if not pid.isdigit() or not os.path.exists(f"/proc/{pid}"):
                remove(os.path.join(directory, name))
        path = os.path.join(directory, f"{run_id}-{os.getpid()}")
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        try:
            with Closing(descriptor):
                for chunk in chunks:
                    write_all(descriptor, chunk)
            yield path
        finally:
            remove(path)

    def lock(self, path: str, *, wait_seconds: float, stop: StopFlag) -> Lock:
        try:
            return Lock(path, wait_seconds, stop)
        except OSError as error:
            raise self._unusable(error) from None


class Lock:
    """Held from construction until `release`, the end of a `with` block or the end of the process."""

    def __init__(self, path: str, wait_seconds: float, stop: StopFlag) -> None:
        try:
            self._descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise Unusable(
                f"the state directory cannot be used: {error.strerror}: {path}; set MAINSTAY_STATE_DIR to one that can"
            ) from None
        deadline = time.monotonic() + wait_seconds
        while True:
            try:
                fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                # A run that must only stop before its next resource still needs the lock, to report how far it is.
                if stop.at_once:
                    os.close(self._descriptor)
                    raise Stopped from None
                if time.monotonic() >= deadline:
                    holder = os.pread(self._descriptor, 200, 0).decode("utf-8", "replace").strip()
                    os.close(self._descriptor)
                    raise Busy(holder or "another process") from None
                time.sleep(0.05)
        since = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
        os.ftruncate(self._descriptor, 0)
        try:
            os.pwrite(self._descriptor, f"pid {os.getpid()}, started {since}\n".encode(), 0)
        except OSError:
            # On a full disk the lock works too; only the name of its holder is missing.
            return

    def release(self) -> None:
        os.ftruncate(self._descriptor, 0)
        os.close(self._descriptor)

    def __enter__(self) -> None:
        """It is held already."""

    def __exit__(self, *error: object) -> None:
        self.release()


class AppendOnly(Struct):
    """A file to which lines are appended. A crash can leave only the last line incomplete."""

    path: str
    _descriptor: int | None = None

    def append(self, line: str, *, durable: bool) -> None:
        if self._descriptor is None:
            is_new = not os.path.exists(self.path)
            flags = os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC
            self._descriptor = os.open(self.path, flags, 0o600)
            remove_incomplete_line(self._descriptor)
            if is_new and durable:
                fsync_directory(os.path.dirname(self.path))
        try:
            write_all(self._descriptor, line.encode("utf-8", "surrogateescape") + b"\n")
            if durable:
                os.fsync(self._descriptor)
        except OSError:
            # On a full disk a part of the line may be written; the next append removes it first.
            self.close()
            raise

    def lines(self) -> list[str]:
        try:
            with open(self.path, "rb") as file:
                content = file.read()
        except FileNotFoundError:
            return []
        *complete, _incomplete = content.split(b"\n")
        return [line.decode("utf-8", "surrogateescape") for line in complete]

    def close(self) -> None:
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None


def write_report_file(path: str, pieces: Iterable[bytes]) -> None:
    """Replaces a file that the caller named, or writes to a pipe or device there; follows the parents rule."""
    from mainstay.converge.host.parents import LinkRefused, Parents

    path = os.path.abspath(path)
    if path.startswith(OWN_STREAMS):
        _write_through(path, pieces)
        return
    user = os.geteuid()
    try:
        place, name = Parents(user).find(path)
    except LinkRefused as refusal:
        raise OSError(errno.ELOOP, str(refusal), path) from None
    if place.unsafe is None and _is_own_stream(path, user):
        _write_through(path, pieces)
    else:
        # Also in place of the pipe of another user, who would receive the report or hold the run.
        write_private_file(f"/proc/self/fd/{place.handle}/{name}", pieces)


def _is_own_stream(path: str, user: int) -> bool:
    """Whether the path is a pipe, a device or a link that belongs to root or the user."""
    try:
        found = os.lstat(path)
    except FileNotFoundError:
        return False
    return found.st_uid in (0, user) and not modes.S_ISREG(found.st_mode)


def _write_through(path: str, pieces: Iterable[bytes]) -> None:
    """Writes to an existing path, such as /dev/stdout."""
    with Closing(os.open(path, os.O_WRONLY | os.O_TRUNC | os.O_NOCTTY | os.O_CLOEXEC)) as descriptor:
        for piece in pieces:
            write_all(descriptor, piece)


def new_run_id() -> str:
    """Returns an id that sorts by time and is unique without coordination."""
    now = time.time()
    micro = int(now * 1_000_000) % 1_000_000
    return f"{time.strftime('%Y%m%dT%H%M%S', time.gmtime(now))}{micro:06d}Z-{os.urandom(3).hex()}"


def file_name(text: str) -> str:
    """Converts any text to a file name: readable if it fits, otherwise a digest."""
    name = text.replace("%", "%25").replace("/", "%2F").replace("\0", "%00")
    if len(os.fsencode(name)) <= 200:
        return name
    from hashlib import sha256

    return sha256(os.fsencode(text)).hexdigest()


def list_names(directory: str) -> list[str]:
    try:
        return os.listdir(directory)
    except FileNotFoundError:
        return []


def run_ids(directory: str) -> list[str]:
    """Returns the runs that have a `.json` file in a directory, the oldest first."""
    return sorted(name.removesuffix(".json") for name in list_names(directory) if name.endswith(".json"))


def statuses(directory: str) -> Iterator[tuple[str, os.stat_result]]:
    """Yields path and status of all files in a directory that another run may be cleaning up too."""
    for entry in os.scandir(directory):
        try:
            yield entry.path, entry.stat()
        except FileNotFoundError:
            continue


def read_text(path: str) -> str | None:
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read()
    except FileNotFoundError:
        return None
