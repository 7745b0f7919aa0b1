"""Sessions of browsers. A cookie is long and random and stored as a hash, like a token."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from mainstay.control.store.engine.contract import Row, Transaction, encode_json, fetch_column
from mainstay.control.store.engine.records import to_microseconds
from mainstay.control.store.tokens import CALLER_COLUMNS, CALLER_TABLES, hash_token


async def find_session(tx: Transaction, cookie: str) -> Row | None:
    """The session with the owner of its token. None: no such session, or its token was deleted or regenerated."""
    rows = await tx.fetch(
        f"SELECT {CALLER_COLUMNS}, browser_sessions.id AS session_id, browser_sessions.created_at,"
        f" browser_sessions.last_seen_at FROM {CALLER_TABLES}"
        " JOIN browser_sessions ON browser_sessions.token_hash = tokens.hash WHERE browser_sessions.id = :id",
        id=hash_token(cookie),
    )
    return rows[0] if rows else None


async def insert_session(tx: Transaction, cookie: str, token_hash: str, now: datetime) -> None:
    await tx.execute(
        "INSERT INTO browser_sessions (id, token_hash, created_at, last_seen_at) VALUES (:id, :token_hash, :now, :now)",
        id=hash_token(cookie),
        token_hash=token_hash,
        now=to_microseconds(now),
    )


async def keep_newest(tx: Transaction, token_hash: str, most: int) -> None:
    """Ends the oldest sessions of a token beyond the limit."""
    await tx.execute(
        "DELETE FROM browser_sessions WHERE token_hash = :token_hash AND id NOT IN (SELECT id FROM browser_sessions"
        f" WHERE token_hash = :token_hash ORDER BY created_at DESC, id LIMIT {int(most)})",
        token_hash=token_hash,
    )


async def note_seen(tx: Transaction, session_id: str, now: datetime) -> None:
    await tx.execute(
        "UPDATE browser_sessions SET last_seen_at = :now WHERE id = :id", id=session_id, now=to_microseconds(now)
    )


async def delete_session(tx: Transaction, session_id: str) -> None:
    await tx.execute("DELETE FROM browser_sessions WHERE id = :id", id=session_id)


async def delete_ended(tx: Transaction, created_before: datetime, seen_before: datetime) -> None:
    await tx.execute(
        "DELETE FROM browser_sessions WHERE created_at <= :created_before OR last_seen_at <= :seen_before",
        created_before=to_microseconds(created_before),
        seen_before=to_microseconds(seen_before),
    )


async def living_sessions(
    tx: Transaction, ids: Sequence[str], created_after: datetime, seen_after: datetime
) -> frozenset[str]:
    """Those of the sessions that have not ended, in one query. Their tokens are checked elsewhere."""
    found = await fetch_column(
        tx,
        f"SELECT id FROM browser_sessions WHERE id IN (SELECT value FROM {tx.json_items}(:ids))"
        " AND created_at > :created_after AND last_seen_at > :seen_after",
        ids=encode_json(ids),
        created_after=to_microseconds(created_after),
        seen_after=to_microseconds(seen_after),
    )
    return frozenset(found)
