"""Blueprints, kept by the digest of their bytes."""

from __future__ import annotations

from datetime import datetime

from mainstay.control.store.contract import Transaction
from mainstay.control.store.records import to_microseconds


async def keep(tx: Transaction, digest: str, content: bytes, now: datetime) -> bool:
    """Whether it is new."""
    return (
        await tx.execute(
            "INSERT INTO blueprints (digest, created_at, content) VALUES (:digest, :now, :content)"
            " ON CONFLICT (digest) DO NOTHING",
            digest=digest,
            now=to_microseconds(now),
            content=content,
        )
        > 0
    )


async def find(tx: Transaction, digest: str) -> bytes | None:
    rows = await tx.fetch("SELECT content FROM blueprints WHERE digest = :digest", digest=digest)
    content = rows[0]["content"] if rows else None
    return content if isinstance(content, bytes) else None
