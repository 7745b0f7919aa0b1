"""Tokens: shown once, stored as a hash. A caller cannot create a token with more rights or a longer life than its own."""

from __future__ import annotations

import secrets
from datetime import UTC, datetime, timedelta

import msgspec

from mainstay.control.access import Role
from mainstay.control.operations.machinery.bodies import Body, Id, Name
from mainstay.control.operations.machinery.embedded_names import EmbeddedNames, RelatedRow
from mainstay.control.operations.machinery.named_rows import find_named
from mainstay.control.operations.machinery.refusals import BadInput, Conflict, NotFound, NotPermitted
from mainstay.control.operations.machinery.unit_of_work import UnitOfWork
from mainstay.control.operations.machinery.views import Named
from mainstay.control.store import enrolment_codes
from mainstay.control.store import tokens as store
from mainstay.control.store.agents import AGENTS, AgentRow
from mainstay.control.store.enrolment_codes import ENROLMENT_CODES, EnrolmentCodeRow
from mainstay.control.store.participants import PARTICIPANTS
from mainstay.control.store.tokens import TOKENS, Token, TokenWithValue, hash_token, with_value

LIFETIME = timedelta(hours=24)
ADMIN_LOCK = "admin tokens"
LATEST = datetime.max.year - 1


class NewToken(Body, frozen=True, kw_only=True):
    name: Name
    role: store.Role
    scope_id: Id | None = None
    expire_at: datetime | None = None
    read_only: bool = False


class TokenChange(Body, frozen=True, kw_only=True):
    name: Name | None = None
    expire_at: datetime | None = None


class TokenView(Token, frozen=True, kw_only=True):
    participant: Named | None
    agent: Named | None


class TokenWithValueView(TokenView, frozen=True, kw_only=True):
    value: str


class EndedWithToken(msgspec.Struct, frozen=True, rename="camel"):
    """What a token had made, and what ended with it."""

    enrolment_codes: list[EnrolmentCodeRow]
    # Agents whose code for one host ended.
    agent_ids: list[str]


RELATED = {"participant": RelatedRow("participant_id", PARTICIPANTS), "agent": RelatedRow("agent_id", AGENTS)}
TOKEN_NAMES = EmbeddedNames(TOKENS, TokenView, RELATED)
NEW_TOKEN_NAMES = EmbeddedNames(TOKENS, TokenWithValueView, RELATED)


def _new_value() -> str:
    return secrets.token_urlsafe(32)


async def create(work: UnitOfWork, wanted: NewToken) -> TokenWithValue:
    participant_id, agent_id = await _resolve_scope(work, wanted)
    if wanted.read_only and wanted.role == "agent":
        raise BadInput("a token of role agent cannot be readOnly: an agent reports to the server")
    token = Token(
        **work.new_record(),
        name=wanted.name,
        role=wanted.role,
        read_only=wanted.read_only,
        expire_at=_expiry(work, wanted.expire_at),
        participant_id=participant_id,
        agent_id=agent_id,
    )
    return await save(work, token)


async def save(work: UnitOfWork, token: Token, value: str | None = None) -> TokenWithValue:
    """`value` None: a new random one."""
    value = value or _new_value()
    await work.insert(TOKENS, token, hash=hash_token(value))
    return with_value(token, value)


async def save_for_agent(
    work: UnitOfWork, agent: AgentRow, purpose: str, expire_at: datetime | None = None, value: str | None = None
) -> TokenWithValue:
    """`expire_at` None: never. `value` as in `save`."""
    token = Token(
        **work.new_record(),
        name=f"{purpose} {agent.name}"[:255],
        role="agent",
        read_only=False,
        expire_at=expire_at,
        participant_id=agent.provider_id,
        agent_id=agent.id,
    )
    return await save(work, token, value)


def _expiry(work: UnitOfWork, wanted: datetime | None) -> datetime:
    """The expiry of a new token: not after that of the caller's token, unless the caller is an admin."""
    expire_at = _check_time(wanted)
    if expire_at is None:
        return expiry_after(work, LIFETIME)
    limit = _limit(work)
    if limit is not None and expire_at > limit:
        raise _beyond(limit)
    return expire_at


def expiry_after(work: UnitOfWork, lifetime: timedelta) -> datetime:
    """The end of the lifetime, or the expiry of the caller's token if that is earlier and the caller is not an admin."""
    limit = _limit(work)
    expire_at = work.now + lifetime
    return expire_at if limit is None else min(expire_at, limit)


def _limit(work: UnitOfWork) -> datetime | None:
    """The latest expiry that the caller may give; None: any."""
    caller = work.required_caller
    return None if caller.role is Role.ADMIN else caller.expires_at


def _beyond(limit: datetime) -> NotPermitted:
    until = limit.strftime("%Y-%m-%dT%H:%M:%SZ")
    return NotPermitted(
        f"expireAt must not be after {until}, when your own token expires; an admin can give a later one",
        code="escalation",
    )


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
        if not is_admin and scope_id != work.required_caller.participant_id:
            raise NotPermitted("you can create tokens only for yourself or your own agents", code="escalation")
        return (await find_named(work, PARTICIPANTS, scope_id)).id, None
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
    expire_at = _check_time(wanted.expire_at) or before.expire_at
    if expire_at != before.expire_at and expire_at is not None:
        limit = _limit(work)
        extended = before.expire_at is not None and expire_at > before.expire_at
        if extended and limit is not None and expire_at > limit:
            raise _beyond(limit)
        if not extended:
            await _refuse_last_admin(work, before, "shorten")
    after = msgspec.structs.replace(before, name=wanted.name or before.name, expire_at=expire_at)
    return await work.update(TOKENS, before, after)


async def _refuse_last_admin(work: UnitOfWork, token: Token, verb: str) -> None:
    """Refuses to end the last token that can administer the server."""
    if token.role != "admin" or token.read_only or (token.expire_at is not None and token.expire_at <= work.now):
        return
    # One after the other, so that two requests do not each count on the token of the other.
    await work.tx.lock(ADMIN_LOCK)
    if not await store.has_other_admin(work.tx, work.now, token.id):
        raise Conflict(f"cannot {verb} the last admin token; create another one first", code="last_admin")


async def regenerate(work: UnitOfWork, before: Token) -> TokenWithValue:
    """Gives the token a new value. The old value is invalid from the commit on, and so are the codes that it made."""
    value = _new_value()
    expire_at = before.expire_at
    if expire_at is not None and work.required_caller.role is Role.ADMIN:
        expire_at = max(expire_at, work.now + LIFETIME)
    after = msgspec.structs.replace(before, updated_at=work.now, expire_at=expire_at)
    await TOKENS.update(work.tx, after, hash=hash_token(value))
    await work.record_event("token.regenerate", before, after)
    await _end_codes(work, before)
    return with_value(after, value)


async def _end_codes(work: UnitOfWork, token: Token) -> EndedWithToken | None:
    """Ends the codes that this token made. None: there are none."""
    codes = await enrolment_codes.open_codes_of(work.tx, token.id, work.now)
    for code in codes:
        await work.delete(ENROLMENT_CODES, code)
    agent_ids = await enrolment_codes.delete_agent_codes_of(work.tx, token.id, work.now)
    return EndedWithToken(codes, agent_ids) if codes or agent_ids else None


async def delete(work: UnitOfWork, token: Token) -> EndedWithToken | None:
    await _refuse_last_admin(work, token, "delete")
    await work.delete(TOKENS, token)
    return await _end_codes(work, token)


async def make_first_admin(work: UnitOfWork) -> str | None:
    """Creates the first admin token of a new database, once for all replicas. None: one is alive and may write."""
    await work.tx.lock(ADMIN_LOCK)
    if await store.has_other_admin(work.tx, work.now):
        return None
    return await make_admin(work, "first admin")


async def make_admin(work: UnitOfWork, name: str) -> str:
    """Creates an admin token without an expiry and returns its value. Only for callers with access to the database."""
    token = Token(
        **work.new_record(),
        name=name,
        role="admin",
        read_only=False,
        participant_id=None,
        agent_id=None,
    )
    return (await save(work, token)).value
