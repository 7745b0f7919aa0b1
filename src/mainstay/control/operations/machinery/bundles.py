"""Bundles: a blueprint as one .tar.gz, unpacked in memory and within bounds, never to disk."""

from __future__ import annotations

import io
import re
import tarfile
import zlib

from mainstay.control.operations.machinery.refusals import BadInput

MAX_UNPACKED_BYTES = 32 * 1024 * 1024
MAX_FILES = 2000
MAX_NAME = 500
# The window size with which zlib expects a gzip header.
GZIP_WINDOW = 31
PART = re.compile(r"[^\x00-\x1f\x7f/\\]{1,255}")


class NotABundle(BadInput):
    code = "not_a_bundle"


def open_bundle(bundle: bytes) -> dict[str, bytes]:
    """Name → content of every file."""
    files: dict[str, bytes] = {}
    try:
        with tarfile.open(fileobj=io.BytesIO(_unpack(bundle)), mode="r:") as archive:
            for entry in archive:
                _check(entry, files)
                content = archive.extractfile(entry)
                files[entry.name] = b"" if content is None else content.read()
    except (tarfile.TarError, ValueError, EOFError, OSError, RecursionError):
        raise NotABundle("a blueprint is a .tar.gz; this archive is damaged or incomplete") from None
    return files


def _unpack(bundle: bytes) -> bytes:
    unpacker = zlib.decompressobj(GZIP_WINDOW)
    try:
        content = unpacker.decompress(bundle, MAX_UNPACKED_BYTES + 1)
    except zlib.error:
        raise NotABundle("a blueprint is a .tar.gz") from None
    if len(content) > MAX_UNPACKED_BYTES:
        raise NotABundle(f"the unpacked blueprint is larger than {MAX_UNPACKED_BYTES} bytes")
    if not unpacker.eof or unpacker.unused_data:
        raise NotABundle("a blueprint is one .tar.gz; this one is incomplete or has extra bytes at the end")
    return content


def _check(entry: tarfile.TarInfo, files: dict[str, bytes]) -> None:
    shown = entry.name[:100]
    if entry.type not in (tarfile.REGTYPE, tarfile.AREGTYPE) or entry.issparse() or entry.size < 0:
        raise NotABundle(
            f"a blueprint contains only regular files, and {shown!r} is not one; pack it with `mainstay blueprint push`"
        )
    parts = entry.name.split("/")
    if len(entry.name) > MAX_NAME or not all(PART.fullmatch(part) and part not in (".", "..") for part in parts):
        raise NotABundle(f"invalid file name in the blueprint: {shown!r}")
    if entry.name in files:
        raise NotABundle(f"{shown!r} is in the blueprint twice")
    if len(files) == MAX_FILES:
        raise NotABundle(f"a blueprint contains at most {MAX_FILES} files")
