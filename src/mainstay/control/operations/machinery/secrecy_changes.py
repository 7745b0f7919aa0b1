"""A change of a type that makes properties secret or plain: seals stored values, deletes secrets, and removes what became
secret from ended jobs. Events are never changed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import msgspec

from mainstay.control.domain.properties.contract import RevealedSecret
from mainstay.control.domain.properties.declaration import PropertyDeclaration
from mainstay.control.domain.properties.evaluation import SecretSlot
from mainstay.control.domain.properties.schema import PropertySchema
from mainstay.control.domain.properties.secrecy import (
    Eraser,
    HeldSecrets,
    drops_secret,
    lost_secrets,
    makes_secret,
    plain_values,
    without_lost,
    without_plain,
)
from mainstay.control.domain.properties.traversal import SecretPlace, rewrite_secrets
from mainstay.control.domain.values import Properties
from mainstay.control.operations.machinery import job_chains, secret_sealing
from mainstay.control.operations.machinery.refusals import Conflict
from mainstay.control.operations.machinery.unit_of_work import UnitOfWork
from mainstay.control.store import idempotency
from mainstay.control.store import jobs as job_store
from mainstay.control.store import secrets as secret_store
from mainstay.control.store import services as service_store
from mainstay.control.store.agents import AGENTS
from mainstay.control.store.jobs import PastJob
from mainstay.control.store.secrets import SecretOwner
from mainstay.control.store.services import SERVICES, ServiceRow

# Their ended jobs are in memory with their reports.
SERVICES_AT_ONCE = 20
MAX_AGENTS = 1_000_000
LISTED = 10


@dataclass(frozen=True, slots=True)
class ServiceSecrecy:
    """What the change means for one service."""

    # Values to be sealed.
    plain: tuple[SecretSlot, ...] = ()
    # Secrets to be deleted.
    lost: tuple[SecretPlace, ...] = ()

    @property
    def message(self) -> str:
        sealed = [f"{slot.path}: a plain value becomes secret" for slot in self.plain]
        deleted = [f"{place.schema_path}: a secret would be deleted" for place in self.lost]
        return "; ".join([*sealed, *deleted])


class SecrecyChange:
    def __init__(self, before: PropertySchema, after: PropertySchema) -> None:
        self.before = before
        self.after = after
        self.makes_secret = makes_secret(before, after)
        self.drops_secret = drops_secret(before, after)

    @property
    def concerns_values(self) -> bool:
        """False: no stored value can be affected. A release before this one left plain values in secret properties, so every
        type with secrets is examined."""
        return self.after.has_secrets or self.drops_secret

    @property
    def needs_idle_services(self) -> bool:
        """An active job may store a plain value, or need a secret that would be deleted."""
        return self.makes_secret or self.drops_secret

    def examine(self, properties: Properties, held: HeldSecrets) -> ServiceSecrecy:
        lost = lost_secrets(self.before, self.after, properties)
        left = without_lost(self.before, properties, lost)
        return ServiceSecrecy(plain_values(self.after, left, held), lost)


async def seal_configurations(work: UnitOfWork, agent_type_id: str, change: SecrecyChange) -> None:
    """Seals values of agents that become secret. Nothing is lost, so it needs no force."""
    if not change.concerns_values:
        return
    agents = await AGENTS.all_by(work.tx, "agent_type_id", agent_type_id, lock=True, limit=MAX_AGENTS)
    found = {
        agent.id: change.examine(agent.configuration or {}, held.get(agent.id, frozenset()))
        for agent in agents
        for held in [await secret_store.held_by(work.tx, "agent", [agent.id])]
    }
    holders = [agent.id for agent in agents if found[agent.id].lost]
    if holders:
        raise Conflict(
            "agents of this type hold a secret that would become plain; clear the property in their configuration first",
            code="agents_hold_secrets",
            details={"dependants": {"agents": holders[:LISTED]}},
        )
    for agent in agents:
        plain = found[agent.id].plain
        sealed = await secret_sealing.seal_slots(work, plain, SecretOwner("agent", agent.id))
        if sealed and agent.configuration is not None:
            # The event shows the change without the plain values.
            before = msgspec.structs.replace(agent, configuration=without_plain(change.after, agent.configuration)[0])
            configuration = _replaced(change, agent.configuration, found[agent.id], sealed)
            await work.update(AGENTS, before, msgspec.structs.replace(agent, configuration=configuration))


async def apply_secrecy(work: UnitOfWork, service_type_id: str, change: SecrecyChange) -> None:
    """Called with the living services locked and no active job on those that change."""
    last: str | None = ""
    while last is not None:
        services = await service_store.services_of_type(work.tx, service_type_id, last, SERVICES_AT_ONCE)
        ids = [service.id for service, _ in services]
        held = await secret_store.held_by(work.tx, "service", ids)
        past = await job_store.past_jobs(work.tx, ids)
        planned = await job_store.planned_properties(work.tx, ids)
        for service, is_terminal in services:
            found = change.examine(service.properties, held.get(service.id, frozenset()))
            erased = await _erase_runs(work, change, planned.get(service.id, {}))
            erased += [slot.plain for slot in found.plain]
            eraser = await _erase_jobs(work, change, past.get(service.id, []), erased)
            # An orphan keeps its secrets: its agent still cleans up with them.
            has_ended = is_terminal and not service.orphan
            await _apply_to_service(work, change, service, found, eraser, has_ended=has_ended)
        last = ids[-1] if len(ids) == SERVICES_AT_ONCE else None
    await _erase_answers(work, service_type_id, change)


async def _erase_runs(
    work: UnitOfWork, change: SecrecyChange, planned: Mapping[str, Properties]
) -> list[RevealedSecret]:
    """Removes plain values of secret properties from ended job chains, and returns them."""
    erased: list[RevealedSecret] = []
    for run_id, properties in planned.items():
        kept, found = without_plain(change.after, properties)
        if found:
            await job_store.set_planned_properties(work.tx, run_id, kept)
        erased += found
    return erased


async def _erase_jobs(
    work: UnitOfWork, change: SecrecyChange, past: list[PastJob], erased: list[RevealedSecret]
) -> Eraser:
    """Removes plain values of secret properties from ended jobs: from params by their path, elsewhere by their text."""
    kept: dict[str, Properties | None] = {}
    for job in past:
        params, found = without_plain(change.after, job.params or {})
        kept[job.id] = params if found else job.params
        erased = [*erased, *found]
    eraser = Eraser(erased)
    for job in past:
        clean = PastJob(
            id=job.id,
            params=kept[job.id],
            report=eraser.erase(job.report),
            error_message=eraser.erase(job.error_message),
            progress=eraser.erase(job.progress),
        )
        if clean != job:
            await job_store.rewrite_past_job(work.tx, clean)
    return eraser


async def _apply_to_service(
    work: UnitOfWork,
    change: SecrecyChange,
    service: ServiceRow,
    found: ServiceSecrecy,
    eraser: Eraser,
    *,
    has_ended: bool,
) -> None:
    owner = job_chains.secrets_owner(service.id)
    await secret_sealing.forget(work, owner, found.lost)
    # A service in a terminal state keeps no secrets.
    sealed = {} if has_ended else await secret_sealing.seal_slots(work, found.plain, owner)
    # The event shows the change without the plain values.
    before = msgspec.structs.replace(
        service,
        properties=without_plain(change.after, service.properties)[0],
        conditions=[_erase_condition(each, eraser) for each in service.conditions],
        agent_instance_data=eraser.erase(service.agent_instance_data),
    )
    left = without_lost(change.before, service.properties, found.lost)
    after = msgspec.structs.replace(before, properties=_replaced(change, left, found, sealed))
    if after != service:
        after = msgspec.structs.replace(after, updated_at=work.now, version=service.version + 1)
        await SERVICES.update(work.tx, after)
        await work.record_event("service.updated", before, after)


def _erase_condition(condition: dict[str, object], eraser: Eraser) -> dict[str, object]:
    """Only its texts: type and status are names, not values."""
    texts = ("reason", "message", "consumerMessage")
    return condition | {name: eraser.erase(condition[name]) for name in texts if name in condition}


def _replaced(
    change: SecrecyChange, properties: Properties, found: ServiceSecrecy, sealed: Mapping[str, SecretPlace]
) -> Properties:
    """The properties with plain values replaced by their references, or left out."""
    plain = {slot.path for slot in found.plain}

    def replace(_declared: PropertyDeclaration, path: str, value: object) -> object | None:
        if path not in plain:
            return value
        return sealed[path].reference if path in sealed else None

    return rewrite_secrets(change.after, properties, replace)


async def _erase_answers(work: UnitOfWork, service_type_id: str, change: SecrecyChange) -> None:
    """Answers that are kept for repeated orders."""
    for token_id, key, text in await idempotency.answers_with(work.tx, service_type_id):
        answer = msgspec.json.decode(text, type=dict[str, object])
        properties = answer.get("properties")
        if answer.get("serviceTypeId") != service_type_id or not isinstance(properties, dict):
            continue
        kept, found = without_plain(change.after, properties)
        if found:
            answer["properties"] = kept
            await idempotency.keep_answer(work.tx, token_id, key, msgspec.json.encode(answer).decode())
