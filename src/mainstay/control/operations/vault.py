"""Reveals secrets to the agent that owns them or serves their service, and records each access as an event."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta

import msgspec

from mainstay.control.domain.properties.contract import SecretKind
from mainstay.control.domain.properties.schema import PropertySchema
from mainstay.control.domain.properties.traversal import SecretPlace, secrets_in
from mainstay.control.domain.values import Properties
from mainstay.control.operations.machinery import job_chains
from mainstay.control.operations.machinery.refusals import NotFound
from mainstay.control.operations.machinery.secret_sealing import read_secret
from mainstay.control.operations.machinery.unit_of_work import UnitOfWork
from mainstay.control.store import secrets as store
from mainstay.control.store.agent_types import AGENT_TYPES
from mainstay.control.store.agents import AGENTS
from mainstay.control.store.engine.records import Record
from mainstay.control.store.jobs import JOB_CHAINS, JobRow, active_job
from mainstay.control.store.orphans import open_of_agent, read_snapshots
from mainstay.control.store.secrets import SecretOwner
from mainstay.control.store.services import SERVICES, ServiceRow
from mainstay.foundation.vault import VAULT_PREFIX

RECORD_EVERY = timedelta(hours=1)


class Revealed(msgspec.Struct, frozen=True):
    # Any JSON value.
    value: object


class NoSecret(NotFound):
    def __init__(self, reference: str) -> None:
        super().__init__("secret", reference)
        self.args = (f"secret with reference {reference} not found",)


@dataclass(frozen=True, slots=True)
class _Reading:
    """A secret that the caller may read: where its owner holds it, and for which job."""

    owner: Record
    place: SecretPlace
    job_id: str | None = None


async def reveal(work: UnitOfWork, reference: str) -> Revealed:
    name = reference.removeprefix(VAULT_PREFIX)
    owner = await store.owner_served_by(work.tx, name, str(work.required_caller.agent_id))
    reading = None if owner is None else await _find_reading(work, owner, f"{VAULT_PREFIX}{name}")
    if owner is None or reading is None:
        raise NoSecret(reference)
    found = await read_secret(work, owner, reading.place)
    if found is None:
        raise NoSecret(reference)
    await _record_access(work, reading)
    return Revealed(found.reveal())


async def _find_reading(work: UnitOfWork, owner: SecretOwner, reference: str) -> _Reading | None:
    """None: the owner holds the reference nowhere, or the agent may not read it now."""
    if owner.kind == "agent":
        return await _own_reading(work, owner.id, reference)
    service = await SERVICES.find(work.tx, owner.id)
    if service is None:
        return None
    agent_id = str(work.required_caller.agent_id)
    definition = await job_chains.definition_of(work, service)
    job = await active_job(work.tx, service.id)
    owed = await open_of_agent(work.tx, service.id, agent_id)
    if service.agent_id == agent_id:
        has_ended = service.status in definition.lifecycle.terminal_states
        # The agent needs the secrets of an orphan to clean up.
        if has_ended and not any(orphan.reason == "forced_delete" for orphan in owed):
            return None
        place = await _find_in_service(work, service, job, definition.properties, reference)
        if place is None or (place.kind is SecretKind.EPHEMERAL and job is None):
            return None
        return _Reading(service, place, None if job is None else job.id)
    if job is not None and job.is_move and job.status == "Processing" and job.agent_id == agent_id:
        place = await _find_in_run(work, job, definition.properties, reference)
        return None if place is None else _Reading(service, place, job.id)
    for snapshot in (await read_snapshots(work.tx, [orphan.id for orphan in owed])).values():
        place = _find_place(definition.properties, snapshot.properties, reference)
        if place is not None and place.kind is SecretKind.PERSISTENT:
            return _Reading(service, place)
    return None


async def _own_reading(work: UnitOfWork, agent_id: str, reference: str) -> _Reading | None:
    """A secret in the configuration of the agent."""
    agent = await AGENTS.find(work.tx, agent_id)
    agent_type = None if agent is None else await AGENT_TYPES.find(work.tx, agent.agent_type_id)
    if agent is None or agent_type is None:
        return None
    place = _find_place(work.tools.definitions.of_agent_type(agent_type), agent.configuration, reference)
    return None if place is None else _Reading(agent, place)


async def _find_in_service(
    work: UnitOfWork, service: ServiceRow, job: JobRow | None, schema: PropertySchema, reference: str
) -> SecretPlace | None:
    """The place in the properties of the service, or in those that its active chain will give it."""
    found = _find_place(schema, service.properties, reference)
    return found if found is not None or job is None else await _find_in_run(work, job, schema, reference)


async def _find_in_run(work: UnitOfWork, job: JobRow, schema: PropertySchema, reference: str) -> SecretPlace | None:
    chain = await JOB_CHAINS.find(work.tx, job.run_id)
    return None if chain is None else _find_place(schema, chain.properties, reference)


def _find_place(schema: PropertySchema, properties: Properties | None, reference: str) -> SecretPlace | None:
    return next((place for place in secrets_in(schema, properties or {}) if place.reference == reference), None)


async def _record_access(work: UnitOfWork, reading: _Reading) -> None:
    """Records one event per secret and job; outside of jobs at most one per hour."""
    name = reading.place.reference.removeprefix(VAULT_PREFIX)
    known = await store.note_reading(work.tx, name, reading.job_id or "", work.now, RECORD_EVERY)
    if known:
        return
    await work.record_event(
        "vault.read",
        reading.owner,
        reading.owner,
        reference=reading.place.reference,
        schemaPath=reading.place.schema_path,
        jobId=reading.job_id,
    )
