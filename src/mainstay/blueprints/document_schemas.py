"""JSON Schemas (2020-12) of the documents of a blueprint, for editors: derived from the keys that their readers accept. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from mainstay.agent import blueprint
from mainstay.blueprints import example_orders
from mainstay.control.domain.lifecycle import parse as lifecycle
from mainstay.control.domain.properties import deprecated_keys
from mainstay.control.domain.properties import parse as properties
from mainstay.control.domain.properties.contract import Rulebook, SecretKind

DIALECT = "https://json-schema.org/draft/2020-12/schema"
TEXT: Mapping[str, Any] = {"type": "string"}
FLAG: Mapping[str, Any] = {"type": ["boolean", "null"]}
COUNT: Mapping[str, Any] = {"type": ["integer", "null"], "minimum": 1}


def blueprint_schema() -> dict[str, Any]:
    action = _map(
        {
            "manifest": {**TEXT, "description": "the manifest of the action, relative to the blueprint"},
            "timeout": {**TEXT, "description": "time limit of the run, such as 5m"},
            "upgrades": {"type": "boolean", "description": "the action also brings the service to this version"},
            blueprint.OLD_UPGRADES: {"type": "boolean", "deprecated": True, "description": "old name of `upgrades`"},
        },
        (*blueprint.ACTION_KEYS, blueprint.OLD_UPGRADES),
        required=["manifest"],
    )
    known = {
        "name": {"type": ["string", "number"], "pattern": f"^{blueprint.NAME.pattern}$"},
        "version": {"type": "string", "pattern": f"^{blueprint.VERSION.pattern}$"},
        "service_type": {**TEXT, "description": "name of the service type; default: that of service-type.yaml"},
        "description": TEXT,
        "actions": {
            "type": "object",
            "description": "action of the lifecycle → its manifest",
            "additionalProperties": {"if": {"type": "object"}, "then": action, "else": TEXT},
        },
        "keeps": {
            "type": ["object", "null"],
            "description": "state of the lifecycle → the manifest that describes the host in that state",
            "additionalProperties": TEXT,
        },
        "drift": {"enum": [*blueprint.DRIFT_POLICIES, None]},
    }
    return {
        "$schema": DIALECT,
        "title": "Mainstay blueprint",
        **_map(known, blueprint.KEYS, required=["name", "version", "actions"]),
    }


def order_schema() -> dict[str, Any]:
    values = {"type": "object", "additionalProperties": {"type": "array"}}
    known = {
        "description": {},
        "properties": {"type": "object", "description": "the properties of the new service"},
        "change": {"type": "object", "description": "the properties of an update"},
        "pools": {**values, "description": "values of pools by type"},
        "options": {**values, "description": "values of options by type"},
    }
    return {"$schema": DIALECT, "title": "Example order of a Mainstay blueprint", **_map(known, example_orders.KEYS)}


def service_type_schema(rulebook: Rulebook) -> dict[str, Any]:
    known = {
        "name": TEXT,
        "propertySchema": {"$ref": "#/$defs/properties"},
        "lifecycleSchema": {"$ref": "#/$defs/lifecycle"},
    }
    members = {"type": "object", "additionalProperties": {"$ref": "#/$defs/property"}}
    return {
        "$schema": DIALECT,
        "title": "Mainstay service type",
        **_map(known, blueprint.TYPE_KEYS),
        "$defs": {
            # Properties by name, or a map with them and with rules between them.
            "properties": {
                "type": ["object", "null"],
                "if": {
                    "propertyNames": {"enum": ["properties", "validators"]},
                    "not": {"properties": {"properties": {"properties": {"type": TEXT}, "required": ["type"]}}},
                },
                "then": {
                    "properties": {
                        "properties": members,
                        "validators": _rules(rulebook.schema_validators, is_open=True),
                    }
                },
                "else": members,
            },
            "property": _property(rulebook),
            "lifecycle": _lifecycle(),
        },
    }


def _property(rulebook: Rulebook) -> dict[str, Any]:
    known = {
        "type": {"enum": sorted(properties.TYPES)},
        "label": {"type": ["string", "null"]},
        "required": FLAG,
        "immutable": FLAG,
        "authorizers": _rules(rulebook.authorizers),
        "validators": _rules(rulebook.validators),
        "generator": _rule(rulebook.generators),
        "secret": _map({"type": {"enum": sorted(SecretKind)}}, ("type",), required=["type"]),
        "properties": {"type": ["object", "null"], "additionalProperties": {"$ref": "#/$defs/property"}},
        "items": {"$ref": "#/$defs/property"},
    }
    found = _map(known, (*properties.KEYS, *deprecated_keys.KEYS))
    # An empty property is one that is not given.
    return {**found, "type": ["object", "null"]}


def _rules(names: Iterable[str], *, is_open: bool = False) -> dict[str, Any]:
    return {"type": ["array", "null"], "items": {"type": "object"} if is_open else _rule(names)}


def _rule(names: Iterable[str]) -> dict[str, Any]:
    known: dict[str, Any] = {"type": {"enum": sorted(names)}, "config": {"type": ["object", "null"]}}
    found = _map(known, ("type", "config", *properties.SHORTHANDS), required=["type"])
    return {**found, "type": ["object", "null"]}


def _lifecycle() -> dict[str, Any]:
    states = {"type": ["array", "null"], "items": TEXT}
    transition = _map(
        {"from": TEXT, "to": TEXT, "onError": FLAG, "onErrorRegexp": {"type": ["string", "null"]}},
        lifecycle.TRANSITION_KEYS,
        required=["from", "to"],
    )
    action = _map(
        {
            "name": TEXT,
            "requestSchemaType": {"enum": ["properties", "", None]},
            "transitions": {"type": ["array", "null"], "items": transition},
            "autoAdvance": FLAG,
            "timeoutSeconds": COUNT,
            "pendingTimeoutSeconds": COUNT,
            "maxAttempts": COUNT,
        },
        lifecycle.ACTION_KEYS,
        required=["name"],
    )
    known = {
        "states": {"type": "array", "items": _map({"name": TEXT}, lifecycle.STATE_KEYS, required=["name"])},
        "actions": {"type": "array", "items": action},
        "initialState": TEXT,
        "terminalStates": states,
        "runningStates": states,
    }
    found = _map(known, lifecycle.ROOT_KEYS, required=["states", "actions", "initialState"])
    return {**found, "type": ["object", "null"]}


def _map(known: Mapping[str, Any], keys: Iterable[str], required: Iterable[str] = ()) -> dict[str, Any]:
    """A map with exactly the keys that the reader accepts; `known` says more about some of them."""
    found: dict[str, Any] = {
        "type": "object",
        "additionalProperties": False,
        "properties": {key: known.get(key, {}) for key in sorted(keys)},
    }
    if required:
        found["required"] = list(required)
    return found
