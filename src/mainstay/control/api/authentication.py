"""Authenticates a request by its bearer token. Expired tokens and disabled owners are refused here."""

from __future__ import annotations

from datetime import datetime, timedelta

from mainstay.control.access import Caller, Role
from mainstay.control.api.admission import refusal_of
from mainstay.control.api.contract import Dependencies
from mainstay.control.api.errors import HttpRefusal
from mainstay.control.operations import agents
from mainstay.control.operations.machinery.unit_of_work import UnitOfWork
from mainstay.control.store.engine.contract import Row
from mainstay.control.store.engine.records import to_time
from mainstay.control.store.tokens import find_caller, note_use

MAX_TOKEN = 512
HEARTBEAT_EVERY = timedelta(seconds=15)
USE_EVERY = timedelta(minutes=10)


def _bearer(header: str | None) -> str:
    scheme, _, value = (header or "").partition(" ")
    if scheme.lower() != "bearer" or not value.strip() or len(value) > MAX_TOKEN:
        raise HttpRefusal(401, "unauthorized", "send a token in the header: Authorization: Bearer …")
    return value.strip()


async def authenticate(dependencies: Dependencies, header: str | None) -> Caller:
    value = _bearer(header)
    now = dependencies.clock()
    async with dependencies.store.autocommit() as tx:
        found = await find_caller(tx, value)
    refusal = refusal_of(found, now)
    if found is None or refusal is not None:
        raise refusal or HttpRefusal(401, "unauthorized", "unknown token")
    caller = caller_of(found)
    if caller.agent_id is not None:
        await _note_heartbeat(dependencies, caller, str(found["agent_status"]), found["last_status_update"], now)
    await note_token_use(dependencies, caller, found["last_used_at"], now)
    return caller


def caller_of(found: Row) -> Caller:
    expire_at = found["expire_at"]
    return Caller(
        Role(str(found["role"])),
        str(found["token_id"]),
        None if found["participant_id"] is None else str(found["participant_id"]),
        None if found["agent_id"] is None else str(found["agent_id"]),
        read_only=bool(found["read_only"]),
        expires_at=to_time(expire_at) if isinstance(expire_at, int) else None,
        token_hash=str(found["hash"]),
        name=str(found["name"]),
    )


async def note_token_use(dependencies: Dependencies, caller: Caller, last: object, now: datetime) -> None:
    if isinstance(last, int) and to_time(last) > now - USE_EVERY:
        return
    async with dependencies.store.transaction() as tx:
        await note_use(tx, caller.token_id, now)


async def _note_heartbeat(
    dependencies: Dependencies, caller: Caller, status: str, last: object, now: datetime
) -> None:
    """Every request of an agent is a heartbeat, stored at intervals: a write costs more than the request."""
    if isinstance(last, int) and to_time(last) > now - HEARTBEAT_EVERY and status not in agents.RECONNECTS_FROM:
        return
    async with dependencies.store.transaction() as tx:
        # Read again inside: the clock may have stepped, and the sign of life must not be moved or missed.
        work = UnitOfWork(tx, dependencies.clock(), dependencies.tools, caller)
        await agents.record_heartbeat(work, str(caller.agent_id), reconnects=status in agents.RECONNECTS_FROM)
