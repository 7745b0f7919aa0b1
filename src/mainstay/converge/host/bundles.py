"""Unpacks bundles: only regular files and directories, bounded, and nothing that would leave the target."""

from __future__ import annotations

import os
import shutil
import tarfile
import zipfile

from mainstay.converge.contract import DoesNotLoad, Fault

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import IO

    from mainstay.converge.host.state import StateDirectory

MOST_ENTRIES = 10_000
LARGEST_BYTES = 1024 * 1024 * 1024
CHUNK_BYTES = 1024 * 1024


class Refused(Exception):
    """An entry that must not be unpacked."""


def unpack(real: str, name: str, state: StateDirectory, run_id: str) -> tuple[str, Callable[[], None]]:
    """The folder the bundle was unpacked to, and how to be rid of it; raises `DoesNotLoad`."""
    parent = state.directory("unpacked")
    remove_dead(parent)
    target = os.path.join(parent, f"{run_id}-{os.getpid()}")
    os.mkdir(target, 0o700)

    def close() -> None:
        shutil.rmtree(target, ignore_errors=True)

    try:
        entries = zip_entries(real) if real.endswith(".zip") else tar_entries(real)
        write_entries(entries, target)
        if not os.path.isfile(os.path.join(target, "manifest.yaml")):
            raise Refused("there is no manifest.yaml at its root")
    except (
        OSError,
        Refused,
        tarfile.TarError,
        zipfile.BadZipFile,
        EOFError,
        ValueError,
        RuntimeError,
        NotImplementedError,
    ) as error:
        close()
        reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        raise DoesNotLoad([Fault(name, None, None, f"the bundle cannot be unpacked: {reason}")]) from None
    except BaseException:
        close()
        raise
    return target, close


def remove_dead(parent: str) -> None:
    """What a killed run left behind."""
    for entry in os.listdir(parent):
        pid = entry.rpartition("-")[2]
        if not os.path.exists(f"/proc/{pid}"):
            shutil.rmtree(os.path.join(parent, entry), ignore_errors=True)


def tar_entries(path: str) -> Iterator[tuple[str, IO[bytes] | None, int]]:
    with tarfile.open(path, "r:gz") as archive:
        for member in archive:
            if member.isdir():
                yield member.name, None, 0
            elif member.isreg():
                yield member.name, archive.extractfile(member), member.mode
            else:
                raise Refused(f"{member.name!r} is neither a file nor a directory")


def zip_entries(path: str) -> Iterator[tuple[str, IO[bytes] | None, int]]:
    with zipfile.ZipFile(path) as archive:
        for member in archive.infolist():
            kind = member.external_attr >> 16 & 0o170000
            if member.is_dir():
                yield member.filename, None, 0
            elif kind in (0, 0o100000):
                with archive.open(member) as content:
                    yield member.filename, content, member.external_attr >> 16
            else:
                raise Refused(f"{member.filename!r} is neither a file nor a directory")


def write_entries(entries: Iterator[tuple[str, IO[bytes] | None, int]], target: str) -> None:
    room = LARGEST_BYTES
    for count, (name, content, mode) in enumerate(entries):
        if count >= MOST_ENTRIES:
            raise Refused(f"it has more than {MOST_ENTRIES} entries")
        place = safe_place(name, target)
        if content is None:
            os.makedirs(place, mode=0o700, exist_ok=True)
            continue
        os.makedirs(os.path.dirname(place), mode=0o700, exist_ok=True)
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        with open(os.open(place, flags, 0o700 if mode & 0o100 else 0o600), "wb") as file:
            while chunk := content.read(CHUNK_BYTES):
                room -= len(chunk)
                if room < 0:
                    raise Refused(f"it holds more than {LARGEST_BYTES // 1024 // 1024} MB")
                file.write(chunk)


def safe_place(name: str, target: str) -> str:
    parts = [part for part in name.split("/") if part not in ("", ".")]
    if name.startswith("/") or "\\" in name or "\0" in name or ".." in parts:
        raise Refused(f"{name!r} would leave the target")
    return os.path.join(target, *parts) if parts else target
