"""Seals secrets before they are stored, and opens them for the place where an owner holds them."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import replace

import msgspec

from mainstay.control.domain.faults import PathFault
from mainstay.control.domain.properties.contract import RevealedSecret
from mainstay.control.domain.properties.engine import Accepted, fill
from mainstay.control.domain.properties.evaluation import SecretSlot
from mainstay.control.domain.properties.traversal import SecretPlace
from mainstay.control.domain.values import Properties
from mainstay.control.operations.machinery.refusals import InvalidProperties, SecretUnreadable
from mainstay.control.operations.machinery.unit_of_work import UnitOfWork
from mainstay.control.settings import BadSettings
from mainstay.control.store import secrets as store
from mainstay.control.store.engine.contract import Transaction
from mainstay.control.store.secrets import SecretOwner, StoredSecret
from mainstay.control.vault.keys import FILE, VARIABLE
from mainstay.control.vault.seal import (
    SEAL_VERSION,
    CannotOpen,
    CannotSeal,
    SealContext,
    Sealed,
    Vault,
    new_reference,
)
from mainstay.foundation.vault import VAULT_PREFIX

NOT_CONFIGURED = "vault is not configured"
NOT_STORED = "failed to store secret in vault"
RESEAL_BATCH = 500


def _bare(reference: str) -> str:
    return reference.removeprefix(VAULT_PREFIX)


def _context(owner: SecretOwner, place: SecretPlace, seal_version: int) -> SealContext:
    """Derived from the place where the asker holds the reference, never from the row: a row that was moved to another
    place does not open there."""
    kind = None if seal_version == 1 else str(place.kind)
    return SealContext(_bare(place.reference), owner.kind, owner.id, place.schema_path, kind)


async def read_secret(work: UnitOfWork, owner: SecretOwner, place: SecretPlace) -> RevealedSecret | None:
    """The secret that the owner holds at this place. None: it holds none, or there is no vault."""
    vault = work.tools.vault
    found = await store.find(work.tx, owner, place.schema_path, _bare(place.reference))
    if vault is None or found is None:
        return None
    try:
        sealed = Sealed(found.key_id, found.ciphertext)
        return RevealedSecret(vault.open(sealed, _context(owner, place, found.seal_version)))
    except CannotOpen:
        raise SecretUnreadable(place.schema_path, f"{owner.kind} {owner.id}") from None


async def seal_all(
    work: UnitOfWork, accepted: Accepted, owner: SecretOwner
) -> tuple[Properties, tuple[SecretPlace, ...]]:
    """Replaces secret values by references. Returns the properties and the places of the new secrets."""
    places = await seal_slots(work, accepted.secrets, owner)
    if not places:
        return accepted.properties, ()
    return fill(accepted.properties, {path: place.reference for path, place in places.items()}), tuple(
        places.values()
    )


async def seal_slots(work: UnitOfWork, slots: Sequence[SecretSlot], owner: SecretOwner) -> dict[str, SecretPlace]:
    """Seals each value and returns its place, by path."""
    if not slots:
        return {}
    vault = work.tools.vault
    if vault is None:
        raise InvalidProperties([PathFault(slot.path, NOT_CONFIGURED) for slot in slots])
    places: dict[str, SecretPlace] = {}
    faults: list[PathFault] = []
    for slot in slots:
        place = SecretPlace(f"{VAULT_PREFIX}{new_reference()}", slot.schema_path, slot.kind)
        try:
            sealed = vault.seal(slot.plain.reveal(), _context(owner, place, SEAL_VERSION))
        except CannotSeal:
            faults.append(PathFault(slot.path, NOT_STORED))
            continue
        secret = StoredSecret(
            _bare(place.reference),
            sealed.ciphertext,
            sealed.key_id,
            SEAL_VERSION,
            owner,
            slot.schema_path,
            str(slot.kind),
        )
        await store.add(work.tx, secret, work.now)
        places[slot.path] = place
    if faults:
        raise InvalidProperties(faults)
    return places


def digest_of(work: UnitOfWork, *parts: object) -> str:
    """Digest of values that may contain secrets. Keyed, so that a short secret cannot be found by trial."""
    text = msgspec.json.encode(parts, order="sorted")
    vault = work.tools.vault
    # Without a vault there are no secrets.
    return hashlib.sha256(text).hexdigest() if vault is None else vault.digest(text)


async def forget(work: UnitOfWork, owner: SecretOwner, places: Iterable[SecretPlace]) -> None:
    await store.delete(work.tx, owner, [(_bare(place.reference), place.schema_path) for place in places])


async def forget_recorded(work: UnitOfWork, owner: SecretOwner, recorded: Sequence[object]) -> None:
    """Deletes the secrets that a run recorded as places. Runs of an earlier release recorded only the references."""
    places = [(_bare(str(each[0])), str(each[1])) for each in recorded if isinstance(each, list | tuple)]
    bare = {_bare(each) for each in recorded if isinstance(each, str)}
    if bare:
        held = await store.held_by(work.tx, owner.kind, [owner.id])
        places += [place for place in held.get(owner.id, ()) if place[0] in bare]
    await store.delete(work.tx, owner, places)


def _open_stored(vault: Vault, secret: StoredSecret) -> object:
    """For maintenance, which has no asker: a row that was changed does not open for its own columns either."""
    return vault.open(Sealed(secret.key_id, secret.ciphertext), _stored_context(secret, secret.seal_version))


def _stored_context(secret: StoredSecret, seal_version: int) -> SealContext:
    kind = None if seal_version == 1 else secret.type
    return SealContext(secret.reference, secret.owner.kind, secret.owner.id, secret.schema_path, kind)


async def check_key_of_newest(tx: Transaction, vault: Vault | None) -> None:
    """Refuses a missing or wrong key before the first migration; reads no column that a migration added."""
    key_id = await store.newest_key_id(tx)
    if key_id is None or (vault is not None and vault.has_key(key_id)):
        return
    problem = "is missing" if vault is None else "does not open the secrets in this database"
    raise BadSettings(
        f"the vault key {problem}; set {VARIABLE} to the right key, or restore {FILE} in the data directory from its"
        " backup; if the key is lost, `mainstay vault discard` gives up the secrets that it sealed"
    )


async def check_keys(tx: Transaction, vault: Vault | None) -> None:
    """Refuses a vault key that cannot open the newest secret, before more secrets are sealed with it."""
    newest = await store.newest(tx)
    if vault is None or newest is None:
        return
    try:
        _open_stored(vault, newest)
    except CannotOpen:
        raise BadSettings(
            f"the vault key does not open the secrets in this database; set {VARIABLE} or {FILE} to the right key"
        ) from None


class ResealedBatch(msgspec.Struct, frozen=True):
    resealed: int
    # The places of secrets that no key opens; they stay as they are.
    unreadable: list[str]
    # Where the next batch begins; None: this was the last.
    after: str | None


async def reseal_batch(tx: Transaction, vault: Vault, after: str) -> ResealedBatch:
    """Reseals secrets with the current key and in the current form."""
    found = await store.not_sealed_by(tx, vault.current, SEAL_VERSION, after, RESEAL_BATCH)
    unreadable = []
    for secret in found:
        try:
            sealed = vault.seal(_open_stored(vault, secret), _stored_context(secret, SEAL_VERSION))
        except CannotOpen:
            unreadable.append(f"{secret.schema_path} of {secret.owner.kind} {secret.owner.id}")
            continue
        resealed = replace(secret, ciphertext=sealed.ciphertext, key_id=sealed.key_id, seal_version=SEAL_VERSION)
        await store.reseal(tx, resealed)
    return ResealedBatch(len(found) - len(unreadable), unreadable, found[-1].reference if found else None)


async def unreadable_secrets(tx: Transaction, vault: Vault | None) -> list[StoredSecret]:
    """The secrets that no key opens. Without a vault: all of them."""
    found: list[StoredSecret] = []
    after = ""
    while batch := await store.read_batch(tx, after, RESEAL_BATCH):
        found += [secret for secret in batch if vault is None or not _opens(vault, secret)]
        after = batch[-1].reference
    return found


def _opens(vault: Vault, secret: StoredSecret) -> bool:
    try:
        _open_stored(vault, secret)
    except CannotOpen:
        return False
    return True
