"""Unpacks tar and zip archives into an open directory: bounded, by descriptor, and nothing outside it.

Owners in the archive are ignored and set-id bits dropped. Links must lead to a place inside; devices are refused.
"""

from __future__ import annotations

import os
import stat as modes
import tarfile
import time
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from mainstay.converge.failures import Failure, Stopped, TimedOut
from mainstay.converge.host.file_reading import DIRECTORY_FLAGS
from mainstay.converge.host.files import give_away
from mainstay.foundation import IO, Any, Struct
from mainstay.foundation.private_files import Closing, write_all
from mainstay.foundation.text import shorten

CHUNK_BYTES = 1024 * 1024
LONGEST_TARGET = 4095
DEEPEST = 200
# The memory that an xz stream may ask for.
XZ_MEMORY_BYTES = 512 * 1024 * 1024
NEW_FILE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
FILE, DIRECTORY, LINK, HARD_LINK = "file", "directory", "link", "hard link"


class UnpackingLimits(Struct):
    """The bounds of one archive."""

    entries: int = 500_000
    unpacked_bytes: int = 64 * 1024**3
    # More than any real archive: text compresses to a hundredth at best.
    ratio: int = 300
    always_allowed_bytes: int = 256 * 1024**2
    seconds: float = 3600.0


class _Entry(Struct):
    kind: str
    name: str
    mode: int
    content: Any = None
    # The target of a link as written; for a hard link, the name of another entry.
    target: str = ""
    mtime: float = 0


class UnpackingBudget:
    """What was used of the limits; raises `Failure` once it is too much."""

    def __init__(self, limits: UnpackingLimits, archive_bytes: int, is_stopped: Callable[[], bool]) -> None:
        self._limits = limits
        by_ratio = max(limits.always_allowed_bytes, limits.ratio * archive_bytes)
        self._most_bytes = min(limits.unpacked_bytes, by_ratio)
        self._deadline = time.monotonic() + limits.seconds
        self._is_stopped = is_stopped
        self._entries = self._bytes = 0

    def take_entry(self) -> None:
        self._entries += 1
        if self._entries > self._limits.entries:
            raise Failure(f"the archive has more than {self._limits.entries} entries")

    def take_bytes(self, count: int) -> None:
        self._bytes += count
        if self._bytes > self._most_bytes:
            raise Failure(f"the archive unpacks to more than {self._most_bytes} bytes")
        if time.monotonic() > self._deadline:
            raise TimedOut(f"the archive is not unpacked after {self._limits.seconds:g} s")
        if self._is_stopped():
            raise Stopped


def unpack(
    archive: IO[bytes],
    target: int,
    *,
    strip: int,
    uid: int,
    gid: int,
    is_stopped: Callable[[], bool],
    limits: UnpackingLimits | None = None,
) -> None:
    """Unpacks an open archive into an empty directory; `strip` leading names of each entry are dropped."""
    budget = UnpackingBudget(limits or UnpackingLimits(), os.fstat(archive.fileno()).st_size, is_stopped)
    writer = _Writer(target, uid, gid, budget)
    try:
        for entry in _entries(archive, budget):
            budget.take_entry()
            names = _names_of(entry.name)[strip:]
            if names:
                writer.write(entry, names, strip)
        writer.finish()
    except (Failure, Stopped):
        raise
    except PermissionError as error:
        raise Failure(f"{error.strerror}: {error.filename}" if error.filename else str(error.strerror)) from None
    except OSError as error:
        if error.errno is None:
            raise Failure(f"the archive is damaged: {error}") from None
        raise
    except Exception as error:  # noqa: BLE001  # the readers raise many exceptions for a damaged archive
        raise Failure(f"the archive is damaged: {shorten(str(error)) or error.__class__.__name__}") from None
    finally:
        writer.close()


# ---- reading ----
def _entries(archive: IO[bytes], budget: UnpackingBudget) -> Iterator[_Entry]:
    start = archive.read(512)
    archive.seek(0)
    if start.startswith((b"PK\3\4", b"PK\5\6")):
        return _zip_entries(archive)
    if start.startswith(b"\x1f\x8b"):
        import gzip

        return _tar_entries(_Forward(gzip.GzipFile(fileobj=archive).read, budget))
    if start.startswith(b"\xfd7zXZ\0"):
        return _tar_entries(_Forward(_XzReader(archive).read, budget))
    if start[257:262] == b"ustar":
        return _tar_entries(_Forward(archive.read, budget))
    raise Failure("the archive is none of tar, tar.gz, tar.xz and zip")


class _XzReader:
    """Decompresses xz with bounded memory; the library's file object has no bound."""

    def __init__(self, archive: IO[bytes]) -> None:
        self._archive = archive
        self._decompressor = self._new()

    def _new(self) -> Any:
        import lzma

        return lzma.LZMADecompressor(format=lzma.FORMAT_XZ, memlimit=XZ_MEMORY_BYTES)

    def read(self, size: int) -> bytes:
        while True:
            rest = b""
            if self._decompressor.eof:
                rest = self._decompressor.unused_data or self._archive.read(CHUNK_BYTES)
                # Streams may follow each other, with padding between them.
                while rest and not rest.strip(b"\0"):
                    rest = self._archive.read(CHUNK_BYTES)
                if not rest:
                    return b""
                self._decompressor = self._new()
                rest = rest.lstrip(b"\0")
            elif self._decompressor.needs_input:
                rest = self._archive.read(CHUNK_BYTES)
                if not rest:
                    raise EOFError("it ends too early")
            found: bytes = self._decompressor.decompress(rest, size)
            if found:
                return found


class _Forward(Struct):
    """A stream that `tarfile` can skip in, but not go back. Counts every byte, also those that are skipped."""

    _read: Callable[[int], bytes]
    _budget: UnpackingBudget
    _position: int = 0

    def tell(self) -> int:
        return self._position

    def read(self, size: int) -> bytes:
        if size > CHUNK_BYTES:
            # Only headers are read at once, and they are small.
            raise Failure("a header in the archive is too large")
        found = b""
        while len(found) < size:
            piece = self._read(size - len(found))
            if not piece:
                break
            self._budget.take_bytes(len(piece))
            found += piece
        self._position += len(found)
        return found

    def seek(self, position: int) -> None:
        while self._position < position:
            if not self.read(min(CHUNK_BYTES, position - self._position)):
                return

    def drain(self) -> None:
        """Reads to the end, where the checksum is."""
        while self.read(CHUNK_BYTES):
            pass


def _tar_entries(stream: _Forward) -> Iterator[_Entry]:
    with tarfile.TarFile(fileobj=stream, mode="r") as archive:  # type: ignore[arg-type]  # what it uses of a file
        for member in archive:
            # The library keeps every header, which no one needs again.
            archive.members = []  # type: ignore[attr-defined]
            kinds = (
                (member.isdir(), DIRECTORY),
                (member.isreg(), FILE),
                (member.issym(), LINK),
                (member.islnk(), HARD_LINK),
            )
            kind = next((kind for is_kind, kind in kinds if is_kind), None)
            if kind is None:
                raise Failure(f"{shorten(member.name)!r} in the archive is a device or a fifo; refused")
            content: Any = archive.extractfile(member) if kind == FILE else None
            if content is not None and member.issparse():
                # Its holes are not in the stream.
                content = _Plain(content)
            mode, mtime = member.mode & 0o777, float(member.mtime)
            yield _Entry(kind, member.name, mode, content=content, target=member.linkname, mtime=mtime)
    stream.drain()


def _zip_entries(archive: IO[bytes]) -> Iterator[_Entry]:
    with zipfile.ZipFile(archive) as opened:
        for member in opened.infolist():
            mode = member.external_attr >> 16
            kind = modes.S_IFMT(mode)
            if kind not in (0, modes.S_IFREG, modes.S_IFDIR, modes.S_IFLNK):
                raise Failure(f"{shorten(member.filename)!r} in the archive is a device or a fifo; refused")
            if member.flag_bits & 1:
                raise Failure(f"{shorten(member.filename)!r} in the archive is encrypted; refused")
            if member.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
                raise Failure(f"{shorten(member.filename)!r} in the archive is compressed in an unsupported way")
            mtime = time.mktime((*member.date_time, 0, 0, -1)) if member.date_time[0] >= 1980 else 0.0
            if member.is_dir():
                yield _Entry(DIRECTORY, member.filename, (mode or 0o755) & 0o777)
                continue
            with opened.open(member) as content:
                if kind == modes.S_IFLNK:
                    target = os.fsdecode(content.read(LONGEST_TARGET + 1))
                    yield _Entry(LINK, member.filename, mode, target=target)
                else:
                    yield _Entry(FILE, member.filename, mode & 0o777 or 0o644, content=_Plain(content), mtime=mtime)


class _Plain(Struct):
    """The content of an entry whose bytes the stream has not counted."""

    content: IO[bytes]


# ---- writing ----
class _Writer(Struct):
    """Creates entries below a directory. Parents are opened one by one and never through links."""

    _target: int
    _uid: int
    _gid: int
    _budget: UnpackingBudget
    # The directory of the last entry, which most entries share.
    _parent: tuple[list[str], int] | None = None
    # Directories get owner and mode at the end, so that they stay writable until then.
    _directories: dict[tuple[str, ...], int] = {}

    def write(self, entry: _Entry, names: list[str], strip: int) -> None:
        if entry.kind == DIRECTORY:
            self._make_directory(names, entry.mode)
            return
        directory = self._open_parent(names[:-1])
        name = names[-1]
        self._make_room(directory, name, entry.name)
        if entry.kind == FILE:
            self._write_file(directory, name, entry)
        elif entry.kind == LINK:
            _check_target(entry, len(names) - 1)
            os.symlink(entry.target, name, dir_fd=directory)
            os.chown(name, self._uid, self._gid, dir_fd=directory, follow_symlinks=False)
        else:
            self._link(directory, name, entry, strip)

    def _write_file(self, directory: int, name: str, entry: _Entry) -> None:
        content = entry.content
        counts = isinstance(content, _Plain)
        stream = content.content if isinstance(content, _Plain) else content
        with Closing(os.open(name, NEW_FILE, 0o600, dir_fd=directory)) as descriptor:
            while chunk := stream.read(CHUNK_BYTES):
                if counts:
                    self._budget.take_bytes(len(chunk))
                write_all(descriptor, chunk)
            self._give(descriptor, entry.name)
            os.fchmod(descriptor, entry.mode)
            if 0 < entry.mtime < 2**40:
                os.utime(descriptor, (entry.mtime, entry.mtime))

    def _link(self, directory: int, name: str, entry: _Entry, strip: int) -> None:
        target = _names_of(entry.target)[strip:]
        if not target:
            raise Failure(f"{shorten(entry.name)!r} in the archive is a hard link to an entry that is left out")
        with self._opened(target[:-1], entry) as source:
            try:
                found = os.lstat(target[-1], dir_fd=source)
            except FileNotFoundError:
                raise Failure(
                    f"{shorten(entry.name)!r} in the archive is a hard link to {shorten(entry.target)!r}, which is not in it"
                ) from None
            if not modes.S_ISREG(found.st_mode):
                # A second name of a link may lead elsewhere.
                raise Failure(f"{shorten(entry.name)!r} in the archive is a hard link to what is no file; refused")
            os.link(target[-1], name, src_dir_fd=source, dst_dir_fd=directory, follow_symlinks=False)

    def _make_room(self, directory: int, name: str, shown: str) -> None:
        """Removes an earlier entry of the same name; the last one counts, as for tar."""
        try:
            found = os.lstat(name, dir_fd=directory)
        except FileNotFoundError:
            return
        if modes.S_ISDIR(found.st_mode):
            raise Failure(f"{shorten(shown)!r} is a directory and a file in the archive")
        os.unlink(name, dir_fd=directory)

    def _make_directory(self, names: list[str], mode: int) -> None:
        parent = self._open_parent(names[:-1])
        try:
            os.mkdir(names[-1], 0o700, dir_fd=parent)
        except FileExistsError:
            if not modes.S_ISDIR(os.lstat(names[-1], dir_fd=parent).st_mode):
                raise Failure(f"{shorten('/'.join(names))!r} is a directory and a file in the archive") from None
        self._directories[tuple(names)] = mode | 0o700

    def _open_parent(self, names: list[str]) -> int:
        if self._parent is not None:
            if self._parent[0] == names:
                return self._parent[1]
            os.close(self._parent[1])
            self._parent = None
        opened = os.dup(self._target)
        try:
            for depth, name in enumerate(names):
                try:
                    os.mkdir(name, 0o700, dir_fd=opened)
                    self._budget.take_entry()
                    self._directories[tuple(names[: depth + 1])] = 0o755
                except FileExistsError:
                    pass
                inner = _open_directory(name, opened, "/".join(names))
                os.close(opened)
                opened = inner
        except BaseException:
            os.close(opened)
            raise
        self._parent = (names, opened)
        return opened

    @contextmanager
    def _opened(self, names: list[str], entry: _Entry) -> Iterator[int]:
        """A directory that exists already."""
        opened = os.dup(self._target)
        try:
            for name in names:
                inner = _open_directory(name, opened, entry.target)
                os.close(opened)
                opened = inner
            yield opened
        finally:
            os.close(opened)

    def _give(self, descriptor: int, shown: str) -> None:
        give_away(descriptor, os.fstat(descriptor), self._uid, self._gid, shorten(shown))

    def finish(self) -> None:
        for names in sorted(self._directories, reverse=True):
            parent = self._open_parent(list(names[:-1]))
            with Closing(_open_directory(names[-1], parent, "/".join(names))) as descriptor:
                self._give(descriptor, "/".join(names))
                os.fchmod(descriptor, self._directories[names])

    def close(self) -> None:
        if self._parent is not None:
            os.close(self._parent[1])
            self._parent = None


def _open_directory(name: str, parent: int, shown: str) -> int:
    try:
        return os.open(name, DIRECTORY_FLAGS, dir_fd=parent)
    except OSError:
        raise Failure(f"{shorten(shown)!r} in the archive is below a link or a file; refused") from None


def _names_of(name: str) -> list[str]:
    names = [part for part in name.split("/") if part not in ("", ".")]
    if name.startswith("/") or ".." in names or "\0" in name:
        raise Failure(f"{shorten(name)!r} in the archive would be outside the target; refused")
    if len(names) > DEEPEST + 1:
        raise Failure(f"{shorten(name)!r} in the archive is deeper than {DEEPEST} directories; refused")
    return names


def _check_target(entry: _Entry, depth: int) -> None:
    """A link may go up to the top and then down. `..` after a name is refused: this name may be a link."""
    target = entry.target
    parts = [part for part in target.split("/") if part not in ("", ".")]
    up = next((index for index, part in enumerate(parts) if part != ".."), len(parts))
    if not target or target.startswith("/") or len(target) > LONGEST_TARGET or up > depth or ".." in parts[up:]:
        raise Failure(
            f"{shorten(entry.name)!r} in the archive is a link to {shorten(target)!r}, which may be outside the target; refused"
        )
