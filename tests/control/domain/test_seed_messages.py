"""Every message listed in the seed is produced word for word by its case."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from mainstay.control.domain.properties.contract import Actor, Operation, ReferencedService
from property_requests import StubLookups, faults, schema_faults
from seed_text import listed_messages

OTHER = "22222222-2222-4222-8222-222222222222"
# Messages of the vault and its endpoint; the engine does not produce them.
OF_THE_VAULT = {"vault is not configured", "failed to store secret in vault", "secret with reference X not found"}


def with_rule(kind: str, rule: str, value: object, **more: Any) -> dict[str, Any]:
    key = {"pattern": "pattern", "enum": "values"}.get(rule, "value")
    return {"p": {"type": kind, "validators": [{"type": rule, "config": {key: value}}], **more}}


def pool_property(kind: str = "string") -> dict[str, Any]:
    return {"p": {"type": kind, "generator": {"type": "pool", "config": {"poolType": "ip"}}}}


def pool_config(config: dict[str, Any]) -> str:
    found = schema_faults({"p": {"type": "string", "generator": {"type": "pool", "config": config}}})
    return found["p.generator.config.poolType"]


def secret_fault(kind: str, secret: dict[str, Any]) -> str:
    return next(iter(schema_faults({"p": {"type": kind, "secret": secret}}).values()))


def referenced(**rules: Any) -> str:
    found = StubLookups(services=[ReferencedService(OTHER, "MySQL", "another consumer", "another group")])
    validators = [{"type": name, "config": {"value": value}} for name, value in rules.items()]
    return faults({"p": {"type": "reference", "validators": validators}}, {"p": OTHER}, lookups=found)["p"]


def only_for(*actors: str) -> dict[str, Any]:
    return {
        "propertyName": {"type": "string", "authorizers": [{"type": "actor", "config": {"actors": list(actors)}}]}
    }


IN_STOPPED = {"type": "string", "authorizers": [{"type": "state", "config": {"allowedStates": ["Stopped"]}}]}
FIXED = {"type": "string", "immutable": True}

# Listed message → (the case that produces it, the message with its placeholders filled in).
CASES: dict[str, tuple[Callable[[], str], str]] = {
    "required field is missing": (
        lambda: faults({"p": {"type": "string", "required": True}}, {})["p"],
        "required field is missing",
    ),
    "unknown property": (lambda: faults({}, {"p": 1})["p"], "unknown property"),
    "expected {type}, got {actualType}": (
        lambda: faults({"p": {"type": "integer"}}, {"p": "x"})["p"],
        "expected integer, got string",
    ),
    "string length {actual} is less than minimum {min}": (
        lambda: faults(with_rule("string", "minLength", 3), {"p": "ab"})["p"],
        "string length 2 is less than minimum 3",
    ),
    "string length {actual} exceeds maximum {max}": (
        lambda: faults(with_rule("string", "maxLength", 3), {"p": "abcd"})["p"],
        "string length 4 exceeds maximum 3",
    ),
    "string does not match pattern {pattern}": (
        lambda: faults(with_rule("string", "pattern", "^[a-z]+$"), {"p": "A"})["p"],
        "string does not match pattern ^[a-z]+$",
    ),
    "value is not in allowed enum values": (
        lambda: faults(with_rule("integer", "enum", [1, 2]), {"p": 3})["p"],
        "value is not in allowed enum values",
    ),
    "value {actual} is less than minimum {min}": (
        lambda: faults(with_rule("number", "min", 2.5), {"p": 1})["p"],
        "value 1 is less than minimum 2.5",
    ),
    "value {actual} exceeds maximum {max}": (
        lambda: faults(with_rule("integer", "max", 10), {"p": 11.0})["p"],
        "value 11 exceeds maximum 10",
    ),
    "array length {actual} is less than minimum {min}": (
        lambda: faults(with_rule("array", "minItems", 1), {"p": []})["p"],
        "array length 0 is less than minimum 1",
    ),
    "array length {actual} exceeds maximum {max}": (
        lambda: faults(with_rule("array", "maxItems", 1), {"p": [1, 2]})["p"],
        "array length 2 exceeds maximum 1",
    ),
    "array contains duplicate items": (
        lambda: faults(with_rule("array", "uniqueItems", True), {"p": [1, 1.0]})["p"],
        "array contains duplicate items",
    ),
    "invalid service ID format": (
        lambda: faults({"p": {"type": "reference"}}, {"p": "db-1"})["p"],
        "invalid service ID format",
    ),
    "referenced service does not exist": (
        lambda: faults({"p": {"type": "reference"}}, {"p": OTHER})["p"],
        "referenced service does not exist",
    ),
    "referenced service must belong to the same consumer": (
        lambda: referenced(sameOrigin="consumer"),
        "referenced service must belong to the same consumer",
    ),
    "referenced service must belong to the same service group": (
        lambda: referenced(sameOrigin="group"),
        "referenced service must belong to the same service group",
    ),
    "referenced service is not of the allowed service type": (
        lambda: referenced(serviceType=["PostgreSQL", "MongoDB"]),
        "referenced service is not of the allowed service type",
    ),
    "serviceType validator value must be a string or array of strings": (
        lambda: schema_faults(with_rule("reference", "serviceType", 5))["p.validators[0].config.value"],
        "serviceType validator value must be a string or array of strings",
    ),
    "propertyName: property can only be set by: [user, agent, system]": (
        lambda: faults(only_for("agent", "system"), {"propertyName": "x"})["propertyName"],
        "propertyName: property can only be set by: [agent, system]",
    ),
    "propertyName: property cannot be updated in state 'CurrentState'": (
        lambda: faults({"propertyName": IN_STOPPED}, {"propertyName": "b"}, {"propertyName": "a"}, state="Started")[
            "propertyName"
        ],
        "propertyName: property cannot be updated in state 'Started'",
    ),
    "propertyName: property is immutable and cannot be changed": (
        lambda: faults({"propertyName": FIXED}, {"propertyName": "b"}, {"propertyName": "a"})["propertyName"],
        "propertyName: property is immutable and cannot be changed",
    ),
    "serviceOption validator value must be a string (serviceOptionType)": (
        lambda: schema_faults(with_rule("string", "serviceOption", ["os"]))["p.validators[0].config.value"],
        "serviceOption validator value must be a string (serviceOptionType)",
    ),
    "service option type 'type' not found": (
        lambda: faults(with_rule("string", "serviceOption", "os"), {"p": "x"})["p"],
        "service option type 'os' not found",
    ),
    "service option with value 'value' not found or not enabled for provider": (
        lambda: faults(
            with_rule("string", "serviceOption", "os"), {"p": "x"}, lookups=StubLookups(options={"os": ("y",)})
        )["p"],
        "service option with value 'x' not found or not enabled for provider",
    ),
    "service option validation requires provider ID in context": (
        lambda: faults(with_rule("string", "serviceOption", "os"), {"p": "x"}, provider_id=None)["p"],
        "service option validation requires provider ID in context",
    ),
    "pool generator config missing 'poolType'": (lambda: pool_config({}), "pool generator config missing 'poolType'"),
    "pool generator config 'poolType' must be a string": (
        lambda: pool_config({"poolType": 1}),
        "pool generator config 'poolType' must be a string",
    ),
    "pool generator config 'poolType' cannot be empty": (
        lambda: pool_config({"poolType": ""}),
        "pool generator config 'poolType' cannot be empty",
    ),
    "pool generator requires service context": (
        lambda: faults(pool_property(), {}, agent_id=None)["p"],
        "pool generator requires service context",
    ),
    "agent does not have a pool set configured": (
        lambda: faults(pool_property(), {}, lookups=StubLookups(has_pool_set=False))["p"],
        "agent does not have a pool set configured",
    ),
    "property X has type Y but pool Z provides type W": (
        lambda: faults(pool_property("integer"), {}, lookups=StubLookups(pools={"ip": ("string", ["1"])}))["p"],
        "property p has type integer but pool ip provides type string",
    ),
    "no pool found with type X in pool set": (
        lambda: faults(pool_property(), {})["p"],
        "no pool found with type ip in pool set",
    ),
    "failed to allocate from pool X": (
        lambda: faults(pool_property(), {}, lookups=StubLookups(pools={"ip": ("string", [])}))["p"],
        "failed to allocate from pool ip",
    ),
    "only primitive types (string, integer, number, boolean, json) can be secrets": (
        lambda: secret_fault("object", {"type": "persistent"}),
        "only primitive types (string, integer, number, boolean, json) can be secrets",
    ),
    "secret type must be 'persistent' or 'ephemeral'": (
        lambda: secret_fault("string", {"type": "eternal"}),
        "secret type must be 'persistent' or 'ephemeral'",
    ),
    "secret configuration must include 'type' field": (
        lambda: secret_fault("string", {}),
        "secret configuration must include 'type' field",
    ),
}


def test_every_listed_message_has_a_case() -> None:
    assert {*listed_messages()} == {*CASES} | OF_THE_VAULT


@pytest.mark.parametrize("listed", CASES)
def test_a_listed_message_is_produced(listed: str) -> None:
    produce, expected = CASES[listed]
    assert produce() == expected


def test_a_report_with_a_property_of_the_user_is_refused() -> None:
    outcome = faults({"p": {"type": "string"}}, {"p": "x"}, {}, operation=Operation.REPORT, actor=Actor.AGENT)
    assert outcome == {"p": "p: property can only be set by: [user]"}
