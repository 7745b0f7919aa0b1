"""Agents: created by their provider, connected as long as they send requests."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Annotated, Literal

import msgspec

from mainstay.control.access import Role
from mainstay.control.domain.faults import below
from mainstay.control.domain.placement import ADMIN_TAG_PREFIX, admin_tags
from mainstay.control.domain.properties.contract import Operation, PropertyTarget
from mainstay.control.operations.machinery import pool_allocation, secret_sealing
from mainstay.control.operations.machinery.bodies import AgentProtocolBody, Body, Id, Name, ShortText, Tag
from mainstay.control.operations.machinery.bounds import MAX_FACTS_BYTES, refuse_unusable
from mainstay.control.operations.machinery.caller_session import CallerSession
from mainstay.control.operations.machinery.embedded_names import EmbeddedNames, RelatedRow
from mainstay.control.operations.machinery.named_rows import find_named, refuse_for_others
from mainstay.control.operations.machinery.property_decisions import accept_properties
from mainstay.control.operations.machinery.refusals import BadInput, InUse, InvalidProperties, NotPermitted
from mainstay.control.operations.machinery.unit_of_work import UnitOfWork, new_id
from mainstay.control.operations.machinery.views import Named
from mainstay.control.store import agents as store
from mainstay.control.store import secrets as secret_store
from mainstay.control.store.agent_types import AGENT_TYPES, AgentType, link_provider, served_names
from mainstay.control.store.agents import AGENTS, AgentLoad, AgentRow, AgentStatus
from mainstay.control.store.jobs import active_ids_of_agent, delete_ended_of_agent
from mainstay.control.store.orphans import open_ids
from mainstay.control.store.participants import PARTICIPANTS, Participant
from mainstay.control.store.secrets import SecretOwner
from mainstay.control.store.service_pools import SERVICE_POOL_SETS
from mainstay.control.store.services import delete_terminal, living_ids

Tags = Annotated[list[Tag], msgspec.Meta(max_length=100)]
# A request of the agent reconnects it from these. Error and Disabled end only by an explicit change.
RECONNECTS_FROM = frozenset({"New", "Disconnected"})
SILENT_AFTER = timedelta(seconds=150)
SWEEP = 100
Capacity = Annotated[int, msgspec.Meta(ge=0, le=1_000_000)]


class NewAgent(Body, frozen=True, kw_only=True):
    name: Name
    provider_id: Id
    agent_type_id: Id
    tags: Tags = []
    configuration: dict[str, object] | None = None
    service_pool_set_id: Id | None = None
    # The most services that placement gives the agent.
    capacity: Capacity | None = None
    # Whether an admin lets the provider's agents of this type serve other participants; None: an admin does.
    grant: bool | None = None


class AgentChange(Body, frozen=True, kw_only=True):
    name: Name | None = None
    status: AgentStatus | None = None
    tags: Tags | None = None
    configuration: dict[str, object] | None = None
    service_pool_set_id: Id | msgspec.UnsetType | None = msgspec.UNSET
    # None: unlimited.
    capacity: Capacity | msgspec.UnsetType | None = msgspec.UNSET


class OwnStatus(AgentProtocolBody, frozen=True, kw_only=True):
    status: Literal["New", "Connected", "Disconnected", "Error", "Disabled"]
    version: ShortText | None = None
    # hostname, os, kernel, cpus, memoryBytes, addresses, startedAt, clockOffsetSeconds and others.
    facts: dict[str, object] | None = None


class AgentView(AgentRow, frozen=True, kw_only=True):
    participant: Named | None
    agent_type: Named | None


AGENT_NAMES = EmbeddedNames(
    AGENTS,
    AgentView,
    {"participant": RelatedRow("provider_id", PARTICIPANTS), "agent_type": RelatedRow("agent_type_id", AGENT_TYPES)},
)


class AgentEstate(msgspec.Struct, frozen=True):
    """An agent with what it serves and does."""

    agent: AgentView
    load: AgentLoad
    serves: list[str]


async def page_trouble_first(
    work: UnitOfWork, statuses: Sequence[str], part: str, page: int, size: int
) -> tuple[list[AgentEstate], bool]:
    """A page of the agents that the caller may read, broken ones first, and whether there are more."""
    rows = await store.page_trouble_first(work.tx, work.scope("agent"), statuses, part, size + 1, (page - 1) * size)
    views = await AGENT_NAMES.show_all(work, rows[:size])
    loads = await store.read_loads(work.tx, [each.id for each in views])
    served = await served_names(work.tx, sorted({each.agent_type_id for each in views}))
    found = [AgentEstate(each, loads[each.id], served.get(each.agent_type_id, [])) for each in views]
    return found, len(rows) > size


async def count_by_status(work: UnitOfWork) -> dict[str, int]:
    return await store.count_by_status(work.tx, work.scope("agent"))


async def create(work: UnitOfWork, wanted: NewAgent) -> AgentRow:
    provider, agent_type = await admit_new(
        work, wanted.provider_id, wanted.agent_type_id, wanted.tags, grant=wanted.grant
    )
    new = work.new_record()
    agent = AgentRow(
        **new,
        name=wanted.name,
        status="New",
        last_status_update=work.now,
        tags=wanted.tags,
        configuration=await _configure(work, agent_type, wanted.configuration, new["id"], provider.id, None),
        provider_id=provider.id,
        agent_type_id=agent_type.id,
        service_pool_set_id=await _pool_set(work, wanted.service_pool_set_id, provider.id),
        capacity=wanted.capacity,
    )
    return await work.insert(AGENTS, agent)


async def admit_new(
    work: UnitOfWork, provider_id: str, agent_type_id: str, tags: Sequence[str], *, grant: bool | None
) -> tuple[Participant, AgentType]:
    """Provider and type of new agents, if the caller may create them. Grants the provider if an admin wants it."""
    provider_id = provider_id.lower()
    refuse_for_others(work, provider_id, "agents")
    provider = await find_named(work, PARTICIPANTS, provider_id)
    _refuse_admin_tags(work, (), tags)
    grants = _grants(work, wanted=grant)
    agent_type = await find_named(work, AGENT_TYPES, agent_type_id, lock=grants)
    if grants:
        await _grant(work, agent_type, provider.id)
    return provider, agent_type


def _grants(work: UnitOfWork, *, wanted: bool | None) -> bool:
    if work.required_caller.role is Role.ADMIN:
        return wanted is not False
    if wanted:
        raise NotPermitted("only an admin lets agents serve other participants; omit `grant`")
    return False


async def _grant(work: UnitOfWork, agent_type: AgentType, provider_id: str) -> None:
    await link_provider(work.tx, agent_type.id, provider_id)
    if provider_id not in agent_type.provider_ids:
        after = msgspec.structs.replace(agent_type, provider_ids=[*agent_type.provider_ids, provider_id])
        await work.update(AGENT_TYPES, agent_type, after)


def _refuse_admin_tags(work: UnitOfWork, before: Sequence[str], after: Sequence[str]) -> None:
    """A provider neither adds nor removes a tag that only an admin sets."""
    changed = admin_tags(before) ^ admin_tags(after)
    if changed and work.required_caller.role is not Role.ADMIN:
        named = ", ".join(sorted(changed))
        raise NotPermitted(
            f"only an admin adds or removes tags that begin with '{ADMIN_TAG_PREFIX}', such as {named}"
        )


async def _pool_set(work: UnitOfWork, pool_set_id: str | None, provider_id: str) -> str | None:
    if pool_set_id is None:
        return None
    found = await SERVICE_POOL_SETS.find(work.tx, pool_set_id.lower())
    if found is None or found.provider_id != provider_id:
        if work.required_caller.role is not Role.ADMIN:
            raise NotPermitted("the pool set must belong to the provider of the agent")
        raise BadInput(f"provider {provider_id} has no service pool set {pool_set_id}")
    return found.id


async def _configure(
    work: UnitOfWork,
    agent_type: AgentType,
    given: dict[str, object] | None,
    agent_id: str,
    provider_id: str,
    stored: dict[str, object] | None,
) -> dict[str, object] | None:
    """Returns the configuration to store. None: the type has no schema and no values were given."""
    schema = work.tools.definitions.of_agent_type(agent_type)
    if given is None and (stored is not None or schema.members is None):
        return stored
    target = PropertyTarget(
        operation=Operation.CREATE if stored is None else Operation.UPDATE,
        agent_id=agent_id,
        provider_id=provider_id,
        configures_agent=True,
        global_pools=work.required_caller.role is Role.ADMIN or provider_id in agent_type.provider_ids,
    )
    owner = SecretOwner("agent", agent_id)
    try:
        decided = await accept_properties(work, schema, given or {}, target, stored)
        configuration, _ = await secret_sealing.seal_all(work, decided.accepted, owner)
    except InvalidProperties as refusal:
        raise InvalidProperties(below("configuration", refusal.faults)) from None
    await secret_sealing.forget(work, owner, decided.accepted.retired_secrets)
    await pool_allocation.release_replaced(work, agent_id, decided.accepted.pool_releases, decided.taken_values)
    return configuration


class _Undone(Exception):
    """Undoes a part of a transaction that only tried something."""


async def check_default_configuration(work: UnitOfWork, agent_type: AgentType, provider_id: str) -> None:
    """Refuses agent types whose agents need a configuration of their own. Tries it and undoes that."""
    try:
        async with work.tx.savepoint():
            await _configure(work, agent_type, None, new_id(), provider_id, None)
            raise _Undone
    except _Undone:
        return


async def change(work: UnitOfWork, before: AgentRow, wanted: AgentChange) -> AgentRow:
    if wanted.tags is not None:
        _refuse_admin_tags(work, before.tags, wanted.tags)
    agent_type = await AGENT_TYPES.require(work.tx, before.agent_type_id)
    after = msgspec.structs.replace(
        before,
        name=wanted.name or before.name,
        tags=before.tags if wanted.tags is None else wanted.tags,
        configuration=await _configure(
            work, agent_type, wanted.configuration, before.id, before.provider_id, before.configuration
        ),
        capacity=before.capacity if wanted.capacity is msgspec.UNSET else wanted.capacity,
    )
    if wanted.service_pool_set_id is not msgspec.UNSET:
        pool_set_id = await _pool_set(work, wanted.service_pool_set_id, before.provider_id)
        after = msgspec.structs.replace(after, service_pool_set_id=pool_set_id)
    if wanted.status is not None:
        after = _with_status(work, after, wanted.status)
    return await work.update(AGENTS, before, after)


def _with_status(work: UnitOfWork, agent: AgentRow, status: AgentStatus) -> AgentRow:
    by_admin = work.required_caller.role is Role.ADMIN
    if status != "Disabled" and not by_admin:
        _refuse_disabled_by_admin(agent)
    # `last_status_update` stays the last sign of life of the agent.
    return msgspec.structs.replace(
        agent,
        status=status,
        disabled_by_admin=status == "Disabled" and (by_admin or agent.disabled_by_admin),
    )


def _refuse_disabled_by_admin(agent: AgentRow) -> None:
    if agent.disabled_by_admin:
        raise NotPermitted(
            f"an admin disabled agent {agent.name}; only an admin enables or deletes it", code="disabled_by_admin"
        )


async def set_own_status(work: UnitOfWork, wanted: OwnStatus) -> AgentRow:
    before = await find_own(work, lock=True)
    if wanted.status == "Disabled":
        raise NotPermitted("an agent cannot disable itself; its provider can")
    if before.status == "Disabled":
        # Disabled after this request was authenticated.
        raise NotPermitted("the agent is disabled", code="disabled")
    if wanted.version is not None or wanted.facts is not None:
        refuse_unusable("facts", wanted.facts, MAX_FACTS_BYTES)
        before = msgspec.structs.replace(
            before, version=wanted.version or before.version, facts=wanted.facts or before.facts
        )
        await store.note_facts(work.tx, before)
    if wanted.status == before.status:
        await store.record_heartbeat(work.tx, before.id, work.now)
        return msgspec.structs.replace(before, last_status_update=work.now)
    return await work.update(
        AGENTS, before, msgspec.structs.replace(before, status=wanted.status, last_status_update=work.now)
    )


async def note_blueprints(session: CallerSession) -> None:
    """Called when an agent asks for something that only agents that run blueprints need."""
    caller = session.caller
    if caller is None or caller.agent_id is None:
        return
    async with session.reading() as work:
        if (await find_own(work)).supports_blueprints:
            return
    async with session.transaction() as work:
        await store.note_blueprints(work.tx, caller.agent_id)


async def find_own(work: UnitOfWork, *, lock: bool = False) -> AgentRow:
    """A token of an agent is deleted with the agent."""
    return await AGENTS.require(work.tx, str(work.required_caller.agent_id), lock=lock)


async def record_heartbeat(work: UnitOfWork, agent_id: str, *, reconnects: bool = True) -> None:
    """`reconnects` False: the request began while the agent was connected, so a Disconnected agent has said so since."""
    if await store.record_heartbeat(work.tx, agent_id, work.now) or not reconnects:
        return
    agent = await AGENTS.find(work.tx, agent_id, lock=True)
    if agent is not None and agent.status in RECONNECTS_FROM:
        after = msgspec.structs.replace(agent, status="Connected", last_status_update=work.now)
        await work.update(AGENTS, agent, after)


async def disconnect_silent(work: UnitOfWork) -> int:
    """Marks silent agents Disconnected and returns how many."""
    silent = await store.silent_agents(work.tx, work.now - SILENT_AFTER, SWEEP)
    for agent in silent:
        await work.update(AGENTS, agent, msgspec.structs.replace(agent, status="Disconnected"))
    return len(silent)


async def delete(work: UnitOfWork, agent: AgentRow) -> None:
    if work.required_caller.role is not Role.ADMIN:
        _refuse_disabled_by_admin(agent)
    living = await living_ids(work.tx, "agent_id", agent.id)
    owed = await open_ids(work.tx, "orphans.agent_id", agent.id)
    # Services that ended here may have left an orphan on an agent where they were before.
    owed += [each for each in await open_ids(work.tx, "services.agent_id", agent.id) if each not in owed]
    moving = [] if living else await active_ids_of_agent(work.tx, agent.id)
    if living or owed or moving:
        raise InUse(f"agent {agent.id}", {"services": living, "orphans": owed, "jobs": moving})
    await delete_terminal(work.tx, "agent_id", agent.id)
    await delete_ended_of_agent(work.tx, agent.id)
    await secret_store.delete_of(work.tx, "agent", agent.id)
    await pool_allocation.release_of_agent(work, agent.id)
    await work.delete(AGENTS, agent)
