"""The hash chain over events: a changed, removed or inserted event changes every later hash. Pure."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping

FIRST = "0" * 64
# The members of an event that its hash covers; absent and null members are left out.
HASHED = (
    "id",
    "sequenceNumber",
    "type",
    "initiatorType",
    "initiatorId",
    "initiatorRole",
    "entityId",
    "properties",
    "providerId",
    "consumerId",
    "agentId",
    "participantId",
    "createdAt",
)
# From this version on also these; an event of version 1 does not name its version.
CHAIN_VERSION = 2
ALSO_HASHED = ("chainVersion", "initiatorName", "initiatorParticipantId")


def hashed_members(event: Mapping[str, object]) -> dict[str, object]:
    """`event` is the JSON document of the API."""
    names = HASHED if event.get("chainVersion") is None else HASHED + ALSO_HASHED
    return {name: event[name] for name in names if event.get(name) is not None}


def next_hash(previous: str, canonical: bytes) -> str:
    """`canonical` is the canonical JSON of the hashed members."""
    return hashlib.sha256(previous.encode() + canonical).hexdigest()
