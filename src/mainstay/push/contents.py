"""What travels with a manifest, by the digest of each file: the contents, and the index that names them."""

from __future__ import annotations

import json
import os
import zlib
from collections.abc import Collection, Iterable, Iterator
from hashlib import sha256
from threading import Lock

from mainstay.foundation.faults import refused

CHUNK_BYTES = 256 * 1024
LARGEST_BYTES = 1024 * 1024 * 1024
COMPRESSION_LEVEL = 6


class SourceChanged(Exception):
    """A file has other content than at the beginning of the push. The text states the way out."""


class Content:
    """The content of one or more files. It is packed once, when the first host needs it."""

    def __init__(self, path: str, digest: str, size: int, packed_path: str) -> None:
        self.path = path
        self.digest = digest
        self.size = size
        # False: it may contain secrets, so hosts use it for one run only.
        self.is_kept = True
        self._packed_path = packed_path
        self._is_packed = False
        self._lock = Lock()

    def pack(self) -> int:
        """Returns the packed size; raises `SourceChanged`. Called by several threads."""
        with self._lock:
            if not self._is_packed:
                self._write_packed()
                self._is_packed = True
        return os.path.getsize(self._packed_path)

    def _write_packed(self) -> None:
        digest = sha256()
        packing = zlib.compressobj(COMPRESSION_LEVEL)
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC
        with open(os.open(self._packed_path, flags, 0o600), "wb") as packed:
            for piece in _pieces(self.path):
                digest.update(piece)
                packed.write(packing.compress(piece))
            packed.write(packing.flush())
        if digest.hexdigest() != self.digest:
            raise SourceChanged(f"{self.path} was changed during the push; push again")

    def packed_pieces(self) -> Iterator[bytes]:
        return _pieces(self._packed_path)


class ContentIndex:
    """The files of a manifest: their names, and their contents without repetitions."""

    def __init__(self, manifest: str, folder: str) -> None:
        """`manifest` is its name among the files; `folder` is a private directory for packed contents."""
        self.manifest = manifest
        self._folder = folder
        self.contents: list[Content] = []
        self._numbers: dict[str, int] = {}
        self._files: list[tuple[str, int, bool]] = []
        self._directories: list[str] = []
        self._left_bytes = LARGEST_BYTES

    def add(self, root: str, paths: Iterable[str], private: Collection[str]) -> None:
        """Adds files below `root`; raises `DoesNotLoad`."""
        for path in sorted(paths):
            try:
                number, is_executable = self._content_of(path)
            except OSError as error:
                raise refused(path, f"cannot be read: {error.strerror}") from None
            if path in private:
                self.contents[number].is_kept = False
            self._files.append((os.path.relpath(path, root), number, is_executable))

    def add_directory(self, name: str) -> None:
        self._directories.append(name)

    def _content_of(self, path: str) -> tuple[int, bool]:
        digest = sha256()
        size = 0
        for piece in _pieces(path):
            digest.update(piece)
            size += len(piece)
            if size > self._left_bytes:
                limit = LARGEST_BYTES // 1024 // 1024
                raise refused(self.manifest, f"its files are larger than {limit} MB")
        self._left_bytes -= size
        name = digest.hexdigest()
        number = self._numbers.setdefault(name, len(self.contents))
        if number == len(self.contents):
            self.contents.append(Content(path, name, size, os.path.join(self._folder, name)))
        return number, bool(os.stat(path).st_mode & 0o100)

    def document(self) -> bytes:
        """The index as hosts receive it. Its bytes depend only on names, contents, x bits and what is private."""
        contents = [[content.digest, content.size, content.is_kept] for content in self.contents]
        files = [[name, number, is_executable] for name, number, is_executable in self._files]
        return json.dumps({"contents": contents, "files": files, "directories": self._directories}).encode("ascii")


class Shipment:
    """What every host needs as a whole, by the digest of its content: the program file, or the index."""

    def __init__(self, content: bytes, *, is_packed: bool) -> None:
        self.digest = sha256(content).hexdigest()
        # A program file is packed already.
        self.travelling = content if is_packed else zlib.compress(content, 9)


def _pieces(path: str) -> Iterator[bytes]:
    with open(path, "rb") as file:
        while piece := file.read(CHUNK_BYTES):
            yield piece
