"""Sealed secrets: found by reference, deleted with their owner, never listed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from mainstay.control.store.engine.contract import Row, Transaction
from mainstay.control.store.engine.records import to_microseconds


@dataclass(frozen=True, slots=True)
class StoredSecret:
    reference: str
    ciphertext: bytes
    key_id: str
    owner_kind: str
    owner_id: str
    schema_path: str
    type: str


COLUMNS = "reference, ciphertext, key_id, owner_kind, owner_id, schema_path, type"


def _decode(row: Row) -> StoredSecret:
    ciphertext = row["ciphertext"]
    if not isinstance(ciphertext, bytes):
        raise TypeError("a sealed value must be bytes")
    names = ("key_id", "owner_kind", "owner_id", "schema_path", "type")
    return StoredSecret(str(row["reference"]), ciphertext, *(str(row[name]) for name in names))


async def add(tx: Transaction, secret: StoredSecret, now: datetime) -> None:
    await tx.execute(
        f"INSERT INTO vault_secrets (created_at, {COLUMNS}) VALUES (:created_at, :reference, :ciphertext, :key_id,"
        " :owner_kind, :owner_id, :schema_path, :type)",
        created_at=to_microseconds(now),
        reference=secret.reference,
        ciphertext=secret.ciphertext,
        key_id=secret.key_id,
        owner_kind=secret.owner_kind,
        owner_id=secret.owner_id,
        schema_path=secret.schema_path,
        type=secret.type,
    )


async def find(tx: Transaction, reference: str) -> StoredSecret | None:
    rows = await tx.fetch(
        f"SELECT {COLUMNS} FROM vault_secrets WHERE reference = :reference",
        reference=reference,
    )
    return _decode(rows[0]) if rows else None


async def newest(tx: Transaction) -> StoredSecret | None:
    rows = await tx.fetch(f"SELECT {COLUMNS} FROM vault_secrets ORDER BY created_at DESC LIMIT 1")
    return _decode(rows[0]) if rows else None


async def newest_key_id(tx: Transaction) -> str | None:
    rows = await tx.fetch("SELECT key_id FROM vault_secrets ORDER BY created_at DESC LIMIT 1")
    return str(rows[0]["key_id"]) if rows else None


async def not_sealed_by(tx: Transaction, key_id: str, limit: int) -> list[StoredSecret]:
    rows = await tx.fetch(
        f"SELECT {COLUMNS} FROM vault_secrets WHERE key_id <> :key_id LIMIT {limit}{tx.for_update}",
        key_id=key_id,
    )
    return [_decode(row) for row in rows]


async def reseal(tx: Transaction, reference: str, key_id: str, ciphertext: bytes) -> None:
    await tx.execute(
        "UPDATE vault_secrets SET key_id = :key_id, ciphertext = :ciphertext WHERE reference = :reference",
        key_id=key_id,
        ciphertext=ciphertext,
        reference=reference,
    )


async def delete(tx: Transaction, references: Sequence[str]) -> None:
    for reference in references:
        await tx.execute("DELETE FROM vault_secrets WHERE reference = :reference", reference=reference)


async def delete_of(tx: Transaction, owner_kind: str, owner_id: str) -> None:
    await tx.execute(
        "DELETE FROM vault_secrets WHERE owner_kind = :owner_kind AND owner_id = :owner_id",
        owner_kind=owner_kind,
        owner_id=owner_id,
    )


async def note_reading(tx: Transaction, reference: str, job_id: str, now: datetime, every: timedelta) -> bool:
    """Records a reading. True if one is already recorded: for this job or, without a job, within `every`."""
    oldest = 0 if job_id else to_microseconds(now - every)
    rows = await tx.fetch(
        "INSERT INTO vault_readings (reference, job_id, read_at) VALUES (:reference, :job_id, :now)"
        " ON CONFLICT (reference, job_id) DO UPDATE SET read_at = :now WHERE vault_readings.read_at < :oldest"
        " RETURNING read_at",
        reference=reference,
        job_id=job_id,
        now=to_microseconds(now),
        oldest=oldest,
    )
    return not rows
