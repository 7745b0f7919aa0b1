"""The short cut for right documents changes no outcome: with it and without it the engine says the same."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import property_requests
from documents import definitions, properties_for
from mainstay.control.domain.properties.compile import compile_members
from mainstay.control.domain.properties.contract import ASSUMED, Actor
from mainstay.control.domain.properties.evaluation import Evaluation, SecretSlot
from mainstay.control.domain.properties.schema import PropertySchema

NEVER = 1000


def admitted(
    schema: PropertySchema, properties: dict[str, Any], actor: Actor, prove_from: int
) -> tuple[object, object]:
    run = Evaluation(property_requests.evaluation_context(actor=actor), ASSUMED)
    out = compile_members(schema.members or (), prove_from).admit(properties, run, "")
    shown = {name: "sealed" if isinstance(value, SecretSlot) else value for name, value in out.items()}
    return run.faults, None if run.faults else shown


@settings(
    max_examples=150,
    deadline=None,
    derandomize=True,
    database=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much],
)
@given(data=st.data(), plain=st.booleans(), actor=st.sampled_from([Actor.USER, Actor.AGENT]))
def test_a_proof_changes_no_outcome(data: st.DataObject, plain: bool, actor: Actor) -> None:
    names = st.sampled_from(["a", "b", "class", "a-b", "member_0", "日本"])
    document = data.draw(st.dictionaries(names, definitions(plain=plain), min_size=1, max_size=6))
    schema = property_requests.schema_of(document)
    for _ in range(4):
        properties = data.draw(properties_for(document))
        expected = admitted(schema, properties, actor, NEVER)
        assert repr(admitted(schema, properties, actor, 1)[0]) == repr(expected[0])
        assert admitted(schema, properties, actor, 1)[1] == expected[1]


@pytest.mark.parametrize(
    "odd",
    [
        float("nan"),
        float("inf"),
        "\ud800",
        True,
        4.0,
        10**30,
        10**400,
        None,
        [True],
        [1.0],
        {"t": "\ud800"},
        {"t": None},
        {},
    ],
)
@pytest.mark.parametrize("kind", ["string", "integer", "number", "boolean", "array", "object"])
def test_a_proof_is_not_taken_in_by_odd_values(kind: str, odd: object) -> None:
    limits = {"number": [{"type": "min", "value": -1}], "integer": [{"type": "enum", "values": [1, 2]}]}
    definition: dict[str, Any] = {"type": kind, "validators": limits.get(kind, [])}
    if kind == "array":
        definition["items"] = {"type": "integer"}
    if kind == "object":
        definition["properties"] = {"t": {"type": "string"}}
    schema = property_requests.schema_of({"p": definition})
    outcomes = [admitted(schema, {"p": odd}, Actor.USER, prove_from) for prove_from in (1, NEVER)]
    assert repr(outcomes[0]) == repr(outcomes[1])


@pytest.mark.parametrize(
    "validators",
    [
        [{"type": "min", "value": 2}, {"type": "min", "value": 5}],
        [{"type": "enum", "values": [1, 9]}, {"type": "max", "value": 5}],
        [{"type": "enum", "values": [1, 2]}, {"type": "enum", "values": [2, 3]}],
        [{"type": "max", "value": 2**70}],
        [{"type": "enum", "values": [2**70, 1]}],
        [{"type": "enum", "values": [True, "1"]}],
        [{"type": "min", "value": 1.5}],
    ],
)
def test_a_proof_leaves_no_rule_out(validators: list[dict[str, Any]]) -> None:
    schema = property_requests.schema_of({"p": {"type": "integer", "validators": validators}})
    for value in (0, 1, 2, 3, 5, 9, 2**70, 2**71):
        outcomes = [admitted(schema, {"p": value}, Actor.USER, prove_from) for prove_from in (1, NEVER)]
        assert outcomes[0] == outcomes[1]
