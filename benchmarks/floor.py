"""The bare floor: a Python loop that does only the work, including its own start.

It reads the same manifest as libyaml events and hard-codes the positions of the values. It validates nothing, decides
nothing, reports nothing and has no crash safety: a lower bound for any tool in Python.
"""

from __future__ import annotations

import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import Any

# Scalars before the first resource, and per resource of each kind.
SCALARS_BEFORE, SCALARS_PER_FILE, SCALARS_PER_EXEC = 2, 11, 5
CHUNK_BYTES = 1024 * 1024
NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC


def scalars(manifest: str) -> list[str]:
    from yaml._yaml import CParser
    from yaml.events import ScalarEvent, StreamEndEvent

    with open(manifest, "rb") as file:
        take = CParser(file.read()).get_event
    found = []
    while True:
        event = take()
        if event.__class__ is ScalarEvent:
            found.append(event.value)
        elif event.__class__ is StreamEndEvent:
            return found


def wanted_files(manifest: str) -> Iterator[tuple[str, bytes]]:
    values = scalars(manifest)
    for index in range(SCALARS_BEFORE, len(values), SCALARS_PER_FILE):
        yield values[index], values[index + SCALARS_PER_FILE - 1].encode()


def create_files(manifest: str) -> None:
    uid, gid = os.getuid(), os.getgid()
    path = ""
    for path, content in wanted_files(manifest):
        write_file(path, content, uid, gid)
    sync_once(path)


def write_file(path: str, content: bytes, uid: int, gid: int) -> None:
    temp = f"{path}.new"
    descriptor = os.open(temp, NEW, 0o600)
    os.write(descriptor, content)
    os.fchown(descriptor, uid, gid)
    os.fchmod(descriptor, 0o644)
    os.close(descriptor)
    os.rename(temp, path)


def is_in_sync(path: str, content: bytes, uid: int, gid: int, sha256: Callable[[bytes], Any]) -> bool:
    found = os.lstat(path)
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    actual = os.read(descriptor, found.st_size + 1)
    os.close(descriptor)
    return (
        found.st_mode == 0o100644
        and found.st_uid == uid
        and found.st_gid == gid
        and sha256(actual).digest() == sha256(content).digest()
    )


def check_files(manifest: str) -> None:
    from hashlib import sha256

    uid, gid = os.getuid(), os.getgid()
    if not all(is_in_sync(path, content, uid, gid, sha256) for path, content in wanted_files(manifest)):
        sys.exit("a file is not in its desired state")


def repair_files(manifest: str) -> None:
    from hashlib import sha256

    uid, gid = os.getuid(), os.getgid()
    path = ""
    for path, content in wanted_files(manifest):
        if not is_in_sync(path, content, uid, gid, sha256):
            write_file(path, content, uid, gid)
    sync_once(path)


def sync_once(path: str) -> None:
    import ctypes

    descriptor = os.open(os.path.dirname(path), os.O_RDONLY | os.O_CLOEXEC)
    ctypes.CDLL(None).syncfs(descriptor)
    os.close(descriptor)


def skip_commands(manifest: str) -> None:
    values = scalars(manifest)
    for index in range(SCALARS_BEFORE, len(values), SCALARS_PER_EXEC):
        os.stat(values[index + 4])


def run_commands(manifest: str) -> None:
    values = scalars(manifest)
    null = (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0)
    for index in range(SCALARS_BEFORE, len(values), SCALARS_PER_EXEC):
        words = values[index + 2].split()
        if not os.path.exists(values[index + 4]):
            os.waitpid(os.posix_spawn(words[0], words, os.environ, file_actions=[null]), 0)


def create_copy(manifest: str) -> None:
    values = scalars(manifest)
    path, source = values[SCALARS_BEFORE], values[-1]
    temp = f"{path}.new"
    descriptor = os.open(temp, NEW, 0o600)
    incoming = os.open(source, os.O_RDONLY | os.O_CLOEXEC)
    while chunk := os.read(incoming, CHUNK_BYTES):
        os.write(descriptor, chunk)
    os.fchown(descriptor, os.getuid(), os.getgid())
    os.fchmod(descriptor, 0o644)
    os.fsync(descriptor)
    os.close(descriptor)
    os.rename(temp, path)


def check_copy(manifest: str) -> None:
    values = scalars(manifest)
    ours = os.open(values[SCALARS_BEFORE], os.O_RDONLY | os.O_CLOEXEC)
    theirs = os.open(values[-1], os.O_RDONLY | os.O_CLOEXEC)
    while chunk := os.read(ours, CHUNK_BYTES):
        if chunk != os.read(theirs, CHUNK_BYTES):
            sys.exit("the copy differs")


WORK = {
    ("files", "create"): create_files,
    ("files", "no-op"): check_files,
    ("files", "1 % drift"): repair_files,
    ("commands", "skipped"): skip_commands,
    ("commands", "run"): run_commands,
    ("copy", "create"): create_copy,
    ("copy", "no-op"): check_copy,
}

if __name__ == "__main__":
    WORK[sys.argv[1], sys.argv[2]](sys.argv[3])
