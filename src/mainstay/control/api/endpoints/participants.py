"""Participants: the five standard endpoints; participants may change themselves."""

from __future__ import annotations

from mainstay.control.api.nouns import change_endpoint, create_endpoint, delete_endpoint, list_endpoint, show_endpoint
from mainstay.control.operations import participants
from mainstay.control.store.participants import PARTICIPANTS

PATH = "/api/v1/participants"

ENDPOINTS = (
    list_endpoint(PATH, PARTICIPANTS),
    show_endpoint(PATH, PARTICIPANTS),
    create_endpoint(PATH, PARTICIPANTS, participants.NewParticipant, participants.create),
    change_endpoint(PATH, PARTICIPANTS, participants.ParticipantChange, participants.change, action="change"),
    delete_endpoint(PATH, PARTICIPANTS, participants.delete),
)
