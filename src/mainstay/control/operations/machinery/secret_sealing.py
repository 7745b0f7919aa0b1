"""Secrets between the engine and the tables: sealed when a change is saved, opened for the agent that may."""

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
RESEALED_AT_ONCE = 500


@dataclass(frozen=True, slots=True)
class Owner:
    kind: str
    id: str


def _place_of(secret: StoredSecret) -> SealContext:
    return SealContext(secret.reference, secret.owner_kind, secret.owner_id, secret.schema_path)


def open_secret(vault: Vault, secret: StoredSecret) -> object:
    return vault.open(Sealed(secret.key_id, secret.ciphertext), _place_of(secret))


async def seal_all(work: UnitOfWork, accepted: Accepted, owner: Owner) -> tuple[Properties, tuple[str, ...]]:
    """The properties with references where values were, and the references that are new."""
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
    """The paths whose stored secret is the one that was given."""
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
    """As for any other property; two texts in a time that tells nothing about where they differ."""
    if isinstance(left, str) and isinstance(right, str):
        return hmac.compare_digest(left.encode(), right.encode())
    return equal(left, right)


def digest_of(work: UnitOfWork, *parts: object) -> str:
    """Of something that may hold secrets: keyed, so that nobody can find a short one by trying."""
    text = msgspec.json.encode(parts, order="sorted")
    vault = work.tools.vault
    # Without a vault there are no secrets.
    return hashlib.sha256(text).hexdigest() if vault is None else vault.digest(text)


async def forget(work: UnitOfWork, references: Sequence[str]) -> None:
    await store.delete(work.tx, [reference.removeprefix(VAULT_PREFIX) for reference in references])


async def check_keys(tx: Transaction, vault: Vault | None) -> None:
    """A key that cannot open the newest secret is the wrong one, and every secret sealed with it would be one more."""
    newest = await store.newest(tx)
    if vault is None or newest is None:
        return
    try:
        open_secret(vault, newest)
    except CannotOpen:
        raise BadSettings(
            f"the vault key does not open the secrets in this database; give the right {VARIABLE} or {FILE}"
        ) from None


async def reseal_all(tx: Transaction, vault: Vault) -> int:
    """Seals some of what another key sealed with the current one; how many that were, none when it is done."""
    found = await store.not_sealed_by(tx, vault.current, RESEALED_AT_ONCE)
    for secret in found:
        sealed = vault.seal(open_secret(vault, secret), _place_of(secret))
        await store.reseal(tx, secret.reference, sealed.key_id, sealed.ciphertext)
    return len(found)
