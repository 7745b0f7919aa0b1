"""Moves of services: a job `create` on another agent, and the switch when it completes.

Until then nothing of the service changes. `operations/jobs.py` calls `leave_old_agent` or `abandon_target` at the end."""

from __future__ import annotations

import msgspec

from mainstay.control.domain.lifecycle.schema import Lifecycle
from mainstay.control.domain.moves import CONNECTED
from mainstay.control.domain.orphans import EndClean, on_failed_move
from mainstay.control.domain.placement import ServingAgent, pool_needs
from mainstay.control.domain.properties.contract import Operation, PropertyTarget
from mainstay.control.domain.properties.schema import PropertySchema
from mainstay.control.domain.refusals import TerminalState
from mainstay.control.operations import orphans
from mainstay.control.operations.machinery import job_chains, pool_allocation
from mainstay.control.operations.machinery.bodies import Body, Id
from mainstay.control.operations.machinery.job_chains import OrderedChanges
from mainstay.control.operations.machinery.placement import PlacementRequest, admit_named, find_candidates, place
from mainstay.control.operations.machinery.property_decisions import relocate_properties, relocation_questions
from mainstay.control.operations.machinery.refusals import BadInput, Conflict
from mainstay.control.operations.machinery.unit_of_work import UnitOfWork
from mainstay.control.operations.orphans import HostRemains
from mainstay.control.operations.services import (
    PlanDigestText,
    active_job_refusal,
    find_named_agent,
    refuse_stale,
)
from mainstay.control.store.agents import AGENTS, AgentRow
from mainstay.control.store.blueprints import is_movable
from mainstay.control.store.jobs import JobChainRow, JobRow, active_job, was_claimed
from mainstay.control.store.orphans import OrphanSnapshot, agents_owing, open_of_agent
from mainstay.control.store.service_types import find_version
from mainstay.control.store.services import ServiceRow


class MoveRequest(Body, frozen=True, kw_only=True):
    agent_id: Id
    # Also to an agent that is not connected: the service then waits for it.
    force: bool = False
    plan_digest: PlanDigestText | None = None


async def move(work: UnitOfWork, service: ServiceRow, wanted: MoveRequest, if_version: int | None) -> OrderedChanges:
    """Checks in the order of the contract: terminal state, target, properties, version, state, active job."""
    definition = await job_chains.definition_of(work, service)
    if service.status in definition.lifecycle.terminal_states:
        raise TerminalState(service.status)
    target = await _find_target(work, service, wanted.agent_id.lower())
    await admit_named(work, target)
    await _refuse_immovable(work, service)
    changes = await _relocate(work, service, target, definition.properties)
    refuse_stale(service, if_version)
    _refuse_initial_state(service, definition.lifecycle)
    active = await active_job(work.tx, service.id)
    if active is not None:
        raise active_job_refusal(active)
    if target.status != CONNECTED and not wanted.force:
        raise Conflict(
            f"agent {target.name} is not connected ({target.status}): the service would wait for it; start the agent,"
            " or move with `force: true` (`mainstay move --force`)",
            code="agent_offline",
        )
    owed = await open_of_agent(work.tx, service.id, target.id)
    if owed:
        raise Conflict(
            f"agent {target.name} still owes a clean-up of this service ({owed[0].id}); wait until it confirms,"
            " or forget the clean-up",
            code="clean_up_owed",
            details={"orphanId": owed[0].id},
        )
    await job_chains.start_move(work, service, definition.lifecycle, target, changes)
    return changes


async def move_off(work: UnitOfWork, service: ServiceRow) -> JobRow:
    """Moves a service to another agent of the same provider, which placement chooses."""
    definition = await job_chains.definition_of(work, service)
    if service.status in definition.lifecycle.terminal_states:
        raise TerminalState(service.status)
    await _refuse_immovable(work, service)
    _refuse_initial_state(service, definition.lifecycle)
    active = await active_job(work.tx, service.id)
    if active is not None:
        raise active_job_refusal(active)
    found = await find_version(work.tx, service.service_type_id, hold=True)
    source = await AGENTS.require(work.tx, service.agent_id)
    schema = definition.properties
    request = PlacementRequest(
        type_id=service.service_type_id,
        type_name="" if found is None else found.name,
        consumer_id=service.consumer_id,
        provider_id=source.provider_id,
        needs=pool_needs(relocation_questions(work, schema, _place_of(service, source), service.properties)),
        moves_from=source,
        owing=frozenset(await agents_owing(work.tx, service.id)),
    )

    async def take(agent: ServingAgent) -> JobRow:
        target = await AGENTS.require(work.tx, agent.agent_id)
        changes = await _relocate(work, service, target, schema, elsewhere=True)
        return await job_chains.start_move(work, service, definition.lifecycle, target, changes)

    return await place(work, request, await find_candidates(work, request), take)


async def _find_target(work: UnitOfWork, service: ServiceRow, agent_id: str) -> AgentRow:
    found = await find_version(work.tx, service.service_type_id, hold=True)
    type_name = "" if found is None else found.name
    parties = await find_named_agent(work, agent_id, service.consumer_id, (service.service_type_id, type_name))
    target = parties.agent
    if target.id == service.agent_id:
        raise BadInput(f"the service is already on agent {target.name}", code="same_agent")
    if not target.supports_blueprints:
        raise BadInput(
            f"agent {target.name} does not support blueprints, or has never connected; a service moves only to an agent"
            " that runs `mainstay agent`",
            code="no_blueprints",
        )
    return target


async def _refuse_immovable(work: UnitOfWork, service: ServiceRow) -> None:
    digest = service.blueprint_digest
    if digest is None or not await is_movable(work.tx, digest):
        raise BadInput(
            "the blueprint of this service does not say `movable: true`: files on its host would not be copied; say so"
            " in a new version and bring the service to it",
            code="not_movable",
        )


def _refuse_initial_state(service: ServiceRow, lifecycle: Lifecycle) -> None:
    if service.status == lifecycle.initial_state:
        raise Conflict(
            f"the service is in its initial state {service.status} and is on no host yet; delete it and order it on the"
            " other agent",
            code="wrong_state",
        )


def _place_of(service: ServiceRow, target: AgentRow) -> PropertyTarget:
    return PropertyTarget(
        operation=Operation.UPDATE,
        state=service.status,
        service_id=service.id,
        agent_id=target.id,
        pool_set_id=target.service_pool_set_id,
        provider_id=target.provider_id,
        consumer_id=service.consumer_id,
        group_id=service.group_id,
        moves=True,
    )


async def _relocate(
    work: UnitOfWork, service: ServiceRow, target: AgentRow, schema: PropertySchema, *, elsewhere: bool = False
) -> OrderedChanges:
    """`elsewhere`: raises `PoolValueMissing` if the pools of the target have no value."""
    source = await AGENTS.require(work.tx, service.agent_id)
    decided = await relocate_properties(
        work,
        schema,
        _place_of(service, target),
        service.properties,
        new_pool_set=source.service_pool_set_id != target.service_pool_set_id,
        new_provider=service.provider_id != target.provider_id,
        elsewhere=elsewhere,
    )
    origins = job_chains.origins_of(work, schema, service.properties, decided, None)
    return OrderedChanges(decided.accepted.properties, decided, origins=origins)


# ---- the end of the job ----
async def leave_old_agent(
    work: UnitOfWork, service: ServiceRow, chain: JobChainRow, schema: PropertySchema
) -> JobChainRow:
    """Opens the orphan on the agent that the service leaves. Returns the chain without the values that it got."""
    snapshot = OrphanSnapshot(
        status=service.status,
        properties=service.properties,
        agent_instance_id=service.agent_instance_id,
        agent_instance_data=service.agent_instance_data,
        blueprint_digest=service.blueprint_digest,
    )
    remains = HostRemains(service.agent_id, service.provider_id, "moved", snapshot, tuple(chain.released_values))
    await orphans.open_on_host(work, service, remains, schema)
    return msgspec.structs.replace(chain, released_values=[])


async def abandon_target(
    work: UnitOfWork, service: ServiceRow, job: JobRow, chain: JobChainRow, schema: PropertySchema
) -> bool:
    """After any end but success. Returns whether the target has an orphan now; without one, its values are given back."""
    left = on_failed_move(was_claimed=await was_claimed(work.tx, job.id))
    if isinstance(left, EndClean):
        await pool_allocation.release_by_id(work, chain.taken_values)
        return False
    snapshot = OrphanSnapshot(
        status=service.status,
        properties=service.properties if chain.properties is None else chain.properties,
        blueprint_digest=job.blueprint_digest,
    )
    remains = HostRemains(job.agent_id, job.provider_id, left.reason, snapshot, tuple(chain.taken_values))
    await orphans.open_on_host(work, service, remains, schema)
    return True
