"""Orphans: opened by a forced delete or a move, closed when the agent confirms the clean-up or an admin forgets it.

`domain/orphans.py` decides, this module applies. Lock order: the row of the service, then of the orphan."""

from __future__ import annotations

from dataclasses import dataclass

import msgspec

from mainstay.control.access import Role
from mainstay.control.domain import orphans as decide
from mainstay.control.domain.orphans import OrphanReason
from mainstay.control.domain.properties.schema import PropertySchema
from mainstay.control.domain.properties.traversal import secrets_in
from mainstay.control.operations.machinery import job_chains, pool_allocation, secret_sealing
from mainstay.control.operations.machinery.bodies import Body, failure_to_store
from mainstay.control.operations.machinery.refusals import NotFound
from mainstay.control.operations.machinery.unit_of_work import UnitOfWork
from mainstay.control.operations.machinery.views import AgentNamed, Named, ServiceView, show_services
from mainstay.control.operations.plans import ANNOUNCE_AGAIN_AFTER, MAX_ANNOUNCED, question_topic
from mainstay.control.store import orphans as store
from mainstay.control.store.agents import AGENTS, AgentRow
from mainstay.control.store.engine.contract import encode_optional
from mainstay.control.store.jobs import JOB_CHAINS, active_job
from mainstay.control.store.orphans import ORPHANS, OrphanRow, OrphanSnapshot
from mainstay.control.store.participants import PARTICIPANTS, Participant
from mainstay.control.store.service_pools import give_to_orphan, held_by_orphan
from mainstay.control.store.services import SERVICES, ServiceRow, find_for_update
from mainstay.foundation.vault import VAULT_PREFIX


class CleanUpConfirmation(Body, frozen=True, kw_only=True):
    report: object = None


class CleanUpFailure(Body, frozen=True, kw_only=True):
    # Shortened, never refused.
    error_message: str
    report: object = None


class OrphanView(OrphanRow, frozen=True, kw_only=True):
    # The service as a job shows it, for the agent that owes the clean-up; other callers do not get it.
    service: ServiceView | msgspec.UnsetType = msgspec.UNSET


@dataclass(frozen=True, slots=True)
class HostRemains:
    """What a service that lives on left on a host."""

    agent_id: str
    provider_id: str
    reason: OrphanReason
    snapshot: OrphanSnapshot
    # Ids of pool values that the orphan holds.
    values: tuple[str, ...]


async def open_orphan(work: UnitOfWork, service: ServiceRow, reason: OrphanReason) -> None:
    """For a service that ended: its row keeps what the orphan holds."""
    await _insert(work, _new_orphan(work, service, service.agent_id, service.provider_id, reason))


async def open_on_host(work: UnitOfWork, service: ServiceRow, remains: HostRemains, schema: PropertySchema) -> None:
    """For a service that lives on elsewhere: the orphan has a snapshot and its own holdings."""
    orphan = _new_orphan(work, service, remains.agent_id, remains.provider_id, remains.reason)
    await _insert(work, orphan)
    places = secrets_in(schema, remains.snapshot.properties)
    references = [place.reference.removeprefix(VAULT_PREFIX) for place in places]
    await store.insert_snapshot(work.tx, orphan.id, remains.snapshot, references)
    await give_to_orphan(work.tx, remains.values, orphan.id)


async def _insert(work: UnitOfWork, orphan: OrphanRow) -> None:
    await work.insert(ORPHANS, orphan)
    work.tx.announce(question_topic(orphan.agent_id))


async def is_unannounced(work: UnitOfWork) -> bool:
    return await store.is_unannounced(work.tx, str(work.required_caller.agent_id))


async def take_unannounced(work: UnitOfWork) -> bool:
    """Whether the agent should read its clean-ups now."""
    return await store.take_unannounced(work.tx, str(work.required_caller.agent_id))


async def wake(work: UnitOfWork) -> None:
    """Announces again: a replica that crashes between commit and announcement loses the announcement."""
    for agent_id in await store.unannounced_agents(work.tx, work.now - ANNOUNCE_AGAIN_AFTER, MAX_ANNOUNCED):
        work.tx.announce(question_topic(agent_id))


def _new_orphan(
    work: UnitOfWork, service: ServiceRow, agent_id: str, provider_id: str, reason: OrphanReason
) -> OrphanRow:
    return OrphanRow(
        **work.new_record(),
        service_id=service.id,
        service_name=service.name,
        agent_id=agent_id,
        provider_id=provider_id,
        reason=reason,
    )


async def show_orphans(work: UnitOfWork, rows: list[OrphanRow]) -> list[OrphanView]:
    views = [OrphanView(**msgspec.structs.asdict(row)) for row in rows]
    if work.required_caller.role is not Role.AGENT:
        return views
    services = await SERVICES.many(work.tx, [row.service_id for row in rows])
    shown = {view.id: view for view in await show_services(work, list(services.values()))}
    snapshots = await store.read_snapshots(work.tx, [row.id for row in rows])
    agents = await AGENTS.many(work.tx, {row.agent_id for row in rows})
    providers = await PARTICIPANTS.many(work.tx, {row.provider_id for row in rows})
    for index, view in enumerate(views):
        service, snapshot = shown[view.service_id], snapshots.get(view.id)
        if snapshot is not None:
            service = _as_left(service, view, snapshot, agents[view.agent_id], providers[view.provider_id])
        views[index] = msgspec.structs.replace(view, service=service)
    return views


def _as_left(
    service: ServiceView, orphan: OrphanRow, snapshot: OrphanSnapshot, agent: AgentRow, provider: Participant
) -> ServiceView:
    """The service as the host of the orphan has it."""
    return msgspec.structs.replace(
        service,
        **msgspec.structs.asdict(snapshot),
        name=orphan.service_name,
        agent_id=agent.id,
        provider_id=provider.id,
        agent=AgentNamed(agent.id, agent.name, agent.status),
        provider=Named(provider.id, provider.name),
        blueprint_version=service.blueprint_version
        if snapshot.blueprint_digest == service.blueprint_digest
        else None,
        conditions=[],
        active_job=None,
        available_actions=[],
    )


async def confirm(work: UnitOfWork, orphan: OrphanRow, wanted: CleanUpConfirmation) -> None:
    """Changes nothing if the orphan is closed: the agent repeats a confirmation whose answer it did not receive."""
    found = await _lock(work, orphan)
    if found is not None:
        await _close(work, *found, wanted.report)
        await work.record_event("orphan.confirmed", found[1], None)


async def forget(work: UnitOfWork, orphan: OrphanRow) -> None:
    found = await _lock(work, orphan)
    if found is None:
        raise NotFound("orphan", orphan.id)
    await _close(work, *found, None)
    await work.record_event("orphan.forgotten", found[1], None)


async def fail(work: UnitOfWork, orphan: OrphanRow, wanted: CleanUpFailure) -> None:
    found = await _lock(work, orphan)
    if found is None:
        raise NotFound("orphan", orphan.id)
    _, before = found
    failed = decide.on_failed_clean_up(before.attempts, failure_to_store(wanted.error_message))
    after = msgspec.structs.replace(
        before, attempts=failed.attempts, last_error=failed.last_error, updated_at=work.now
    )
    await ORPHANS.update(work.tx, after, report=encode_optional(wanted.report))
    await work.record_event("orphan.failed", before, after)


async def _lock(work: UnitOfWork, orphan: OrphanRow) -> tuple[ServiceRow, OrphanRow] | None:
    """The service and its orphan, locked until the end of the transaction. None: the orphan is closed."""
    service = await find_for_update(work.tx, orphan.service_id, lock=True)
    found = None if service is None else await store.find_open(work.tx, orphan.id)
    return None if service is None or found is None else (service.service, found)


async def _close(work: UnitOfWork, service: ServiceRow, orphan: OrphanRow, report: object) -> None:
    await store.close(work.tx, orphan.id, work.now, report)
    definition = await job_chains.definition_of(work, service)
    snapshot = (await store.read_snapshots(work.tx, [orphan.id])).get(orphan.id)
    if snapshot is None:
        after = await job_chains.release_holdings(work, service, definition.properties)
    else:
        after = service
        await _release_snapshot(work, service, orphan, snapshot, definition.properties)
    others = await store.open_ids(work.tx, "orphans.service_id", service.id)
    after = msgspec.structs.replace(after, orphan=bool(others))
    update = job_chains.ServiceUpdate(before=service, after=after, definition=definition)
    await job_chains.save_service(work, update)


async def _release_snapshot(
    work: UnitOfWork, service: ServiceRow, orphan: OrphanRow, snapshot: OrphanSnapshot, schema: PropertySchema
) -> None:
    values = await held_by_orphan(work.tx, orphan.id)
    await give_to_orphan(work.tx, [value.id for value in values], None)
    await pool_allocation.release(work, values)
    await store.release_secrets(work.tx, orphan.id)
    used = await _used_references(work, service, schema)
    leaving = [place for place in secrets_in(schema, snapshot.properties) if place.reference not in used]
    await secret_sealing.forget(work, job_chains.secrets_owner(service.id), leaving)


async def _used_references(work: UnitOfWork, service: ServiceRow, schema: PropertySchema) -> set[str]:
    """Secrets of the service, and of the chain that is active."""
    job = await active_job(work.tx, service.id)
    chain = None if job is None else await JOB_CHAINS.find(work.tx, job.run_id)
    planned = {} if chain is None else chain.properties or {}
    return {
        place.reference for properties in (service.properties, planned) for place in secrets_in(schema, properties)
    }
