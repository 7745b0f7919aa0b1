"""Names of those who caused something, as far as a caller may see them. Pure."""

from __future__ import annotations

from collections.abc import Mapping

from mainstay.control.access import Caller, Role


def initiator_words(
    caller: Caller, role: str | None, name: str | None, participant_id: str | None, parties: Mapping[str, str]
) -> str:
    """`parties`: id → name of the participants that the caller sees beside it, such as provider and consumer.

    Names of tokens are for admins and for the own participant, as in events."""
    if role is None:
        return "the server"
    if role == Role.AGENT:
        return f"agent {name}" if name else "the agent"
    if role == Role.ADMIN:
        return f"admin {name}" if caller.role is Role.ADMIN and name not in (None, "admin") else "an admin"
    if name is not None and (caller.role is Role.ADMIN or caller.participant_id == participant_id):
        return name
    return parties.get(participant_id or "", "a participant")
