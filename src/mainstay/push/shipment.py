"""What travels to hosts, by digest: the program file and the manifest with its files."""

from __future__ import annotations

import os
from hashlib import sha256

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

CHUNK_BYTES = 256 * 1024


class Shipment:
    """A file with its digest and size."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.size = os.path.getsize(path)
        digest = sha256()
        for piece in self.pieces():
            digest.update(piece)
        self.digest = digest.hexdigest()

    def pieces(self) -> Iterator[bytes]:
        with open(self.path, "rb") as file:
            while piece := file.read(CHUNK_BYTES):
                yield piece
