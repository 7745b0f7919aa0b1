"""Participants: created by an admin, changed by themselves, deleted only without living dependants."""

from __future__ import annotations

import msgspec

from mainstay.control.operations.machinery.bodies import Body, change_of, new_of, with_given
from mainstay.control.operations.machinery.named_rows import refuse_if_needed
from mainstay.control.operations.machinery.refusals import InUse, NotPermitted
from mainstay.control.operations.machinery.unit_of_work import UnitOfWork
from mainstay.control.store.agent_types import AGENT_TYPES, types_of_provider
from mainstay.control.store.orphans import open_ids
from mainstay.control.store.participants import PARTICIPANTS, Participant
from mainstay.control.store.service_groups import SERVICE_GROUPS
from mainstay.control.store.services import delete_terminal, living_ids
from mainstay.nouns.participants import NOUN


@new_of(NOUN)
class NewParticipant(Body, frozen=True, kw_only=True):
    pass


@change_of(NOUN)
class ParticipantChange(Body, frozen=True, kw_only=True):
    status: str | None = None


async def create(work: UnitOfWork, wanted: NewParticipant) -> Participant:
    return await work.insert(PARTICIPANTS, Participant(**work.new_record(), **msgspec.structs.asdict(wanted)))


async def change(work: UnitOfWork, before: Participant, wanted: ParticipantChange) -> Participant:
    if wanted.status not in (None, before.status) and work.required_caller.participant_id is not None:
        # A participant that disables itself could not undo it, and a disabled one must not enable itself.
        raise NotPermitted("only an admin may change the status of a participant")
    return await work.update(PARTICIPANTS, before, with_given(before, wanted))


async def delete(work: UnitOfWork, participant: Participant) -> None:
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
