"""The JSON Schema (2020-12) of an inventory: hosts and groups with their data."""

from __future__ import annotations

from typing import Any

HOST_KEYS: dict[str, Any] = {
    "data": {"type": ["object", "null"], "description": "data of the host; wins over that of its groups"},
    "python": {"type": ["string", "null"], "description": "the Python interpreter on the host"},
}
GROUP_KEYS: dict[str, Any] = {
    "hosts": {
        "type": ["array", "null"],
        "items": {"type": "string"},
        "description": "names of hosts of the inventory",
    },
    "data": {"type": ["object", "null"], "description": "data of all hosts of the group; a later group wins"},
}
KEYS: dict[str, Any] = {
    "hosts": {
        "type": "object",
        "description": "hosts by name, as ssh knows them",
        "additionalProperties": {
            "type": ["object", "null"],
            "additionalProperties": False,
            "properties": HOST_KEYS,
        },
    },
    "groups": {
        "type": ["object", "null"],
        "description": "groups of hosts by name",
        "additionalProperties": {
            "type": ["object", "null"],
            "additionalProperties": False,
            "properties": GROUP_KEYS,
        },
    },
}


def inventory_schema() -> dict[str, Any]:
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "Mainstay inventory",
        "type": "object",
        "additionalProperties": False,
        "required": ["hosts"],
        "properties": KEYS,
    }
