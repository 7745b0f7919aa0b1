"""Sessions of browsers: opened with a token, ended with it, after 12 hours without use, or after 7 days."""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from datetime import datetime, timedelta

from mainstay.control.store import browser_sessions as store
from mainstay.control.store.engine.contract import Transaction

IDLE = timedelta(hours=12)
LIFETIME = timedelta(days=7)
MAX_PER_TOKEN = 100


async def open_session(tx: Transaction, token_hash: str, now: datetime) -> str:
    """The value of the cookie. Always a new one: a value from before the sign-in may be known to an attacker."""
    cookie = secrets.token_urlsafe(32)
    await store.insert_session(tx, cookie, token_hash, now)
    await store.keep_newest(tx, token_hash, MAX_PER_TOKEN)
    return cookie


def has_ended(created_at: datetime, last_seen_at: datetime, now: datetime) -> bool:
    return now >= created_at + LIFETIME or now >= last_seen_at + IDLE


async def living(tx: Transaction, ids: Sequence[str], now: datetime) -> frozenset[str]:
    return await store.living_sessions(tx, ids, now - LIFETIME, now - IDLE)


async def delete_ended(tx: Transaction, now: datetime) -> None:
    await store.delete_ended(tx, now - LIFETIME, now - IDLE)
