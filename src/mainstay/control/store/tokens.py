"""Tokens, stored as hashes only. A token is long and random, so a single fast hash is enough and can be indexed."""

from __future__ import annotations

import hashlib
from datetime import datetime
from typing import Literal

import msgspec

from mainstay.control.store.engine.contract import Row, Transaction
from mainstay.control.store.engine.records import Record, Table

Role = Literal["admin", "participant", "agent"]


class Token(Record, frozen=True, kw_only=True):
    name: str
    role: Role
    # None: never expires.
    expire_at: datetime | None = None
    # For an agent's token: the provider of the agent.
    participant_id: str | None = None
    agent_id: str | None = None


class TokenWithValue(Token, frozen=True, kw_only=True):
    """The only response that contains the token itself."""

    value: str


TOKENS = Table("tokens", "token", Token)


def hash_token(value: str) -> str:
    return hashlib.sha256(value.encode(errors="surrogatepass")).hexdigest()


async def find_caller(tx: Transaction, value: str) -> Row | None:
    """The owner of the token, with everything that decides whether the request is admitted."""
    rows = await tx.fetch(
        "SELECT tokens.id AS token_id, tokens.role, tokens.expire_at, tokens.agent_id,"
        " tokens.participant_id, participants.status AS participant_status, agents.status AS agent_status,"
        " agents.last_status_update"
        " FROM tokens LEFT JOIN agents ON agents.id = tokens.agent_id"
        " LEFT JOIN participants ON participants.id = tokens.participant_id"
        " WHERE tokens.hash = :hash",
        hash=hash_token(value),
    )
    return rows[0] if rows else None


async def has_admin(tx: Transaction) -> bool:
    return bool(await tx.fetch("SELECT 1 AS found FROM tokens WHERE role = 'admin' LIMIT 1"))


def with_value(token: Token, value: str) -> TokenWithValue:
    return TokenWithValue(**msgspec.structs.asdict(token), value=value)
