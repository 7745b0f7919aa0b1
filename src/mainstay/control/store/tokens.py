"""Tokens, stored as hashes only. A token is long and random, so a single fast hash is enough and can be indexed."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Literal

import msgspec

from mainstay.control.store.engine.contract import Row, Transaction, encode_json, placeholders
from mainstay.control.store.engine.records import Record, Table, to_microseconds

Role = Literal["admin", "participant", "agent"]


class Token(Record, frozen=True, kw_only=True, omit_defaults=True):
    name: str
    role: Role
    # May only read; never an agent's.
    read_only: bool
    # None: never expires; then responses leave it out.
    expire_at: datetime | None = None
    # For an agent's token: the provider of the agent.
    participant_id: str | None
    agent_id: str | None
    # To within minutes. None: never used; then responses leave it out.
    last_used_at: datetime | None = None


class TokenWithValue(Token, frozen=True, kw_only=True):
    """The only response that contains the token itself."""

    value: str


TOKENS = Table("tokens", "token", Token)


def hash_token(value: str) -> str:
    return hashlib.sha256(value.encode(errors="surrogatepass")).hexdigest()


# Tokens with everything that decides whether a request is admitted.
CALLER_COLUMNS = (
    "tokens.id AS token_id, tokens.hash, tokens.role, tokens.read_only, tokens.expire_at, tokens.agent_id,"
    " tokens.participant_id, participants.status AS participant_status, agents.status AS agent_status,"
    " agents.last_status_update, coalesce(agents.name, participants.name, tokens.name) AS name,"
    " tokens.last_used_at"
)
CALLER_TABLES = (
    "tokens LEFT JOIN agents ON agents.id = tokens.agent_id"
    " LEFT JOIN participants ON participants.id = tokens.participant_id"
)
_CALLERS = f"SELECT {CALLER_COLUMNS} FROM {CALLER_TABLES}"


class TokenOwner(msgspec.Struct, frozen=True):
    role: str
    # Name of the agent, the participant or the admin token.
    name: str
    participant_id: str | None


async def read_owners(tx: Transaction, ids: Sequence[str]) -> dict[str, TokenOwner]:
    """The owners of existing tokens, by id of the token."""
    listed, marks = placeholders(ids)
    if not marks:
        return {}
    rows = await tx.fetch(f"{_CALLERS} WHERE tokens.id IN {listed}", **marks)
    return {row["token_id"]: TokenOwner(row["role"], row["name"], row["participant_id"]) for row in rows}


async def find_caller(tx: Transaction, value: str) -> Row | None:
    """The owner of the token, with everything that decides whether the request is admitted."""
    rows = await tx.fetch(f"{_CALLERS} WHERE tokens.hash = :hash", hash=hash_token(value))
    return rows[0] if rows else None


async def find_callers(tx: Transaction, hashes: Sequence[str]) -> Mapping[str, Row]:
    """The callers of many tokens, by hash, in one query. A token that was deleted or regenerated is missing."""
    rows = await tx.fetch(
        f"{_CALLERS} WHERE tokens.hash IN (SELECT value FROM {tx.json_items}(:hashes))",
        hashes=encode_json(hashes),
    )
    return {row["hash"]: row for row in rows}


async def has_other_admin(tx: Transaction, now: datetime, token_id: str = "") -> bool:
    """Whether an admin token besides this one is alive and may write."""
    statement = (
        "SELECT 1 AS found FROM tokens WHERE role = 'admin' AND read_only = 0 AND id <> :id"
        " AND (expire_at IS NULL OR expire_at > :now) LIMIT 1"
    )
    return bool(await tx.fetch(statement, id=token_id, now=to_microseconds(now)))


def with_value(token: Token, value: str) -> TokenWithValue:
    return TokenWithValue(**msgspec.structs.asdict(token), value=value)


async def note_use(tx: Transaction, token_id: str, now: datetime) -> None:
    await tx.execute("UPDATE tokens SET last_used_at = :now WHERE id = :id", now=to_microseconds(now), id=token_id)
