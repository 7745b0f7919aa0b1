"""Makes keys and signs blueprints. The agent verifies signatures in `agent/signatures.py`."""

from __future__ import annotations

import base64
import os

from mainstay.agent.blueprint import LEFT_OUT, Blueprint, read_blueprint
from mainstay.agent.signatures import (
    KEY_BYTES,
    SIGNATURE,
    SignedFile,
    Untrusted,
    decode_base64,
    is_signed_by,
    read_files,
    read_signature,
    signature_line,
    statement,
)
from mainstay.foundation.private_files import write_private_file

PUBLIC_MODE = 0o644
# Without it, a public key could be used as a private one: both have 32 bytes.
PRIVATE_MARK = "mainstay-private-key"


class SigningRefused(Exception):
    """The key or the blueprint cannot be used; the message names it and the reason."""


def create_key(path: str) -> str:
    """Writes a new private key to `path` and its public key to `path`.pub; returns the public key in Base64."""
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    public_path = f"{path}.pub"
    for each in (path, public_path):
        if os.path.lexists(each):
            raise SigningRefused(f"{each} exists; choose another file, a key is never replaced")
    key = Ed25519PrivateKey.generate()
    public = base64.b64encode(key.public_key().public_bytes_raw()).decode()
    private = base64.b64encode(key.private_bytes_raw()).decode()
    _write_new(path, f"{PRIVATE_MARK} {private}\n", 0o600)
    _write_new(public_path, f"{public}\n", PUBLIC_MODE)
    return public


def _write_new(path: str, text: str, mode: int) -> None:
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode)
        with open(descriptor, "w", encoding="ascii") as file:
            file.write(text)
    except OSError as error:
        raise SigningRefused(f"{path} cannot be written: {error.strerror}") from None


def sign(directory: str, key_path: str) -> tuple[Blueprint, int]:
    """Writes the signature; returns the blueprint and the number of signed files. Raises `DoesNotLoad`."""
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    key = Ed25519PrivateKey.from_private_bytes(_read_key(key_path))
    blueprint = read_blueprint(directory)
    files = _packed_files(directory)
    signature = key.sign(statement(blueprint.name, blueprint.version, files))
    line = signature_line(key.public_key().public_bytes_raw(), signature)
    path = os.path.join(directory, SIGNATURE)
    try:
        write_private_file(path, line.encode())
        os.chmod(path, PUBLIC_MODE)
    except OSError as error:
        raise SigningRefused(f"{path} cannot be written: {error.strerror}") from None
    return blueprint, len(files.keys() - {SIGNATURE})


def is_outdated(directory: str, blueprint: Blueprint) -> bool:
    """Whether the blueprint has a signature of other files. An unsigned one has none."""
    files = _packed_files(directory)
    if SIGNATURE not in files:
        return False
    return not is_signed_by(*read_signature(files), statement(blueprint.name, blueprint.version, files))


def _packed_files(directory: str) -> dict[str, SignedFile]:
    """The files that a bundle contains."""
    try:
        return read_files(directory, LEFT_OUT)
    except Untrusted as problem:
        raise SigningRefused(problem.reason) from None


def _read_key(path: str) -> bytes:
    try:
        with open(path, "rb") as file:
            mark, _, encoded = file.read(1000).decode("ascii", "replace").strip().partition(" ")
    except OSError as error:
        raise SigningRefused(f"{path} cannot be read: {error.strerror}") from None
    key = decode_base64(encoded, KEY_BYTES)
    if key is None or mark != PRIVATE_MARK:
        raise SigningRefused(f"{path} is not a private key; `mainstay blueprint keygen FILE` makes one")
    return key
