"""Contents of pushed files on the host, by digest, beside the program cache and as private. Runs on Python 3.9.

A content is used only if its digest is right, so files need no sync: what a crash, a full disk or another program has
spoiled is asked for again. A shared lock on the directory keeps contents from being removed while a push needs them.
"""

from __future__ import annotations

import fcntl
import os
import stat
import zlib
from collections.abc import Collection, Iterator
from hashlib import sha256

from mainstay.foundation import IO

CHUNK_BYTES = 1 << 20
DIGEST_LENGTH = 64
# Bounds of contents that the current push does not use.
KEPT_SECONDS = 30 * 24 * 3600
KEPT_BYTES = 256 * 1024 * 1024
MOST_KEPT = 10_000
OPEN_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
CREATE_FILE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


class TransferRefused(Exception):
    """What arrived is not what was announced."""


class ContentStore:
    """The directory of contents; open from the first look to the last use."""

    def __init__(self, folder: str) -> None:
        self.folder = folder
        self._handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        if self._is_alone():
            for name in self._names():
                # What a killed push left.
                if len(name) != DIGEST_LENGTH:
                    _remove(self.path_of(name))
        fcntl.flock(self._handle, fcntl.LOCK_SH)

    def path_of(self, digest: str) -> str:
        return os.path.join(self.folder, digest)

    def has(self, digest: str, size: int) -> bool:
        """Whether the content is there as a whole. Marks it as used."""
        found = sha256()
        try:
            with _open_own(self.path_of(digest), size) as file:
                while True:
                    piece = file.read(CHUNK_BYTES)
                    if not piece:
                        break
                    found.update(piece)
                os.utime(file.fileno())
        except (OSError, TransferRefused):
            # Missing, or nothing that this program wrote. Storing the content replaces it.
            return False
        return found.hexdigest() == digest

    def store(self, digest: str, size: int, packed: Iterator[bytes]) -> None:
        """Unpacks a content that arrives, checks it, and gives it its name."""
        draft = self.path_of(f"new-{os.getpid()}-{os.urandom(4).hex()}")
        try:
            unpack_content(draft, digest, size, packed)
            os.rename(draft, self.path_of(digest))
        except BaseException:
            _remove(draft)
            raise

    def close(self, used: Collection[str]) -> None:
        """Removes old contents, unless another push needs the directory now; it will remove them."""
        if self._is_alone():
            self._remove_old(used)
        os.close(self._handle)

    def _is_alone(self) -> bool:
        try:
            fcntl.flock(self._handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True

    def _names(self) -> list[str]:
        return os.listdir(self.folder)

    def _remove_old(self, used: Collection[str]) -> None:
        from time import time

        found = []
        for name in set(self._names()).difference(used):
            try:
                status = os.lstat(self.path_of(name))
            except FileNotFoundError:
                continue
            found.append((status.st_mtime, status.st_size, name))
        oldest = time() - KEPT_SECONDS
        left = KEPT_BYTES
        for count, (used_at, size, name) in enumerate(sorted(found, reverse=True)):
            left -= size
            if used_at < oldest or left < 0 or count >= MOST_KEPT:
                _remove(self.path_of(name))


def unpack_content(path: str, digest: str, size: int, packed: Iterator[bytes]) -> None:
    """Writes a content to a new file, never more than its size; raises `TransferRefused` if it is another one."""
    found = sha256()
    left = size
    with os.fdopen(os.open(path, CREATE_FILE, 0o600), "wb") as file:
        for text in _unpacked_pieces(packed):
            left -= len(text)
            if left < 0:
                break
            found.update(text)
            file.write(text)
    if left or found.hexdigest() != digest:
        raise TransferRefused("a file arrived damaged: its digest differs")


def _unpacked_pieces(packed: Iterator[bytes]) -> Iterator[bytes]:
    """What the pieces contain, in pieces of bounded size."""
    unpacking = zlib.decompressobj()
    try:
        for piece in packed:
            yield unpacking.decompress(piece, CHUNK_BYTES)
            while unpacking.unconsumed_tail:
                yield unpacking.decompress(unpacking.unconsumed_tail, CHUNK_BYTES)
        yield unpacking.flush()
    except zlib.error:
        raise TransferRefused("a file arrived damaged: it cannot be unpacked") from None


def _open_own(path: str, size: int) -> IO[bytes]:
    """Opens a file that only this user can have written; raises `TransferRefused` for anything else."""
    handle = os.open(path, OPEN_FILE)
    status = os.fstat(handle)
    is_own = stat.S_ISREG(status.st_mode) and status.st_uid == os.geteuid() and not status.st_mode & 0o077
    if not is_own or status.st_nlink != 1 or size != status.st_size:
        os.close(handle)
        raise TransferRefused(f"{path} is no file of this program")
    return os.fdopen(handle, "rb")


def _remove(path: str) -> None:
    try:
        os.unlink(path)
    except OSError:
        # Removed by another process, or a directory, which this program does not create here.
        return
