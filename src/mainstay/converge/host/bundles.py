"""Unpacks bundles: only regular files and directories, bounded, and nothing outside the target."""

from __future__ import annotations

import os
import shutil
import stat
import tarfile
import zipfile
from collections.abc import Callable, Iterator

from mainstay.converge.host.state import StateDirectory
from mainstay.foundation import IO, Struct
from mainstay.foundation.faults import refused
from mainstay.foundation.text import shorten

MANIFEST_NAME = "manifest.yaml"
MOST_ENTRIES = 10_000
LARGEST_BYTES = 1024 * 1024 * 1024
CHUNK_BYTES = 1024 * 1024


class BundleRefused(Exception):
    """An entry that must not be unpacked."""


def unpack(
    real: str,
    name: str,
    state: StateDirectory,
    run_id: str,
    *,
    is_zip: bool,
    may_have_top: bool = False,
) -> tuple[str, Callable[[], None]]:
    """Returns the folder of the unpacked manifest and a function that removes the bundle; raises `DoesNotLoad`.

    `may_have_top`: all entries may be below one directory, which is then the root."""
    parent = unpacking_directory(state)
    target = os.path.join(parent, f"{run_id}-{os.getpid()}")
    os.mkdir(target, 0o700)

    def close() -> None:
        shutil.rmtree(target, ignore_errors=True)

    try:
        entries = _zip_entries(real) if is_zip else tar_entries(real)
        write_entries(entries, target)
        folder = _find_root(target, may_have_top=may_have_top)
    except (BundleRefused, OSError) as error:
        close()
        reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        raise refused(name, f"the bundle cannot be unpacked: {reason}") from None
    except Exception as error:  # noqa: BLE001  # the readers raise many exceptions for a damaged archive
        close()
        reason = f"it is damaged or not a {'.zip' if is_zip else '.tar.gz'}: {error}"
        raise refused(name, f"the bundle cannot be unpacked: {reason}") from None
    except BaseException:
        close()
        raise
    return folder, close


def _find_root(target: str, *, may_have_top: bool) -> str:
    names = os.listdir(target)
    folders = [target]
    if may_have_top and len(names) == 1:
        folders.append(os.path.join(target, names[0]))
    for folder in folders:
        if os.path.isfile(os.path.join(folder, MANIFEST_NAME)):
            return folder
    below = " or below its only directory" if may_have_top else ""
    raise BundleRefused(f"it has no {MANIFEST_NAME} at its root{below}")


def unpacking_directory(state: StateDirectory) -> str:
    """Returns the private directory of unpacked bundles, without what killed runs left."""
    parent = state.directory("unpacked")
    for entry in os.listdir(parent):
        pid = entry.rpartition("-")[2]
        if not os.path.exists(f"/proc/{pid}"):
            shutil.rmtree(os.path.join(parent, entry), ignore_errors=True)
    return parent


class BundleEntry(Struct):
    """A file or directory in a bundle; `content` is None for a directory."""

    name: str
    content: IO[bytes] | None = None
    size: int = 0
    mode: int = 0


class PlainTar:
    """The decompressed stream of a tar file. Bounds reads, because only headers are read at once and they are small."""

    def __init__(self, stream: IO[bytes]) -> None:
        self.stream = stream
        self.seek = stream.seek
        self.tell = stream.tell

    def read(self, size: int) -> bytes:
        if size > CHUNK_BYTES:
            raise BundleRefused("a header in it is too large")
        return self.stream.read(size)


def tar_entries(path: str) -> Iterator[BundleEntry]:
    import gzip

    with gzip.open(path) as stream:
        with tarfile.TarFile(fileobj=PlainTar(stream), mode="r") as archive:  # type: ignore[arg-type]
            for member in archive:
                if member.isdir():
                    yield BundleEntry(member.name)
                elif member.isreg():
                    yield BundleEntry(member.name, archive.extractfile(member), member.size, member.mode)
                else:
                    raise BundleRefused(f"{shorten(member.name)!r} is neither a file nor a directory")
        # Read to the end of the stream, where its checksum is.
        for _ in range(LARGEST_BYTES // CHUNK_BYTES):
            if not stream.read(CHUNK_BYTES):
                return
        raise BundleRefused(f"it contains more than {LARGEST_BYTES // 1024 // 1024} MB")


def _zip_entries(path: str) -> Iterator[BundleEntry]:
    with zipfile.ZipFile(path) as archive:
        for member in archive.infolist():
            mode = member.external_attr >> 16
            if stat.S_IFMT(mode) not in (0, stat.S_IFREG, stat.S_IFDIR):
                raise BundleRefused(f"{shorten(member.filename)!r} is neither a file nor a directory")
            if member.is_dir():
                yield BundleEntry(member.filename)
            else:
                with archive.open(member) as content:
                    yield BundleEntry(member.filename, content, member.file_size, mode)


def write_entries(entries: Iterator[BundleEntry], target: str, largest_bytes: int = LARGEST_BYTES) -> None:
    remaining_bytes = largest_bytes
    for count, entry in enumerate(entries):
        if count >= MOST_ENTRIES:
            raise BundleRefused(f"it has more than {MOST_ENTRIES} entries")
        place = _safe_place(entry.name, target)
        try:
            os.makedirs(os.path.dirname(place) if entry.content else place, mode=0o700, exist_ok=True)
        except FileExistsError:
            raise BundleRefused(f"{shorten(entry.name)!r} is below a file") from None
        if entry.content is None:
            continue
        # Neither reader returns more than the declared size of an entry.
        remaining_bytes -= entry.size
        if remaining_bytes < 0:
            raise BundleRefused(f"it contains more than {largest_bytes // 1024 // 1024} MB")
        _write(place, entry, entry.content)


def _write(place: str, entry: BundleEntry, content: IO[bytes]) -> None:
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    try:
        descriptor = os.open(place, flags, 0o700 if entry.mode & 0o100 else 0o600)
    except FileExistsError:
        raise BundleRefused(f"it contains {shorten(entry.name)!r} twice") from None
    with open(descriptor, "wb") as file:
        shutil.copyfileobj(content, file, CHUNK_BYTES)


def _safe_place(name: str, target: str) -> str:
    parts = [part for part in name.split("/") if part not in ("", ".")]
    if name.startswith("/") or "\\" in name or "\0" in name or ".." in parts:
        raise BundleRefused(f"{shorten(name)!r} would be outside the target")
    return os.path.join(target, *parts) if parts else target
