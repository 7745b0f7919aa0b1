"""Reads what a move does, for its forecast: the agents, and the manifests in the bundle of the service."""

from __future__ import annotations

import asyncio

import msgspec

from mainstay.control.domain.moves import MoveAgent, runs_of_move
from mainstay.control.operations.machinery.bundles import open_bundle
from mainstay.control.operations.machinery.unit_of_work import UnitOfWork
from mainstay.control.store import blueprints
from mainstay.control.store.agents import AGENTS
from mainstay.control.store.services import ServiceRow
from mainstay.foundation.documents import read_yaml
from mainstay.foundation.yaml.document import decode

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


async def steps_of_move(work: UnitOfWork, service: ServiceRow, target_id: str) -> list[ForecastStep]:
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
    """Of a bundle that was checked when it was pushed."""
    return read_yaml(decode(open_bundle(content)[DEFINITION], DEFINITION), DEFINITION)
