"""What every host needs as a whole, by digest: the program file, and the index of the manifest's files."""

from __future__ import annotations

import zlib
from hashlib import sha256


class Shipment:
    """A document as it travels, and the digest of its content."""

    def __init__(self, content: bytes, *, is_packed: bool) -> None:
        self.digest = sha256(content).hexdigest()
        # A program file is packed already.
        self.travelling = content if is_packed else zlib.compress(content, 9)
