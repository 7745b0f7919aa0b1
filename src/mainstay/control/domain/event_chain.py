"""The hash chain over events: a changed, removed or inserted event changes every later hash. Pure."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping

from mainstay.foundation.canonical_json import canonical_json

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


def next_hash(previous: str, event: Mapping[str, object]) -> str:
    """`event` is the JSON document of the API."""
    members = {name: event[name] for name in HASHED if event.get(name) is not None}
    return hashlib.sha256(previous.encode() + canonical_json(members)).hexdigest()
