"""Participants: created by an admin, changed by themselves, deleted only without living dependants."""

from __future__ import annotations

from mainstay.control.operations.machinery.bodies import Body, Name, with_given
from mainstay.control.operations.machinery.refusals import NotPermitted
from mainstay.control.operations.machinery.removal import remove_participant
from mainstay.control.operations.machinery.unit_of_work import UnitOfWork
from mainstay.control.store.participants import PARTICIPANTS, Participant, ParticipantStatus


class NewParticipant(Body, frozen=True, kw_only=True):
    name: Name
    status: ParticipantStatus = "Enabled"


class ParticipantChange(Body, frozen=True, kw_only=True):
    name: Name | None = None
    status: ParticipantStatus | None = None


async def create(work: UnitOfWork, wanted: NewParticipant) -> Participant:
    participant = Participant(**work.new_record(), name=wanted.name, status=wanted.status)
    return await work.insert(PARTICIPANTS, participant)


async def change(work: UnitOfWork, before: Participant, wanted: ParticipantChange) -> Participant:
    if wanted.status not in (None, before.status) and work.required_caller.participant_id is not None:
        # A participant that disables itself could not undo it, and a disabled one must not enable itself.
        raise NotPermitted("only an admin may change the status of a participant")
    return await work.update(PARTICIPANTS, before, with_given(before, wanted))


async def delete(work: UnitOfWork, participant: Participant) -> None:
    await remove_participant(work, participant)
