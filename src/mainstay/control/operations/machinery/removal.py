"""Deletion with dependants: living dependants refuse it, the others are deleted too."""

from __future__ import annotations

from typing import TypeVar

import msgspec

from mainstay.control.operations.machinery.refusals import InUse
from mainstay.control.operations.machinery.unit_of_work import UnitOfWork
from mainstay.control.store.agent_types import AGENT_TYPES, types_of_provider
from mainstay.control.store.engine.records import Record, Table, referring_ids
from mainstay.control.store.orphans import open_ids
from mainstay.control.store.participants import PARTICIPANTS, Participant
from mainstay.control.store.service_groups import SERVICE_GROUPS
from mainstay.control.store.services import delete_terminal, living_ids

R = TypeVar("R", bound=Record)


async def refuse_if_needed(work: UnitOfWork, table: Table[R], record: R, columns: dict[str, tuple[str, str]]) -> None:
    """`columns`: name of the dependants → (table, column that refers to this record)."""
    found = {
        noun: await referring_ids(work.tx, other, column, record.id) for noun, (other, column) in columns.items()
    }
    if any(found.values()):
        raise InUse(f"{table.noun.replace('_', ' ')} {record.id}", found)


async def remove_participant(work: UnitOfWork, participant: Participant) -> None:
    """Deletes the participant with its groups and terminal services. Refused with living dependants."""
    living = {
        "services": [
            *await living_ids(work.tx, "consumer_id", participant.id),
            *await living_ids(work.tx, "provider_id", participant.id),
        ],
        "orphans": [
            *await open_ids(work.tx, "services.consumer_id", participant.id),
            *await open_ids(work.tx, "orphans.provider_id", participant.id),
        ],
    }
    if any(living.values()):
        raise InUse(f"participant {participant.id}", living)
    await refuse_if_needed(
        work,
        PARTICIPANTS,
        participant,
        {
            "agents": ("agents", "provider_id"),
            "serviceOptions": ("service_options", "provider_id"),
            "servicePoolSets": ("service_pool_sets", "provider_id"),
            "configPools": ("config_pools", "participant_id"),
        },
    )
    await delete_terminal(work.tx, "consumer_id", participant.id)
    for group in await SERVICE_GROUPS.all_by(work.tx, "consumer_id", participant.id, limit=100_000):
        await work.delete(SERVICE_GROUPS, group)
    for agent_type in await types_of_provider(work.tx, participant.id):
        remaining = [each for each in agent_type.provider_ids if each != participant.id]
        await work.update(AGENT_TYPES, agent_type, msgspec.structs.replace(agent_type, provider_ids=remaining))
    await work.delete(PARTICIPANTS, participant)
