"""AES-256-GCM with a key ring. A sealed value is bound to its reference, owner, path and type, and opens only there."""

from __future__ import annotations

import hashlib
import hmac
import os
import re
import secrets
from collections.abc import Sequence
from dataclasses import dataclass

import msgspec
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

NONCE_BYTES = 12
# The form in which secrets are sealed now. Version 1 does not bind them to their type.
SEAL_VERSION = 2
KEY_BYTES = 32
HEX_KEY = re.compile(r"[0-9a-fA-F]{64}")


class BadKey(Exception):
    """A key is malformed. The message names its source, never the key."""


class CannotSeal(Exception):
    """The value cannot be encoded or encrypted."""


class CannotOpen(Exception):
    """No key of the ring opens the value, or it was sealed for another context."""


@dataclass(frozen=True, slots=True)
class SealContext:
    reference: str
    owner_kind: str
    owner_id: str
    schema_path: str
    # The type of the secret. None: the value is not bound to a type, as in seals of version 1.
    type: str | None = None

    def bytes(self) -> bytes:
        # Encoded as a JSON list, so that two contexts never have the same bytes.
        place = [self.reference, self.owner_kind, self.owner_id, self.schema_path]
        return msgspec.json.encode(place if self.type is None else [*place, self.type])


@dataclass(frozen=True, slots=True)
class Sealed:
    key_id: str
    ciphertext: bytes


def new_reference() -> str:
    return secrets.token_hex(16)


def new_key() -> str:
    return secrets.token_hex(KEY_BYTES)


def parse_keys(texts: Sequence[str], source: str) -> tuple[bytes, ...]:
    keys = [text.strip() for text in texts if text.strip()]
    if not keys or not all(HEX_KEY.fullmatch(key) for key in keys):
        raise BadKey(f"{source} must be 64 hexadecimal digits (create one with: openssl rand -hex 32)")
    return tuple(bytes.fromhex(key) for key in keys)


def _key_id(key: bytes) -> str:
    """Identifies a key without revealing it."""
    return hashlib.sha256(b"mainstay vault key id\0" + key).hexdigest()[:16]


class Vault:
    """Seals with the first key; opens with any key."""

    def __init__(self, keys: Sequence[bytes]) -> None:
        self._ring = {_key_id(key): AESGCM(key) for key in keys}
        self.current = _key_id(keys[0])
        # Sealed values that could not be opened.
        self.failures = 0
        self._digest_key = hmac.digest(keys[0], b"mainstay digest key", "sha256")

    def __repr__(self) -> str:
        return f"Vault({', '.join(self._ring)})"

    def has_key(self, key_id: str) -> bool:
        return key_id in self._ring

    def digest(self, text: bytes) -> str:
        """A keyed digest: equal for equal texts, and useless for guessing a text without the key."""
        return hmac.digest(self._digest_key, text, "sha256").hex()

    def seal(self, value: object, context: SealContext) -> Sealed:
        nonce = os.urandom(NONCE_BYTES)
        try:
            ciphertext = self._ring[self.current].encrypt(nonce, msgspec.json.encode(value), context.bytes())
        except (TypeError, ValueError, OverflowError):
            # `from None`: the original message may quote the value.
            raise CannotSeal from None
        return Sealed(self.current, nonce + ciphertext)

    def open(self, sealed: Sealed, context: SealContext) -> object:
        cipher = self._ring.get(sealed.key_id)
        if cipher is None:
            self.failures += 1
            raise CannotOpen(f"the key {sealed.key_id} is not in the key ring")
        nonce, text = sealed.ciphertext[:NONCE_BYTES], sealed.ciphertext[NONCE_BYTES:]
        try:
            return msgspec.json.decode(cipher.decrypt(nonce, text, context.bytes()))
        except (InvalidTag, ValueError):
            # A value that is too short is a ValueError.
            self.failures += 1
            raise CannotOpen("the sealed value was modified, or was sealed for another context") from None
