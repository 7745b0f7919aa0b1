"""Bundles from a URL: fetched by HTTPS into a private file, compared with their digest, and unpacked like local ones."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable
from urllib.parse import SplitResult, urlsplit

from mainstay.converge.failures import Failure, StopFlag
from mainstay.converge.host.bundles import LARGEST_BYTES, unpack, unpacking_directory
from mainstay.converge.host.downloads import Download, is_private
from mainstay.converge.host.file_reading import read_all
from mainstay.converge.host.state import StateDirectory
from mainstay.foundation.digests import sha256_of_pieces
from mainstay.foundation.faults import refused

DIGEST_CHARACTERS = frozenset("0123456789abcdef")
LONGEST_URL = 4096
GZIP_MAGIC, ZIP_MAGIC = b"\x1f\x8b", b"PK"
NO_BUNDLE = (
    "a URL must name a bundle: a .tgz, .tar.gz or .zip with manifest.yaml and its files;"
    " `tar -czf site.tgz -C DIRECTORY .` makes one"
)


def open_fetched(
    url: str, state: StateDirectory, run_id: str, sha256: str | None, ca_file: str | None
) -> tuple[str, str, str, Callable[[], None]]:
    """Unpacks a bundle; returns its name, its identity between runs, its folder, and what removes the folder.

    Raises `DoesNotLoad`, whose text has neither password nor query of the URL."""
    found = _checked_url(url)
    # Also the identity between runs: a query may hold a token that changes.
    name = f"{found.scheme}://{found.netloc.rpartition('@')[2].lower()}{found.path}"
    expected = _expected_digest(name, found, sha256)
    parent = unpacking_directory(state)
    with tempfile.TemporaryFile(dir=parent) as file:
        descriptor = file.fileno()
        _fetch(url, name, descriptor, ca_file)
        os.lseek(descriptor, 0, os.SEEK_SET)
        digest = sha256_of_pieces(read_all(descriptor))
        if digest != expected:
            raise refused(name, f"its digest is {digest}, expected {expected}; nothing was unpacked")
        magic = os.pread(descriptor, 2, 0)
        if magic not in (GZIP_MAGIC, ZIP_MAGIC):
            raise refused(name, NO_BUNDLE)
        os.lseek(descriptor, 0, os.SEEK_SET)
        place = f"/proc/self/fd/{descriptor}"
        folder, close = unpack(place, name, state, run_id, is_zip=magic == ZIP_MAGIC, may_have_top=True)
    return name, name, folder, close


def _checked_url(url: str) -> SplitResult:
    shown = url.partition("://")[0][:20] + "://…"
    try:
        found = urlsplit(url)
        # Raises for a port that is none.
        _ = found.port
    except ValueError:
        raise refused(shown, "the URL is not valid") from None
    is_plain = url.isascii() and url.isprintable() and " " not in url
    if not found.hostname or len(url) > LONGEST_URL or not is_plain:
        raise refused(shown, "the URL is not valid")
    if found.scheme not in ("https", "http"):
        raise refused(shown, "a manifest is a file, a bundle, or a bundle from an https URL")
    if found.path.endswith((".yaml", ".yml")):
        raise refused(f"{found.scheme}://{found.netloc.rpartition('@')[2]}{found.path}", NO_BUNDLE)
    if not is_private(found):
        name = f"http://{found.netloc.rpartition('@')[2]}{found.path}"
        raise refused(name, "plain http is accepted only from this machine; use https")
    return found


def _expected_digest(name: str, url: SplitResult, sha256: str | None) -> str:
    if sha256 is None:
        file = os.path.basename(url.path) or "bundle.tgz"
        raise refused(
            name,
            "a bundle from a URL needs its digest: --sha256 DIGEST; compute it from a copy that you trust, with"
            f" `sha256sum {file}`",
        )
    digest = sha256.strip().lower()
    if digest.startswith("sha256:"):
        digest = digest[len("sha256:") :]
    if len(digest) != 64 or not DIGEST_CHARACTERS.issuperset(digest):
        raise refused(name, "--sha256 must be 64 hexadecimal digits, as `sha256sum` prints them")
    return digest


def _fetch(url: str, name: str, descriptor: int, ca_file: str | None) -> None:
    try:
        download = Download(
            url,
            headers={},
            username=None,
            password=None,
            environ=os.environ,
            stop=StopFlag(),
            ca_file=ca_file,
            largest_bytes=LARGEST_BYTES,
            must_be_encrypted=True,
        )
    except OSError as error:
        source = ca_file or "SSL_CERT_FILE"
        raise refused(name, f"cannot load CA certificates from {source}: {error.strerror or error}") from None
    try:
        download.fetch(descriptor)
    except Failure as failure:
        # Its text begins with the URL, which is the file of the fault.
        text = str(failure)
        raise refused(name, text[len(name) + 2 :] if text.startswith(f"{name}: ") else text) from None
