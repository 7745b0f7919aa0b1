"""Forecasts of orders: read inside the transaction that executed the order, before it is rolled back."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from datetime import datetime

import msgspec

from mainstay.control.domain.lifecycle import transitions
from mainstay.control.domain.moves import MoveAgent, runs_of_move
from mainstay.control.domain.properties.traversal import SecretPlace, secrets_in
from mainstay.control.domain.values import Properties
from mainstay.control.operations.machinery import job_chains
from mainstay.control.operations.machinery.bundles import open_bundle
from mainstay.control.operations.machinery.job_chains import OrderedChanges
from mainstay.control.operations.machinery.unit_of_work import UnitOfWork
from mainstay.control.store import blueprints
from mainstay.control.store.agents import AGENTS
from mainstay.control.store.blueprints import versions_of
from mainstay.control.store.engine.contract import Transaction
from mainstay.control.store.jobs import JobRow, active_job
from mainstay.control.store.service_pools import SERVICE_POOL_VALUES, ServicePoolValue, held_by
from mainstay.control.store.services import ServiceContext, ServiceRow
from mainstay.foundation.documents import read_yaml
from mainstay.foundation.vault import VAULT_PREFIX
from mainstay.foundation.yaml.document import decode

DRY_REFERENCE = f"{VAULT_PREFIX}dry-run"


class ForecastValue(msgspec.Struct, frozen=True):
    path: str
    value: object


class HostForecast(msgspec.Struct, frozen=True):
    """The dry run of the first step's manifest. Without a manifest nothing changes on the host."""

    manifest: str | None = None
    events: list[dict[str, object]] = []
    summary: dict[str, object] = {}


class Forecast(msgspec.Struct, frozen=True, rename="camel"):
    # After the order. A new secret is shown as `vault://dry-run`.
    properties: dict[str, object]
    # The states of the service from now to the end of its job chain.
    path: list[str]
    # Values that the order would take from pools.
    pool_values: list[ForecastValue]
    # The version of the blueprint after the order, if the order changes it.
    blueprint_version: str | msgspec.UnsetType = msgspec.UNSET
    # The runs of a move on both hosts, in order. Other orders have none.
    steps: list[ForecastStep] | msgspec.UnsetType = msgspec.UNSET
    # Only in plans: the digest that orders exactly this, its expiry, and the changes on the host.
    plan_digest: str | msgspec.UnsetType = msgspec.UNSET
    expires_at: datetime | msgspec.UnsetType = msgspec.UNSET
    host: HostForecast | msgspec.UnsetType = msgspec.UNSET


@dataclass(frozen=True, slots=True)
class OrderOutcome:
    """The outcome of an order. `service` is the row before it. `changes` is None if no job was queued."""

    service: ServiceRow
    action: str
    changes: OrderedChanges | None
    # The order created the service, and this is what its view shows beyond the row. None: it existed.
    new_context: ServiceContext | None = None
    # The order moves the service to another agent; its state stays.
    is_move: bool = False

    @property
    def is_new(self) -> bool:
        return self.new_context is not None


async def forecast_outcome(work: UnitOfWork, outcome: OrderOutcome) -> Forecast:
    if outcome.is_new:
        return await _forecast_creation(work, outcome.service)
    forecast = await _forecast_action(work, outcome)
    if outcome.is_move:
        job = await active_job(work.tx, outcome.service.id)
        target_id = outcome.service.agent_id if job is None else job.agent_id
        return msgspec.structs.replace(forecast, steps=await _steps_of_move(work, outcome.service, target_id))
    version = await _version_after(work, outcome)
    return forecast if version is None else msgspec.structs.replace(forecast, blueprint_version=version)


async def _version_after(work: UnitOfWork, outcome: OrderOutcome) -> str | None:
    job = None if outcome.changes is None else await active_job(work.tx, outcome.service.id)
    return None if job is None else await version_after(work.tx, job, outcome.service.blueprint_digest)


async def version_after(tx: Transaction, job: JobRow, current_digest: str | None) -> str | None:
    """The new version of the blueprint; its digest if the bundle has no version. None: unchanged."""
    if job.blueprint_digest in (None, current_digest):
        return None
    digest = str(job.blueprint_digest)
    return (await versions_of(tx, [digest])).get(digest, digest)


async def _forecast_creation(work: UnitOfWork, service: ServiceRow) -> Forecast:
    definition = await job_chains.definition_of(work, service)
    sealed = secrets_in(definition.properties, service.properties)
    path = transitions.success_path(definition.lifecycle, "create", service.status)
    return _masked_forecast(service.properties, sealed, path, await held_by(work.tx, service.id))


async def _forecast_action(work: UnitOfWork, outcome: OrderOutcome) -> Forecast:
    """Without changes no job is queued."""
    service, changes = outcome.service, outcome.changes
    if changes is None:
        return _masked_forecast(service.properties, (), (service.status,), [])
    lifecycle = (await job_chains.definition_of(work, service)).lifecycle
    values = await SERVICE_POOL_VALUES.many(work.tx, changes.taken_values)
    properties = service.properties if changes.properties is None else changes.properties
    is_move, state = outcome.is_move, service.status
    path = (state,) if is_move else transitions.success_path(lifecycle, outcome.action, state)
    return _masked_forecast(properties, changes.new_secrets, path, list(values.values()))


def _masked_forecast(
    properties: Properties, sealed: tuple[SecretPlace, ...], path: tuple[str, ...], values: list[ServicePoolValue]
) -> Forecast:
    references = frozenset(place.reference for place in sealed)
    masked = {name: _mask(value, references) for name, value in properties.items()}
    return Forecast(masked, list(path), [ForecastValue(str(each.property_name), each.value) for each in values])


def _mask(value: object, sealed: frozenset[str]) -> object:
    if isinstance(value, str):
        return DRY_REFERENCE if value in sealed else value
    if isinstance(value, dict):
        return {name: _mask(item, sealed) for name, item in value.items()}
    if isinstance(value, list):
        return [_mask(item, sealed) for item in value]
    return value


DEFINITION = "blueprint.yaml"


class StepAgent(msgspec.Struct, frozen=True):
    id: str
    name: str
    status: str


class ForecastStep(msgspec.Struct, frozen=True):
    """A run on a host that the order causes: a job, or after a move the clean-up of the old host."""

    agent: StepAgent
    action: str
    # In the order in which the agent applies them. Empty: the blueprint has none for the action.
    manifests: list[str]
    # What happens, or why it does not.
    summary: str


async def _steps_of_move(work: UnitOfWork, service: ServiceRow, target_id: str) -> list[ForecastStep]:
    agents = await AGENTS.many(work.tx, (target_id, service.agent_id))
    content = None if service.blueprint_digest is None else await blueprints.find(work.tx, service.blueprint_digest)
    blueprint = None if content is None else await asyncio.to_thread(_read_definition, content)
    named = [StepAgent(each.id, each.name, each.status) for each in (agents[target_id], agents[service.agent_id])]
    runs = runs_of_move(blueprint, service.status, *(MoveAgent(each.name, each.status) for each in named))
    return [
        ForecastStep(agent, run.action, list(run.manifests), run.summary)
        for agent, run in zip(named, runs, strict=True)
    ]


def _read_definition(content: bytes) -> object:
    """The bundle was checked when it was pushed."""
    return read_yaml(decode(open_bundle(content)[DEFINITION], DEFINITION), DEFINITION)
