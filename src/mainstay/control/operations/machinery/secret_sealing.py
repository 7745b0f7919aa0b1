"""Seals secrets before they are stored, opens them, and compares them with stored ones."""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Sequence
from dataclasses import dataclass

import msgspec

from mainstay.control.domain.faults import PathFault
from mainstay.control.domain.properties.contract import SecretQuestion
from mainstay.control.domain.properties.engine import Accepted, fill
from mainstay.control.domain.values import Properties, equal
from mainstay.control.operations.machinery.refusals import InvalidProperties
from mainstay.control.operations.machinery.unit_of_work import UnitOfWork
from mainstay.control.settings import BadSettings
from mainstay.control.store import secrets as store
from mainstay.control.store.engine.contract import Transaction
from mainstay.control.store.secrets import StoredSecret
from mainstay.control.vault.keys import FILE, VARIABLE
from mainstay.control.vault.seal import CannotOpen, CannotSeal, SealContext, Sealed, Vault, new_reference
from mainstay.foundation.vault import VAULT_PREFIX

NOT_CONFIGURED = "vault is not configured"
NOT_STORED = "failed to store secret in vault"
RESEAL_BATCH = 500


@dataclass(frozen=True, slots=True)
class Owner:
    kind: str
    id: str


def _context_of(secret: StoredSecret) -> SealContext:
    return SealContext(secret.reference, secret.owner_kind, secret.owner_id, secret.schema_path)


def open_secret(vault: Vault, secret: StoredSecret) -> object:
    return vault.open(Sealed(secret.key_id, secret.ciphertext), _context_of(secret))


async def seal_all(work: UnitOfWork, accepted: Accepted, owner: Owner) -> tuple[Properties, tuple[str, ...]]:
    """Replaces secret values by references. Returns the properties and the new references."""
    if not accepted.secrets:
        return accepted.properties, ()
    vault = work.tools.vault
    if vault is None:
        raise InvalidProperties([PathFault(slot.path, NOT_CONFIGURED) for slot in accepted.secrets])
    references: dict[str, str] = {}
    faults: list[PathFault] = []
    for slot in accepted.secrets:
        reference = new_reference()
        try:
            sealed = vault.seal(slot.plain.reveal(), SealContext(reference, owner.kind, owner.id, slot.schema_path))
        except CannotSeal:
            faults.append(PathFault(slot.path, NOT_STORED))
            continue
        secret = StoredSecret(
            reference, sealed.ciphertext, sealed.key_id, owner.kind, owner.id, slot.schema_path, str(slot.kind)
        )
        await store.add(work.tx, secret, work.now)
        references[slot.path] = f"{VAULT_PREFIX}{reference}"
    if faults:
        raise InvalidProperties(faults)
    return fill(accepted.properties, references), tuple(references.values())


async def same_secrets(work: UnitOfWork, questions: Sequence[SecretQuestion]) -> frozenset[str]:
    """The paths where the given secret equals the stored one."""
    vault = work.tools.vault
    if vault is None:
        return frozenset()
    same: set[str] = set()
    for question in questions:
        found = await store.find(work.tx, question.reference.removeprefix(VAULT_PREFIX))
        if found is not None and _same_value(open_secret(vault, found), question.plain.reveal()):
            same.add(question.path)
    return frozenset(same)


def _same_value(left: object, right: object) -> bool:
    """Equal as properties. Texts are compared in constant time."""
    if isinstance(left, str) and isinstance(right, str):
        return hmac.compare_digest(left.encode(), right.encode())
    return equal(left, right)


def digest_of(work: UnitOfWork, *parts: object) -> str:
    """Digest of values that may contain secrets. Keyed, so that a short secret cannot be found by trial."""
    text = msgspec.json.encode(parts, order="sorted")
    vault = work.tools.vault
    # Without a vault there are no secrets.
    return hashlib.sha256(text).hexdigest() if vault is None else vault.digest(text)


async def forget(work: UnitOfWork, references: Sequence[str]) -> None:
    await store.delete(work.tx, [reference.removeprefix(VAULT_PREFIX) for reference in references])


async def check_key_of_newest(tx: Transaction, vault: Vault | None) -> None:
    """Refuses a missing or wrong key before the first migration; reads no column that a migration added."""
    key_id = await store.newest_key_id(tx)
    if key_id is None or (vault is not None and vault.has_key(key_id)):
        return
    problem = "is missing" if vault is None else "does not open the secrets in this database"
    raise BadSettings(
        f"the vault key {problem}; set {VARIABLE} to the right key, or restore {FILE} in the data directory from its"
        " backup"
    )


async def check_keys(tx: Transaction, vault: Vault | None) -> None:
    """Refuses a vault key that cannot open the newest secret, before more secrets are sealed with it."""
    newest = await store.newest(tx)
    if vault is None or newest is None:
        return
    try:
        open_secret(vault, newest)
    except CannotOpen:
        raise BadSettings(
            f"the vault key does not open the secrets in this database; set {VARIABLE} or {FILE} to the right key"
        ) from None


async def reseal_all(tx: Transaction, vault: Vault) -> int:
    """Reseals a batch of secrets with the current key. Returns how many; 0 when all are done."""
    found = await store.not_sealed_by(tx, vault.current, RESEAL_BATCH)
    for secret in found:
        sealed = vault.seal(open_secret(vault, secret), _context_of(secret))
        await store.reseal(tx, secret.reference, sealed.key_id, sealed.ciphertext)
    return len(found)
