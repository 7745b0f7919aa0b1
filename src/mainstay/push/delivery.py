"""The host's side of a transfer: what is missing, what arrives, and the tree of files of one run. Runs on Python 3.9."""

from __future__ import annotations

import os
import zlib
from collections.abc import Iterator, Sequence
from hashlib import sha256

from mainstay.converge.host.bundles import BundleEntry, write_entries
from mainstay.foundation import IO
from mainstay.push.content_store import ContentStore, TransferRefused, unpack_content

CHUNK_BYTES = 1 << 20
LARGEST_INDEX_BYTES = 16 * 1024 * 1024
LONGEST_NUMBER = 20


class Delivery:
    """The contents and names of one index. `index` is the document that the host has, else None: it arrived packed."""

    def __init__(self, store: ContentStore, digest: str, index: bytes | None, packed: bytes) -> None:
        import json

        self._store = store
        document = _unpacked_index(packed, digest) if index is None else index
        read = json.loads(document)
        self._contents = [(digest, size, is_kept) for digest, size, is_kept in read["contents"]]
        self._files = read["files"]
        self._directories = read["directories"]
        self._used = {digest, *(content[0] for content in self._contents)}
        is_kept = all(content[2] for content in self._contents)
        # The digest of a secret is not kept either: it would confirm a guess.
        if is_kept and not store.has(digest, len(document)):
            store.store(digest, len(document), iter((zlib.compress(document),)))

    def needed(self) -> list[int]:
        """Numbers of the contents that the host lacks, or must not keep."""
        return [
            number
            for number, (digest, size, is_kept) in enumerate(self._contents)
            if not is_kept or not self._store.has(digest, size)
        ]

    def receive(self, reader: IO[bytes], needed: Sequence[int], target: str) -> None:
        """Reads the needed contents, and writes all files into the new directory `target`."""
        private = os.path.join(target, "private")
        os.mkdir(private, 0o700)
        for number in needed:
            digest, size, is_kept = self._contents[number]
            packed = _packed_pieces(reader)
            if is_kept:
                self._store.store(digest, size, packed)
            else:
                unpack_content(os.path.join(private, digest), digest, size, packed)
        write_entries(self._entries(private), os.path.join(target, "files"))
        for name in os.listdir(private):
            os.unlink(os.path.join(private, name))
        self._store.close(self._used)

    def _entries(self, private: str) -> Iterator[BundleEntry]:
        yield BundleEntry(".")
        for name in self._directories:
            yield BundleEntry(name)
        for name, number, is_executable in self._files:
            digest, size, is_kept = self._contents[number]
            path = self._store.path_of(digest) if is_kept else os.path.join(private, digest)
            with open(path, "rb") as content:
                yield BundleEntry(name, content, size, 0o700 if is_executable else 0o600)


def _unpacked_index(packed: bytes, digest: str) -> bytes:
    unpacking = zlib.decompressobj()
    try:
        document = unpacking.decompress(packed, LARGEST_INDEX_BYTES)
    except zlib.error:
        document = b""
    if sha256(document).hexdigest() != digest:
        raise TransferRefused("the list of files arrived damaged: its digest differs")
    return document


def _packed_pieces(reader: IO[bytes]) -> Iterator[bytes]:
    """One packed content: its size on a line, then its bytes."""
    line = reader.readline(LONGEST_NUMBER)
    if not line.endswith(b"\n") or not line[:-1].isdigit():
        raise TransferRefused("the connection ended early")
    left = int(line)
    while left:
        piece = reader.read(min(left, CHUNK_BYTES))
        if not piece:
            raise TransferRefused("the transfer of the files ended early")
        left -= len(piece)
        yield piece
