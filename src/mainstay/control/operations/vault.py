"""Reveals secrets to the agent that owns them or serves their service, and records each access as an event."""

from __future__ import annotations

from datetime import timedelta

import msgspec

from mainstay.control.operations.machinery.refusals import NotFound
from mainstay.control.operations.machinery.secret_sealing import open_secret
from mainstay.control.operations.machinery.unit_of_work import UnitOfWork
from mainstay.control.store import secrets as store
from mainstay.control.store.agents import AGENTS
from mainstay.control.store.engine.records import Record
from mainstay.control.store.jobs import active_job
from mainstay.control.store.secrets import StoredSecret
from mainstay.control.store.services import SERVICES
from mainstay.foundation.vault import VAULT_PREFIX

RECORD_EVERY = timedelta(hours=1)


class Revealed(msgspec.Struct, frozen=True):
    # Any JSON value.
    value: object


class NoSecret(NotFound):
    def __init__(self, reference: str) -> None:
        super().__init__("secret", reference)
        self.args = (f"secret with reference {reference} not found",)


async def reveal(work: UnitOfWork, reference: str) -> Revealed:
    name = reference.removeprefix(VAULT_PREFIX)
    secret = await store.find(work.tx, name)
    vault = work.tools.vault
    if secret is None or vault is None:
        raise NoSecret(reference)
    owner, job_id = await _owner(work, secret, reference)
    await _record_access(work, secret, owner, job_id)
    return Revealed(open_secret(vault, secret))


async def _owner(work: UnitOfWork, secret: StoredSecret, reference: str) -> tuple[Record, str | None]:
    """The owner of the secret and the active job. Raises `NoSecret` if the caller may not read it."""
    agent_id = work.required_caller.agent_id
    if secret.owner_kind == "agent":
        agent = await AGENTS.find(work.tx, secret.owner_id)
        if agent is None or agent.id != agent_id:
            raise NoSecret(reference)
        return agent, None
    service = await SERVICES.find(work.tx, secret.owner_id)
    if service is None or service.agent_id != agent_id:
        raise NoSecret(reference)
    job = await active_job(work.tx, service.id)
    if job is None and secret.type == "ephemeral":
        raise NoSecret(reference)
    return service, None if job is None else job.id


async def _record_access(work: UnitOfWork, secret: StoredSecret, owner: Record, job_id: str | None) -> None:
    """Records one event per secret and job; outside of jobs at most one per hour."""
    known = await store.note_reading(work.tx, secret.reference, job_id or "", work.now, RECORD_EVERY)
    if known:
        return
    await work.record_event(
        "vault.read",
        owner,
        owner,
        reference=f"{VAULT_PREFIX}{secret.reference}",
        schemaPath=secret.schema_path,
        jobId=job_id,
    )
