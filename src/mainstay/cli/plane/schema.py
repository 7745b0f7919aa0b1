"""The JSON Schema of plane files, derived from the kinds."""

from __future__ import annotations

from typing import Any

from mainstay.cli.plane.kinds import ID, KINDS, NAME, Attribute, Kind

UUID = "^[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{12}$"


def plane_schema() -> dict[str, Any]:
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "Mainstay plane",
        "type": ["object", "null"],
        "additionalProperties": False,
        "properties": {kind.name: _kind_schema(kind) for kind in KINDS.values()},
    }


def _kind_schema(kind: Kind) -> dict[str, Any]:
    """Maps of names, one for each owner, around the entries."""
    found = _entry_schema(kind)
    for _ in (*kind.owners, kind.name):
        found = {"type": ["object", "null"], "additionalProperties": found}
    return {**found, "description": kind.description}


def _entry_schema(kind: Kind) -> dict[str, Any]:
    attributes = {name: _attribute_schema(each) for name, each in kind.attributes.items()}
    common = {
        ID: {"type": "string", "pattern": UUID, "description": "id of the row, if its name occurs twice or changes"},
        NAME: {"type": "string", "minLength": 1, "description": "name of the row, if it is not the key"},
    }
    return {
        "type": ["object", "null"],
        "additionalProperties": False,
        "properties": {**common, **attributes},
    }


def _attribute_schema(attribute: Attribute) -> dict[str, Any]:
    found = {**attribute.form.schema, "description": attribute.description}
    if attribute.choices:
        found["enum"] = list(attribute.choices)
    if attribute.member == "servicePoolSetId":
        # `null` takes the pool set away.
        found["type"] = ["string", "null"]
    return found
