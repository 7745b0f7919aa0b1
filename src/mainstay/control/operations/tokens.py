"""Tokens: shown once, stored as a hash. A caller cannot create a token with more rights than its own."""

from __future__ import annotations

import secrets
from datetime import UTC, datetime, timedelta

import msgspec

from mainstay.control.access import Role
from mainstay.control.operations.machinery.bodies import Body, Id, Name
from mainstay.control.operations.machinery.refusals import BadInput, NotFound, NotPermitted
from mainstay.control.operations.machinery.unit_of_work import UnitOfWork, new_id
from mainstay.control.store import tokens as store
from mainstay.control.store.agents import AGENTS
from mainstay.control.store.participants import PARTICIPANTS
from mainstay.control.store.tokens import TOKENS, Token, TokenWithValue, hash_token, with_value

LIFETIME = timedelta(hours=24)
LATEST = datetime.max.year - 1


class NewToken(Body, frozen=True, kw_only=True):
    name: Name
    role: store.Role
    scope_id: Id | None = None
    expire_at: datetime | None = None


class TokenChange(Body, frozen=True, kw_only=True):
    name: Name | None = None
    expire_at: datetime | None = None


def _new_value() -> str:
    return secrets.token_urlsafe(32)


async def create(work: UnitOfWork, wanted: NewToken) -> TokenWithValue:
    participant_id, agent_id = await _resolve_scope(work, wanted)
    token = Token(
        id=new_id(),
        created_at=work.now,
        updated_at=work.now,
        name=wanted.name,
        role=wanted.role,
        expire_at=_check_time(wanted.expire_at) or work.now + LIFETIME,
        participant_id=participant_id,
        agent_id=agent_id,
    )
    return await save(work, token)


async def save(work: UnitOfWork, token: Token) -> TokenWithValue:
    value = _new_value()
    await work.insert(TOKENS, token, hash=hash_token(value))
    return with_value(token, value)


def _check_time(time: datetime | None) -> datetime | None:
    if time is None:
        return None
    if time.tzinfo is None or not 1970 <= time.year < LATEST:
        raise BadInput("expireAt must be a time with a time zone, from 1970 on")
    return time.astimezone(UTC)


async def _resolve_scope(work: UnitOfWork, wanted: NewToken) -> tuple[str | None, str | None]:
    """The participant and the agent that the token belongs to."""
    is_admin = work.required_caller.role is Role.ADMIN
    if wanted.role == "admin":
        if not is_admin:
            raise NotPermitted("only an admin may create a token of role admin", code="escalation")
        if wanted.scope_id is not None:
            raise BadInput("a token of role admin has no scopeId")
        return None, None
    if wanted.scope_id is None:
        raise BadInput(f"a token of role {wanted.role} needs scopeId, the id of its {wanted.role}")
    scope_id = wanted.scope_id.lower()
    if wanted.role == "participant":
        participant = await PARTICIPANTS.find(work.tx, scope_id)
        if not is_admin and scope_id != work.required_caller.participant_id:
            raise NotPermitted("you can create tokens only for yourself or your own agents", code="escalation")
        if participant is None:
            raise BadInput(f"there is no participant {scope_id}")
        return participant.id, None
    agent = await AGENTS.find(work.tx, scope_id)
    if not is_admin and (agent is None or agent.provider_id != work.required_caller.participant_id):
        raise NotPermitted("you can create tokens only for yourself or your own agents", code="escalation")
    if agent is None:
        raise BadInput(f"there is no agent {scope_id}")
    return agent.provider_id, agent.id


async def find_own(work: UnitOfWork) -> Token:
    found = await TOKENS.find(work.tx, work.required_caller.token_id)
    if found is None:
        raise NotFound("token", work.required_caller.token_id)
    return found


async def change(work: UnitOfWork, before: Token, wanted: TokenChange) -> Token:
    after = msgspec.structs.replace(
        before,
        name=wanted.name or before.name,
        expire_at=_check_time(wanted.expire_at) or before.expire_at,
    )
    return await work.update(TOKENS, before, after)


async def regenerate(work: UnitOfWork, before: Token) -> TokenWithValue:
    """Gives the token a new value. The old value is invalid from the commit on."""
    value = _new_value()
    expire_at = None if before.expire_at is None else max(before.expire_at, work.now + LIFETIME)
    after = msgspec.structs.replace(before, updated_at=work.now, expire_at=expire_at)
    await TOKENS.update(work.tx, after, hash=hash_token(value))
    await work.record_event("token.regenerate", before, after)
    return with_value(after, value)


async def delete(work: UnitOfWork, token: Token) -> None:
    await work.delete(TOKENS, token)


async def make_first_admin(work: UnitOfWork) -> str | None:
    """Creates the first admin token of a new database, once for all replicas. None: an admin token exists."""
    await work.tx.lock("first admin")
    if await store.has_admin(work.tx):
        return None
    token = Token(id=new_id(), created_at=work.now, updated_at=work.now, name="first admin", role="admin")
    return (await save(work, token)).value
