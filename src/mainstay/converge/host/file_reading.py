"""Reaches and reads files of the host: managed paths, sources, and what programs use.

Managed paths are reached by the parents rule (`parents.py`): every call takes the descriptor of the directory.
"""

from __future__ import annotations

import os
import stat as modes
import sys
from collections.abc import Callable, Iterator, Mapping

from mainstay.converge.failures import Failure, Missing
from mainstay.converge.host.parents import LinkRefused, Parents, Place, Walk
from mainstay.foundation import Any, Struct
from mainstay.foundation.digests import sha256_of_pieces
from mainstay.foundation.private_files import Closing

CHUNK_BYTES = 1024 * 1024
# Two chunks of this size fit the processor's cache and the allocator's pools; larger chunks compare at a third of the
# speed.
LOOK_BYTES = 256 * 1024
CONTENT_IDENTITY = ("st_dev", "st_ino", "st_size", "st_mtime_ns")
IDENTITY = (*CONTENT_IDENTITY, "st_ctime_ns")
SETTLED_NANOSECONDS = 2_000_000_000
READ_FLAGS = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
DIRECTORY_FLAGS = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
MOST_SOURCE_DIRECTORIES = 256
# `os.path.realpath` takes it since Python 3.10.
STRICT: Mapping[str, Any] = {"strict": True} if sys.version_info >= (3, 10) else {}


class FileReader:
    """Methods for managed paths follow the parents rule; those for what programs use follow links as the kernel does."""

    def __init__(self) -> None:
        self.effective_uid = os.geteuid()
        self.effective_gid = os.getegid()
        # Sources below it are trusted as the manifest is; empty: none is.
        self.trusted_directory = ""
        self._parents = Parents(self.effective_uid)
        self._kept = self._parents.kept
        # The directory of a source → its real path.
        self._source_directories: dict[str, str] = {}
        # The last written file, until it is compared: path, status, content.
        self._written: tuple[str, Any, bytes] | None = None
        # The last copied file: path, status, source, and the status of the source before it was read.
        self._copied: tuple[str, Any, str, Any] | None = None

    # ---- reading what programs use ----
    def stat(self, path: str) -> Any:
        return os.stat(path)

    def exists(self, path: str) -> bool:
        return is_found(self.stat, path)

    def lexists(self, path: str) -> bool:
        """Like `exists`, but a link counts by itself."""
        return is_found(os.lstat, path)

    def refuse_to_run(self, path: str) -> None:
        """Raises `NotYetThere` in a dry run if an earlier resource would change the path."""

    def real_path(self, path: str) -> str:
        """Returns the path with all links followed; their target need not exist."""
        try:
            if not STRICT:
                # Raises what `realpath` passes over there, such as a loop of links.
                os.stat(path)
            return os.path.realpath(path, **STRICT)
        except FileNotFoundError:
            return os.path.realpath(path)

    def listdir(self, path: str) -> list[str]:
        return sorted(os.listdir(path))

    def chunks(self, path: str) -> Iterator[bytes]:
        with Closing(os.open(path, READ_FLAGS & ~os.O_NOFOLLOW)) as descriptor:
            yield from read_all(descriptor)

    def read(self, path: str, limit: int) -> bytes | None:
        """Returns the whole content, or None if it is larger than `limit`."""
        return _join(self.chunks(path), limit)

    # ---- reaching managed paths ----
    def _walker(self) -> Walk:
        """Returns the directories as the run sees them."""
        return self._parents

    def _at(self, path: str) -> tuple[Place, str]:
        """Returns the open directory of a path, and the name in it."""
        directory, _, name = path.rpartition("/")
        place = self._kept.get(directory)
        if place is None:
            with ErrorsAt(path):
                place = self._parents.reach(directory)
        return place, name or "."

    def forget_directories(self) -> None:
        """Closes the directories that are kept open; call it before anything that may replace or unmount them."""
        self._parents.forget()
        self._source_directories.clear()

    def require_parent(self, path: str) -> None:
        """Raises `Failure` if the directory of a path does not exist."""
        directory = os.path.dirname(path)
        try:
            self._walker().reach(directory)
        except FileNotFoundError:
            raise Missing(f"parent directory {directory} does not exist", path=directory) from None

    def follow(self, path: str) -> str:
        """Returns the path with all links followed that may be followed; their target need not exist."""
        place, name = self._find(path, trusting=False)
        return place.below(name)

    def _find(self, path: str, *, trusting: bool) -> tuple[Place, str]:
        with ErrorsAt(path):
            return self._walker().find(path, trusting=trusting)

    # ---- reading managed paths ----
    def lstat(self, path: str) -> Any:
        # As `_at`, written out: a run of stable files spends a good part of its time here.
        directory, _, name = path.rpartition("/")
        try:
            place = self._kept.get(directory) or self._parents.reach(directory)
            return os.lstat(name or ".", dir_fd=place.handle)
        except OSError as error:
            error.filename = path
            raise

    def lstat_or_none(self, path: str) -> Any:
        """Like `lstat`; None if nothing is at the path."""
        try:
            return self.lstat(path)
        except FileNotFoundError:
            return None

    def readlink(self, path: str) -> str:
        place, name = self._at(path)
        with ErrorsAt(path):
            return os.readlink(name, dir_fd=place.handle)

    def names_in(self, path: str) -> list[str]:
        """Returns the sorted names in a directory, which must not be a link."""
        place, name = self._at(path)
        with ErrorsAt(path), Closing(os.open(name, DIRECTORY_FLAGS, dir_fd=place.handle)) as descriptor:
            return sorted(os.listdir(descriptor))

    def content_chunks(self, path: str) -> Iterator[bytes]:
        # Written out: every stable file with a source is compared here.
        descriptor = self._open(path)
        try:
            while chunk := os.read(descriptor, LOOK_BYTES):
                yield chunk
        finally:
            os.close(descriptor)

    def content(self, path: str, limit: int) -> bytes | None:
        """Returns the whole content of a file, or None if it is larger than `limit`."""
        return _join(self.content_chunks(path), limit)

    def read_whole(self, path: str, limit: int) -> tuple[Any, bytes]:
        """Returns status and content of one regular file; raises `Failure` if it is something else, or too large."""
        with Closing(self._open(path)) as descriptor:
            found = os.fstat(descriptor)
            if not modes.S_ISREG(found.st_mode):
                raise was_replaced(path)
            content = _join(read_all(descriptor), limit)
        return found, require_size(content, path, limit)

    def identity_of(self, found: Any) -> Any:
        """Returns what differs between two statuses if the content may differ."""
        return tuple(getattr(found, each) for each in IDENTITY)

    def _open(self, path: str) -> int:
        place, name = self._at(path)
        # As `ErrorsAt`, written out: every stable file is opened here.
        try:
            return os.open(name, READ_FLAGS, dir_fd=place.handle)
        except OSError as error:
            error.filename = path
            raise

    def holds(self, path: str, found: Any, content: bytes) -> bool:
        """Whether the file at `path`, whose status is `found`, has exactly this content."""
        size = len(content)
        if found.st_size != size:
            return False
        written, self._written = self._written, None
        if written is not None and _is_untouched(written[0], written[1], path, found):
            return written[2] == content
        descriptor = self._open(path)
        try:
            if size <= CHUNK_BYTES:
                return os.read(descriptor, size + 1) == content
            offset = 0
            while chunk := os.read(descriptor, CHUNK_BYTES):
                if content[offset : offset + len(chunk)] != chunk:
                    return False
                offset += len(chunk)
            return offset == size
        finally:
            os.close(descriptor)

    def same(self, path: str, found: Any, source: str, now: Any = None) -> bool:
        """Whether two files have the same content, compared in pieces; `now` is the status of the source, if known."""
        now = self.lstat(source) if now is None else now
        copied, self._copied = self._copied, None
        if found.st_size != now.st_size:
            # Files that the kernel generates, as below /proc, have no blocks and no true size.
            if found.st_blocks and now.st_blocks:
                return False
        elif copied is not None and copied[2] == source and _is_untouched(copied[0], copied[1], path, found):
            before = copied[3]
            # A source that was just changed may change again without new times; some file systems update only one of
            # the two times.
            changed_ns = max(before.st_mtime_ns, before.st_ctime_ns)
            if _is_unchanged(before, now) and found.st_mtime_ns - changed_ns > SETTLED_NANOSECONDS:
                return True
        actual, expected = Pieces(self.content_chunks(path)), Pieces(self.content_chunks(source))
        while True:
            left, right = actual.take(LOOK_BYTES), expected.take(LOOK_BYTES)
            if left != right:
                return False
            if not left:
                return True

    def checksum_of(self, path: str, found: Any) -> str | None:
        """Returns the checksum of the file found with this status; None if it has changed since or is not readable."""
        try:
            now = FileReader.lstat(self, path)
            if any(getattr(now, each) != getattr(found, each) for each in CONTENT_IDENTITY):
                return None
            return sha256_of_pieces(FileReader.content_chunks(self, path))
        except (OSError, LinkRefused):
            return None

    # ---- reading sources ----
    def find_source(self, path: str) -> tuple[str, Any]:
        """Returns the real path of a source, and its status; raises `FileNotFoundError`, or `Failure` if it is refused.

        Below the trusted directory all links are followed, elsewhere those that the parents rule allows.
        """
        directory, _, name = path.rpartition("/")
        real = self._source_directories.get(directory)
        if real is not None:
            real = f"{real}/{name}"
            found = self.lstat(real)
            if found.st_nlink == 1 and not modes.S_ISLNK(found.st_mode):
                return real, found
        trusting = self._is_trusted(path)
        place, rest = self._find(path, trusting=trusting)
        real = place.below(rest)
        found = self.lstat(real)
        self.refuse_linked_source(real, found)
        self._keep_source_directory(directory, trusting=trusting)
        return real, found

    def _keep_source_directory(self, directory: str, *, trusting: bool) -> None:
        """Remembers where a directory leads, because neighbouring files share it."""
        place, rest = self._find(f"{directory}/.", trusting=trusting)
        if len(self._source_directories) >= MOST_SOURCE_DIRECTORIES:
            self._source_directories.clear()
        self._source_directories[directory] = place.path if rest == "." else place.below(rest)

    def trust(self, directory: str) -> None:
        """Trusts sources below a directory as the manifest is, unless anyone may place files in it, as in /tmp."""
        mode = os.stat(directory).st_mode if os.path.isdir(directory) else 0
        is_common = mode & modes.S_ISVTX and mode & (modes.S_IWGRP | modes.S_IWOTH)
        self.trusted_directory = "" if is_common else directory.rstrip("/")

    def _is_trusted(self, path: str) -> bool:
        trusted = self.trusted_directory
        if not trusted or not path.startswith(f"{trusted}/"):
            return False
        return "/.." not in path or os.path.normpath(path).startswith(f"{trusted}/")

    def refuse_linked_source(self, path: str, found: Any) -> None:
        """Raises `Failure` for a source that another user may have linked to have it read."""
        if found.st_nlink == 1 or not modes.S_ISREG(found.st_mode) or self._is_trusted(path):
            return
        if self._walker().reach(os.path.dirname(path)).is_shared:
            raise Failure(
                f"source {path} has {found.st_nlink} hard links and other users may create files in its directory; it"
                " is not read, because the file may belong elsewhere: copy it, or remove the other links"
            )


def is_found(look: Callable[[str], Any], path: str) -> bool:
    try:
        look(path)
    except (FileNotFoundError, NotADirectoryError):
        return False
    return True


class ErrorsAt:
    """Errors of calls that take a descriptor and a name get the whole path, for messages."""

    __slots__ = ("_path",)

    def __init__(self, path: str) -> None:
        self._path = path

    def __enter__(self) -> None:
        """Nothing to prepare."""

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        if isinstance(error, OSError):
            error.filename, error.filename2 = self._path, None


def require_size(content: bytes | None, path: str, limit: int) -> bytes:
    if content is None:
        raise Failure(f"{path} is larger than {limit // 1024 // 1024} MB; it is not changed")
    return content


def _join(chunks: Iterator[bytes], limit: int) -> bytes | None:
    content = bytearray()
    for chunk in chunks:
        content += chunk
        if len(content) > limit:
            return None
    return bytes(content)


class Pieces(Struct):
    """Returns bytes from a stream of chunks in the requested amounts."""

    _chunks: Iterator[bytes]
    _rest: bytes = b""

    def take(self, amount: int) -> bytes:
        while len(self._rest) < amount:
            chunk = next(self._chunks, b"")
            if not chunk:
                break
            self._rest = self._rest + chunk if self._rest else chunk
        taken, self._rest = self._rest[:amount], self._rest[amount:]
        return taken


def _is_untouched(where: str, status: Any, path: str, found: Any) -> bool:
    """Whether the file found at a path is the file just written there, so that it need not be read again."""
    return (
        where == path
        and status.st_ino == found.st_ino
        and status.st_dev == found.st_dev
        and bool(status.st_mtime_ns == found.st_mtime_ns)
    )


def is_same_file(now: Any, found: Any) -> bool:
    return (now.st_dev, now.st_ino) == (found.st_dev, found.st_ino)


def _is_unchanged(before: Any, now: Any) -> bool:
    return all(getattr(before, each) == getattr(now, each) for each in IDENTITY)


def was_replaced(path: str) -> Failure:
    return Failure(f"{path} was replaced by another process during the run; nothing is changed")


def read_all(descriptor: int) -> Iterator[bytes]:
    while chunk := os.read(descriptor, LOOK_BYTES):
        yield chunk
