"""Private files: mode 0600 from the first byte on, written whole or not at all."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress

from mainstay.foundation import TypeAlias

FilePath: TypeAlias = "str | os.PathLike[str]"


def write_private_file(
    path: FilePath, content: bytes | Iterable[bytes], *, durable: bool = False, keep_existing: bool = False
) -> None:
    """`durable`: on the disk when this returns. `keep_existing`: the first writer wins."""
    with private_draft(path, durable=durable, keep_existing=keep_existing) as descriptor:
        for piece in (content,) if isinstance(content, bytes) else content:
            write_all(descriptor, piece)


@contextmanager
def private_draft(path: FilePath, *, durable: bool = False, keep_existing: bool = False) -> Iterator[int]:
    """Yields the descriptor of a new file, which replaces `path` when the block ends without an exception."""
    draft = f"{os.fspath(path)}.{os.getpid()}.{os.urandom(4).hex()}.new"
    descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        with Closing(descriptor):
            yield descriptor
            if durable:
                os.fsync(descriptor)
        if keep_existing:
            _link(draft, path)
        else:
            os.rename(draft, path)
    except BaseException:
        remove(draft)
        raise
    if durable:
        fsync_directory(os.path.dirname(path) or ".")


def _link(draft: str, path: FilePath) -> None:
    with suppress(FileExistsError):
        os.link(draft, path)
    os.unlink(draft)


def is_abandoned(path: str) -> bool:
    """Whether the path is a draft of a process that no longer runs."""
    _, *parts = path.rsplit(".", 3)
    return len(parts) == 3 and parts[2] == "new" and not os.path.exists(f"/proc/{parts[0]}")


def write_all(descriptor: int, content: bytes) -> None:
    """Writes all of `content`; the kernel may take it in several parts."""
    while content:
        content = content[os.write(descriptor, content) :]


class Closing:
    """Closes an open descriptor when the block ends. A class, because a generator takes four times as long."""

    __slots__ = ("_descriptor",)

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor

    def __enter__(self) -> int:
        return self._descriptor

    def __exit__(self, *error: object) -> None:
        os.close(self._descriptor)


def fsync_directory(path: str) -> None:
    with Closing(os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)) as descriptor:
        os.fsync(descriptor)


def remove_incomplete_line(descriptor: int) -> None:
    """Removes a last line that a crash left incomplete, so that the next line does not continue it."""
    size = os.fstat(descriptor).st_size
    if size and os.pread(descriptor, 1, size - 1) != b"\n":
        os.ftruncate(descriptor, os.pread(descriptor, size, 0).rfind(b"\n") + 1)


def remove(path: str) -> None:
    """Removes a file that may already be gone."""
    try:
        os.unlink(path)
    except (FileNotFoundError, NotADirectoryError):
        return
