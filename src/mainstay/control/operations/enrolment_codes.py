"""Enrollment: a code for one existing agent, or a code that creates an agent for each of many hosts."""

from __future__ import annotations

import secrets
from datetime import datetime, timedelta
from typing import Annotated

import msgspec

from mainstay.control.access import Caller, Role
from mainstay.control.domain.names import PLAIN_NAME
from mainstay.control.operations import agents, tokens
from mainstay.control.operations.agents import NewAgent, Tags
from mainstay.control.operations.machinery.bodies import NO_ZERO, Body, Id, Name
from mainstay.control.operations.machinery.embedded_names import EmbeddedNames, RelatedRow
from mainstay.control.operations.machinery.refusals import BadInput, Conflict, NotPermitted
from mainstay.control.operations.machinery.unit_of_work import UnitOfWork
from mainstay.control.operations.machinery.views import Named
from mainstay.control.store import enrolment_codes as store
from mainstay.control.store.agent_types import AGENT_TYPES
from mainstay.control.store.agents import AGENTS, AgentRow
from mainstay.control.store.engine.records import fold
from mainstay.control.store.enrolment_codes import ENROLMENT_CODES, EnrolmentCodeRow, UsedCode
from mainstay.control.store.participants import PARTICIPANTS, Participant
from mainstay.control.store.tokens import TOKENS, hash_token

AGENT_CODE_LIFETIME = timedelta(minutes=15)
DEFAULT_LIFETIME = timedelta(hours=1)
MIN_LIFETIME_SECONDS, MAX_LIFETIME_SECONDS = 60, 7 * 24 * 3600
MAX_COUNT = 10_000
# Codes of one provider that can still be used.
MAX_OPEN_CODES = 100
MAX_NAME_LENGTH = 255
BAD_CODE = "bad_code"
NamePrefix = Annotated[str, msgspec.Meta(min_length=1, max_length=100, pattern=PLAIN_NAME)]


class AgentEnrolmentCode(msgspec.Struct, frozen=True, rename="camel"):
    """A code of one existing agent."""

    code: str
    expires_at: datetime


class NewEnrolmentCode(Body, frozen=True, kw_only=True):
    agent_type_id: Id
    provider_id: Id
    count: Annotated[int, msgspec.Meta(ge=1, le=MAX_COUNT)]
    # None: an hour, or until the caller's token expires.
    lifetime_seconds: Annotated[int, msgspec.Meta(ge=MIN_LIFETIME_SECONDS, le=MAX_LIFETIME_SECONDS)] | None = None
    tags: Tags = []
    name_prefix: NamePrefix | None = None
    # As for an agent that an admin creates.
    grant: bool | None = None
    # Only for admins: the code does not end with the caller's token.
    outlives_token: bool = False


class EnrolmentCodeView(EnrolmentCodeRow, frozen=True, kw_only=True):
    provider: Named | None
    agent_type: Named | None
    # The name of the token that created it, for admins.
    initiator: Named | None


class NewEnrolmentCodeView(EnrolmentCodeView, frozen=True, kw_only=True):
    """The only response that contains the code."""

    code: str


class EnrolmentRequest(Body, frozen=True, kw_only=True):
    code: Annotated[str, msgspec.Meta(min_length=1, max_length=200, pattern=NO_ZERO)]
    # Name of the host; only for a code of many hosts.
    name: Name | None = None


class Enrolled(msgspec.Struct, frozen=True, rename="camel"):
    agent_id: str
    # With the prefix of the code.
    agent_name: str
    token: str


ENROLMENT_CODE_NAMES = EmbeddedNames(
    ENROLMENT_CODES,
    EnrolmentCodeView,
    {
        "provider": RelatedRow("provider_id", PARTICIPANTS),
        "agent_type": RelatedRow("agent_type_id", AGENT_TYPES),
        "initiator": RelatedRow("initiator_id", TOKENS, hidden_from=frozenset({Role.PARTICIPANT})),
    },
)


def _new_code() -> str:
    # Hexadecimal, because a leading minus would make it an option on a command line.
    return secrets.token_hex(16)


async def create_for_agent(work: UnitOfWork, agent: AgentRow) -> AgentEnrolmentCode:
    """Creates a code that enrolls one program once. A newer code replaces it."""
    code = AgentEnrolmentCode(_new_code(), work.now + AGENT_CODE_LIFETIME)
    initiator_id = work.required_caller.token_id
    await store.add_agent_code(work.tx, hash_token(code.code), agent.id, initiator_id, code.expires_at)
    return code


async def create(work: UnitOfWork, wanted: NewEnrolmentCode) -> NewEnrolmentCodeView:
    caller = work.required_caller
    if wanted.outlives_token and caller.role is not Role.ADMIN:
        raise NotPermitted("only an admin may create a code that outlives the token", code="escalation")
    provider, agent_type = await agents.admit_new(
        work, wanted.provider_id, wanted.agent_type_id, wanted.tags, grant=wanted.grant
    )
    if await store.count_open(work.tx, provider.id, work.now) >= MAX_OPEN_CODES:
        raise Conflict(
            f"participant {provider.name} has {MAX_OPEN_CODES} enrollment codes with places left; revoke some",
            code="too_many_codes",
        )
    await agents.check_default_configuration(work, agent_type, provider.id)
    row = EnrolmentCodeRow(
        **work.new_record(),
        provider_id=provider.id,
        agent_type_id=agent_type.id,
        count=wanted.count,
        uses_left=wanted.count,
        expires_at=_expiry(work, wanted),
        tags=wanted.tags,
        name_prefix=wanted.name_prefix or "",
        initiator_id=caller.token_id,
        initiator_role="admin" if caller.role is Role.ADMIN else "participant",
        outlives_token=wanted.outlives_token,
    )
    code = _new_code()
    await work.insert(ENROLMENT_CODES, row, hash=hash_token(code), initiator_name=caller.name)
    shown = await ENROLMENT_CODE_NAMES.show(work, row)
    return NewEnrolmentCodeView(**msgspec.structs.asdict(shown), code=code)


def _expiry(work: UnitOfWork, wanted: NewEnrolmentCode) -> datetime:
    """Not after the expiry of the caller's token, with which the code ends unless it outlives it."""
    limit = None if wanted.outlives_token else work.required_caller.expires_at
    if wanted.lifetime_seconds is None:
        expires_at = work.now + DEFAULT_LIFETIME
        return expires_at if limit is None else min(expires_at, limit)
    expires_at = work.now + timedelta(seconds=wanted.lifetime_seconds)
    if limit is not None and expires_at > limit:
        way_out = " or, as an admin, outlivesToken" if work.required_caller.role is Role.ADMIN else ""
        raise NotPermitted(
            f"the code must not outlive your own token, which expires at {limit.strftime('%Y-%m-%dT%H:%M:%SZ')};"
            f" choose a shorter lifetimeSeconds{way_out}",
            code="escalation",
        )
    return expires_at


async def revoke(work: UnitOfWork, row: EnrolmentCodeRow) -> None:
    """Hosts that it enrolled stay."""
    await work.delete(ENROLMENT_CODES, row)


async def enrol(work: UnitOfWork, wanted: EnrolmentRequest) -> Enrolled:
    code_hash = hash_token(wanted.code)
    agent_id = await store.use_agent_code(work.tx, code_hash, work.now)
    agent = None if agent_id is None else await AGENTS.find(work.tx, agent_id)
    if agent is not None:
        await _refuse_disabled(work, agent.provider_id)
        _refuse_other_name(wanted.name, agent)
    else:
        agent = await _create_agent(work, code_hash, wanted.name)
    return Enrolled(agent.id, agent.name, (await tokens.save_for_agent(work, agent, "enrolled")).value)


async def _refuse_disabled(work: UnitOfWork, provider_id: str) -> Participant:
    """A participant makes codes for its own hosts only, so this is also the one whose token made the code."""
    provider = await PARTICIPANTS.find(work.tx, provider_id)
    if provider is None or provider.status == "Disabled":
        raise NotPermitted("the provider of this code is disabled; ask an admin to enable it", code="disabled")
    return provider


def _refuse_other_name(name: str | None, agent: AgentRow) -> None:
    if name not in (None, agent.name):
        raise BadInput(f"this code enrolls the existing agent {agent.name}, not {name}; omit the name")


async def _create_agent(work: UnitOfWork, code_hash: str, host_name: str | None) -> AgentRow:
    """Takes a place of a code for many hosts, with the rights of those who created the code. A refusal gives it back."""
    used = await store.take_place(work.tx, code_hash, work.now)
    if used is None:
        raise NotPermitted(
            "this code is unknown, used, revoked or expired, or the token that made it has ended; request a new code",
            code=BAD_CODE,
        )
    code = used.after
    provider = await _refuse_disabled(work, code.provider_id)
    if host_name is None:
        raise BadInput("this code enrolls many hosts; send the name of the host as `name`", code="name_required")
    name = code.name_prefix + host_name
    if len(name) > MAX_NAME_LENGTH:
        raise BadInput(f"the name {name[:40]}… has {len(name)} characters; {MAX_NAME_LENGTH} is the limit")
    # Hosts with one name may use different codes at once.
    await work.tx.lock(f"enrolment {code.provider_id}")
    if await store.has_agent_named(work.tx, code.provider_id, fold(name)):
        raise Conflict(
            f"{provider.name} already has an agent {name}; choose another name, or enroll this host with a code of that"
            " agent",
            code="name_taken",
        )
    work.caller = _initiator(used)
    body = NewAgent(
        name=name, provider_id=code.provider_id, agent_type_id=code.agent_type_id, tags=code.tags, grant=False
    )
    agent = await agents.create(work, body)
    await work.record_event("enrolment_code.updated", used.before, code, agentId=agent.id)
    return agent


def _initiator(used: UsedCode) -> Caller:
    code = used.after
    if code.initiator_role == "admin":
        return Caller(Role.ADMIN, code.initiator_id, name=used.initiator_name)
    return Caller(Role.PARTICIPANT, code.initiator_id, code.provider_id, name=used.initiator_name)
