"""Blueprint signatures (Ed25519): what is signed, which keys are trusted, and whether a directory is signed by one.

Signing is in blueprints/signing.py. `cryptography` is imported on first use: agents without `--trust` do not need it."""

from __future__ import annotations

import base64
import binascii
import json
import os
import re
import stat
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from mainstay.agent.blueprint import NAME, VERSION
from mainstay.foundation.digests import sha256_of
from mainstay.foundation.faults import DoesNotLoad, Fault, refused

SIGNATURE = "blueprint.sig"
NOT_SIGNED = "blueprint is not signed by a trusted key"
PURPOSE = b"mainstay blueprint signature 1\n"
KEY_BYTES, SIGNATURE_BYTES = 32, 64
LARGEST_TRUST_FILE_BYTES = 1024 * 1024
LARGEST_SIGNATURE_FILE_BYTES = 4096
LARGEST_BLUEPRINT_BYTES = 100 * 1024 * 1024
MOST_FILES = 10_000
IDENTIFIERS = re.compile(r"[.+-]")


class Untrusted(Exception):
    """The blueprint must not run. The first line is stable, the second is the reason."""

    @property
    def reason(self) -> str:
        return str(self).partition("\n")[2]


@dataclass
class SignedFile:
    """A file of a blueprint as it was read."""

    content: bytes
    executable: bool

    @property
    def mode(self) -> str:
        return "0755" if self.executable else "0644"


# ---- what is signed ----
def read_files(directory: str, left_out: frozenset[str] = frozenset()) -> dict[str, SignedFile]:
    """All files of a directory by relative path. Raises `Untrusted` for links and special files."""
    found: dict[str, SignedFile] = {}
    left_bytes = LARGEST_BLUEPRINT_BYTES
    for path in _paths_in(directory, left_out):
        file = _read_file(os.path.join(directory, path), left_bytes)
        left_bytes -= len(file.content)
        found[path] = file
        if len(found) > MOST_FILES:
            raise _untrusted(f"it has more than {MOST_FILES} files")
    return found


def _paths_in(directory: str, left_out: frozenset[str]) -> Iterator[str]:
    def refuse(error: OSError) -> None:
        raise _untrusted(f"{error.filename} cannot be read: {error.strerror}")

    for folder, folders, names in os.walk(directory, onerror=refuse):
        folders[:] = [name for name in folders if name not in left_out]
        for name in folders:
            if os.path.islink(os.path.join(folder, name)):
                raise _untrusted(f"{name} is a link")
        for name in names:
            if name not in left_out:
                yield os.path.relpath(os.path.join(folder, name), directory)


def _read_file(path: str, limit: int) -> SignedFile:
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        with open(descriptor, "rb") as file:
            status = os.fstat(descriptor)
            if not stat.S_ISREG(status.st_mode):
                raise _untrusted(f"{path} is not a regular file")
            content = file.read(limit + 1)
    except OSError as error:
        raise _untrusted(f"{path} cannot be read: {error.strerror}") from None
    if len(content) > limit:
        raise _untrusted(f"it is larger than {LARGEST_BLUEPRINT_BYTES // 1024 // 1024} MB")
    return SignedFile(content, executable=bool(status.st_mode & stat.S_IXUSR))


def statement(name: str, version: str, files: Mapping[str, SignedFile]) -> bytes:
    """The bytes that a signature covers."""
    listed = [[path, file.mode, sha256_of(file.content)] for path, file in sorted(files.items()) if path != SIGNATURE]
    return PURPOSE + json.dumps({"name": name, "version": version, "files": listed}, sort_keys=True).encode()


def signature_line(key: bytes, signature: bytes) -> str:
    return f"{base64.b64encode(key).decode()} {base64.b64encode(signature).decode()}\n"


def is_signed_by(key: bytes, signature: bytes, signed: bytes) -> bool:
    from cryptography.exceptions import InvalidSignature
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

    try:
        Ed25519PublicKey.from_public_bytes(key).verify(signature, signed)
    except (InvalidSignature, ValueError):
        return False
    return True


def read_signature(files: Mapping[str, SignedFile]) -> tuple[bytes, bytes]:
    """(public key, signature) of the blueprint. Raises `Untrusted`."""
    file = files.get(SIGNATURE)
    if file is None:
        raise _untrusted(f"it has no {SIGNATURE}; `mainstay blueprint sign` writes it")
    words = file.content[:LARGEST_SIGNATURE_FILE_BYTES].split()
    parts = [decode_base64(word, size) for word, size in zip(words, (KEY_BYTES, SIGNATURE_BYTES), strict=False)]
    if len(words) != 2 or parts[0] is None or parts[1] is None:
        raise _untrusted(f"its {SIGNATURE} is damaged")
    return parts[0], parts[1]


def decode_base64(text: bytes | str, size: int) -> bytes | None:
    """Returns None unless the text is Base64 of `size` bytes."""
    try:
        found = base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        return None
    return found if len(found) == size else None


# ---- which keys are trusted ----
@dataclass
class TrustedKeys:
    keys: frozenset[bytes]
    # Name of a blueprint → the oldest version that may run.
    oldest: Mapping[str, str]


def read_trusted_keys(path: str) -> TrustedKeys:
    """Raises `DoesNotLoad` with all faults of the file."""
    try:
        with open(path, "rb") as file:
            content = file.read(LARGEST_TRUST_FILE_BYTES + 1)
    except OSError as error:
        raise refused(path, f"cannot be read: {error.strerror}") from None
    if len(content) > LARGEST_TRUST_FILE_BYTES:
        raise refused(path, f"larger than {LARGEST_TRUST_FILE_BYTES} bytes")
    keys: set[bytes] = set()
    oldest: dict[str, str] = {}
    faults: list[Fault] = []
    for number, line in enumerate(content.decode("utf-8", "replace").splitlines(), 1):
        words = line.partition("#")[0].split()
        if not words:
            continue
        if words[0] == "min" and len(words) == 3 and NAME.fullmatch(words[1]) and VERSION.fullmatch(words[2]):
            known = oldest.get(words[1], words[2])
            oldest[words[1]] = max(known, words[2], key=version_order)
            continue
        key = decode_base64(words[0], KEY_BYTES) if len(words) == 1 else None
        if key is None:
            wanted = "a public key (one line of a .pub file of `mainstay blueprint keygen`) or `min NAME VERSION`"
            faults.append(Fault(path, number, 1, f"expected {wanted}"))
        else:
            keys.add(key)
    if not keys and not faults:
        faults.append(Fault(path, None, None, "contains no public key; add the .pub file of a blueprint author"))
    if faults:
        raise DoesNotLoad(faults)
    return TrustedKeys(frozenset(keys), oldest)


def version_order(version: str) -> tuple[Any, ...]:
    """Orders versions: by their numbers; a pre-release is older than its release."""
    head, mark, rest = version.partition("+")[0].partition("-")
    before = [(0, int(part), "") if part.isdigit() else (1, 0, part) for part in IDENTIFIERS.split(rest)]
    return (*map(int, head.split(".")), (0, *before) if mark == "-" else (1,))


# ---- checking ----
def require_signature(directory: str, name: str, version: str, trust: str) -> None:
    """Raises `Untrusted` unless a key of the file `trust` signed exactly the files of this directory."""
    try:
        trusted = read_trusted_keys(trust)
    except DoesNotLoad as refusal:
        raise _untrusted(str(refusal)) from None
    files = read_files(directory)
    key, signature = read_signature(files)
    if key not in trusted.keys:
        raise _untrusted(f"{trust} does not contain its key {base64.b64encode(key).decode()}")
    if not is_signed_by(key, signature, statement(name, version, files)):
        raise _untrusted("its files are not the signed ones")
    oldest = trusted.oldest.get(name)
    if oldest is not None and version_order(version) < version_order(oldest):
        raise Untrusted(f"blueprint {name} {version} is older than {oldest}, the oldest version that this agent runs")


def _untrusted(reason: str) -> Untrusted:
    return Untrusted(f"{NOT_SIGNED}\n{reason}")
