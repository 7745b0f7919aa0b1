"""Idempotency keys: the stored answer to a request, returned when the same request is repeated."""

from __future__ import annotations

from datetime import datetime

from mainstay.control.store.engine.contract import Transaction
from mainstay.control.store.engine.records import to_microseconds


async def reserve(tx: Transaction, token_id: str, key: str, digest: str, now: datetime) -> tuple[str, str] | None:
    """None: the key is new, and concurrent requests with it wait for this one. Else (digest, answer) of the first."""
    inserted = await tx.execute(
        "INSERT INTO idempotency_keys (token_id, key, created_at, body_digest, answer)"
        " VALUES (:token_id, :key, :now, :digest, '') ON CONFLICT (token_id, key) DO NOTHING",
        token_id=token_id,
        key=key,
        now=to_microseconds(now),
        digest=digest,
    )
    if inserted:
        return None
    rows = await tx.fetch(
        "SELECT body_digest, answer FROM idempotency_keys WHERE token_id = :token_id AND key = :key",
        token_id=token_id,
        key=key,
    )
    return rows[0]["body_digest"], rows[0]["answer"]


async def keep_answer(tx: Transaction, token_id: str, key: str, answer: str) -> None:
    await tx.defer(
        "UPDATE idempotency_keys SET answer = :answer WHERE token_id = :token_id AND key = :key",
        token_id=token_id,
        key=key,
        answer=answer,
    )


async def answers_with(tx: Transaction, text: str) -> list[tuple[str, str, str]]:
    """(token id, key, answer) of the answers that contain this text; `text` has no wildcards."""
    rows = await tx.fetch(
        "SELECT token_id, key, answer FROM idempotency_keys WHERE answer LIKE :pattern",
        slow=True,
        pattern=f"%{text}%",
    )
    return [(row["token_id"], row["key"], row["answer"]) for row in rows]


async def delete_older(tx: Transaction, before: datetime) -> None:
    await tx.execute("DELETE FROM idempotency_keys WHERE created_at < :before", before=to_microseconds(before))
