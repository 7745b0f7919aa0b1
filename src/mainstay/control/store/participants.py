"""Participants: providers and consumers. A participant may be both."""

from __future__ import annotations

from typing import Literal

from mainstay.control.store.engine.records import Record, Table

ParticipantStatus = Literal["Enabled", "Disabled"]


class Participant(Record, frozen=True, kw_only=True):
    name: str
    status: ParticipantStatus


PARTICIPANTS = Table("participants", "participant", Participant)
