"""SHA-256 as text. Small contents use the interpreter's own module: loading OpenSSL costs more than many of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import lru_cache

from mainstay.foundation import Any

LARGEST_SMALL_BYTES = 256 * 1024


def sha256_of(content: bytes) -> str:
    value: str = _sha256(is_small=len(content) < LARGEST_SMALL_BYTES)(content).hexdigest()
    return value


def sha256_of_pieces(pieces: Iterator[bytes]) -> str:
    first = next(pieces, b"")
    digest = _sha256(is_small=len(first) < LARGEST_SMALL_BYTES)(first)
    for piece in pieces:
        digest.update(piece)
    value: str = digest.hexdigest()
    return value


@lru_cache(maxsize=2)
def _sha256(*, is_small: bool) -> Callable[[bytes], Any]:
    from importlib import import_module

    for name in ("_sha2", "_sha256") if is_small else ():
        try:
            own: Callable[[bytes], Any] = import_module(name).sha256
        except (ImportError, AttributeError):
            continue
        return own
    from hashlib import sha256

    return sha256
