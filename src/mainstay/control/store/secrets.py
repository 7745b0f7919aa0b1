"""Sealed secrets: found by reference, owner and schema path, deleted with their owner, never listed."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from mainstay.control.store.engine.contract import Row, Transaction, fetch_value, placeholders
from mainstay.control.store.engine.records import to_microseconds


@dataclass(frozen=True, slots=True)
class SecretOwner:
    """The service or the agent that a secret belongs to."""

    # "service" or "agent".
    kind: str
    id: str


@dataclass(frozen=True, slots=True)
class StoredSecret:
    # Without the prefix `vault://`.
    reference: str
    ciphertext: bytes
    key_id: str
    seal_version: int
    owner: SecretOwner
    schema_path: str
    type: str


# The rows of closed orphans are gone.
_NOT_HELD = "NOT EXISTS (SELECT 1 FROM orphan_secrets WHERE orphan_secrets.reference = vault_secrets.reference)"
COLUMNS = "reference, ciphertext, key_id, seal_version, owner_kind, owner_id, schema_path, type"


def _decode(row: Row) -> StoredSecret:
    return StoredSecret(
        row["reference"],
        row["ciphertext"],
        row["key_id"],
        row["seal_version"],
        SecretOwner(row["owner_kind"], row["owner_id"]),
        row["schema_path"],
        row["type"],
    )


async def add(tx: Transaction, secret: StoredSecret, now: datetime) -> None:
    await tx.execute(
        f"INSERT INTO vault_secrets (created_at, {COLUMNS}) VALUES (:created_at, :reference, :ciphertext, :key_id,"
        " :seal_version, :owner_kind, :owner_id, :schema_path, :type)",
        created_at=to_microseconds(now),
        reference=secret.reference,
        ciphertext=secret.ciphertext,
        key_id=secret.key_id,
        seal_version=secret.seal_version,
        owner_kind=secret.owner.kind,
        owner_id=secret.owner.id,
        schema_path=secret.schema_path,
        type=secret.type,
    )


async def owner_served_by(tx: Transaction, reference: str, agent_id: str) -> SecretOwner | None:
    """The owner of the secret, if it is this agent, or a service that the agent has, has a move of in progress, or owes
    the clean-up of."""
    rows = await tx.fetch(
        "SELECT owner_kind, owner_id FROM vault_secrets LEFT JOIN services"
        " ON vault_secrets.owner_kind = 'service' AND services.id = vault_secrets.owner_id"
        " WHERE vault_secrets.reference = :reference AND (services.agent_id = :agent_id"
        " OR EXISTS (SELECT 1 FROM jobs WHERE jobs.service_id = services.id AND jobs.agent_id = :agent_id"
        " AND jobs.is_move = 1 AND jobs.status = 'Processing')"
        " OR EXISTS (SELECT 1 FROM orphan_secrets JOIN orphans ON orphans.id = orphan_secrets.orphan_id"
        " WHERE orphan_secrets.reference = :reference AND orphans.service_id = services.id"
        " AND orphans.agent_id = :agent_id AND orphans.closed_at IS NULL)"
        " OR (vault_secrets.owner_kind = 'agent' AND vault_secrets.owner_id = :agent_id))",
        reference=reference,
        agent_id=agent_id,
    )
    return SecretOwner(rows[0]["owner_kind"], rows[0]["owner_id"]) if rows else None


async def find(tx: Transaction, owner: SecretOwner, schema_path: str, reference: str) -> StoredSecret | None:
    rows = await tx.fetch(
        f"SELECT {COLUMNS} FROM vault_secrets WHERE reference = :reference AND owner_kind = :owner_kind"
        " AND owner_id = :owner_id AND schema_path = :schema_path",
        reference=reference,
        owner_kind=owner.kind,
        owner_id=owner.id,
        schema_path=schema_path,
    )
    return _decode(rows[0]) if rows else None


async def held_by(tx: Transaction, owner_kind: str, owner_ids: Sequence[str]) -> dict[str, set[tuple[str, str]]]:
    """(reference, schema path) of every secret, by the id of its owner. Owners without secrets are left out."""
    listed, marks = placeholders(owner_ids)
    if not marks:
        return {}
    rows = await tx.fetch(
        "SELECT owner_id, reference, schema_path FROM vault_secrets WHERE owner_kind = :owner_kind"
        f" AND owner_id IN {listed}",
        owner_kind=owner_kind,
        **marks,
    )
    found: dict[str, set[tuple[str, str]]] = {}
    for row in rows:
        found.setdefault(row["owner_id"], set()).add((row["reference"], row["schema_path"]))
    return found


async def newest(tx: Transaction) -> StoredSecret | None:
    rows = await tx.fetch(f"SELECT {COLUMNS} FROM vault_secrets ORDER BY created_at DESC LIMIT 1")
    return _decode(rows[0]) if rows else None


async def newest_key_id(tx: Transaction) -> str | None:
    return await fetch_value(tx, "SELECT key_id FROM vault_secrets ORDER BY created_at DESC LIMIT 1")


async def not_sealed_by(
    tx: Transaction, key_id: str, seal_version: int, after: str, limit: int
) -> list[StoredSecret]:
    """Secrets sealed with another key or in an older form, in the order of their references."""
    rows = await tx.fetch(
        f"SELECT {COLUMNS} FROM vault_secrets WHERE (key_id <> :key_id OR seal_version <> :seal_version)"
        f" AND reference > :after ORDER BY reference LIMIT {limit}{tx.for_update}",
        key_id=key_id,
        seal_version=seal_version,
        after=after,
    )
    return [_decode(row) for row in rows]


async def read_batch(tx: Transaction, after: str, limit: int) -> list[StoredSecret]:
    """In the order of their references."""
    rows = await tx.fetch(
        f"SELECT {COLUMNS} FROM vault_secrets WHERE reference > :after ORDER BY reference LIMIT {limit}", after=after
    )
    return [_decode(row) for row in rows]


async def discard(tx: Transaction, secret: StoredSecret) -> None:
    """Also one that an open orphan holds."""
    await tx.execute(
        "DELETE FROM vault_secrets WHERE reference = :reference AND owner_kind = :owner_kind AND owner_id = :owner_id",
        reference=secret.reference,
        owner_kind=secret.owner.kind,
        owner_id=secret.owner.id,
    )


async def reseal(tx: Transaction, secret: StoredSecret) -> None:
    await tx.execute(
        "UPDATE vault_secrets SET key_id = :key_id, ciphertext = :ciphertext, seal_version = :seal_version"
        " WHERE reference = :reference AND owner_kind = :owner_kind AND owner_id = :owner_id",
        key_id=secret.key_id,
        ciphertext=secret.ciphertext,
        seal_version=secret.seal_version,
        reference=secret.reference,
        owner_kind=secret.owner.kind,
        owner_id=secret.owner.id,
    )


async def delete(tx: Transaction, owner: SecretOwner, places: Iterable[tuple[str, str]]) -> None:
    """Deletes secrets of one owner, except those that an open orphan holds. `places` are (reference, schema path)."""
    for reference, schema_path in places:
        await tx.execute(
            "DELETE FROM vault_secrets WHERE reference = :reference AND owner_kind = :owner_kind"
            f" AND owner_id = :owner_id AND schema_path = :schema_path AND {_NOT_HELD}",
            reference=reference,
            owner_kind=owner.kind,
            owner_id=owner.id,
            schema_path=schema_path,
        )


async def delete_of(tx: Transaction, owner_kind: str, owner_id: str) -> None:
    await tx.execute(
        f"DELETE FROM vault_secrets WHERE owner_kind = :owner_kind AND owner_id = :owner_id AND {_NOT_HELD}",
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
