"""Bundles: a blueprint as one .tar.gz, opened in memory and within bounds. Nothing of it ever reaches the disk as files."""

from __future__ import annotations

import io
import re
import tarfile
import zlib

from mainstay.control.operations.machinery.refusals import BadInput

MAX_UNPACKED_BYTES = 32 * 1024 * 1024
MAX_FILES = 2000
MAX_NAME = 500
# zlib's word for "expect the header of gzip".
GZIP = 31
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
        raise NotABundle("a blueprint is a .tar.gz; this one holds no whole archive") from None
    return files


def _unpack(bundle: bytes) -> bytes:
    unpacker = zlib.decompressobj(GZIP)
    try:
        content = unpacker.decompress(bundle, MAX_UNPACKED_BYTES + 1)
    except zlib.error:
        raise NotABundle("a blueprint is a .tar.gz") from None
    if len(content) > MAX_UNPACKED_BYTES:
        raise NotABundle(f"the blueprint is larger than {MAX_UNPACKED_BYTES} bytes when it is unpacked")
    if not unpacker.eof or unpacker.unused_data:
        raise NotABundle("a blueprint is one .tar.gz, whole and with nothing after it")
    return content


def _check(entry: tarfile.TarInfo, files: dict[str, bytes]) -> None:
    shown = entry.name[:100]
    if entry.type not in (tarfile.REGTYPE, tarfile.AREGTYPE) or entry.issparse() or entry.size < 0:
        raise NotABundle(
            f"a blueprint holds plain files only, and {shown!r} is none; `mainstay blueprint push` packs it"
        )
    parts = entry.name.split("/")
    if len(entry.name) > MAX_NAME or not all(PART.fullmatch(part) and part not in (".", "..") for part in parts):
        raise NotABundle(f"the name {shown!r} is not taken in a blueprint")
    if entry.name in files:
        raise NotABundle(f"{shown!r} is in the blueprint twice")
    if len(files) == MAX_FILES:
        raise NotABundle(f"a blueprint holds at most {MAX_FILES} files")
