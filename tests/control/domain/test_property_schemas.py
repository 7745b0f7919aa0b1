"""An invalid schema is refused with all faults and their paths."""

from __future__ import annotations

from typing import Any

import pytest

from mainstay.control.domain.properties.compatibility import misfits
from mainstay.control.domain.properties.contract import Operation, Purpose
from property_requests import StubLookups, create, evaluation_context, faults, schema_faults, schema_of

STRING = {"type": "string"}


def rule(name: str, **config: Any) -> dict[str, Any]:
    return {"type": name, "config": config}


REFUSED: list[tuple[str, dict[str, Any], dict[str, str]]] = [
    ("no type", {}, {"p.type": "type is required"}),
    ("unknown type", {"type": "float"}, {"p.type": "unknown type 'float'; there are array, boolean, integer, json, number, object, reference, string, uuid"}),
    ("unknown key", {**STRING, "requird": True}, {"p.requird": "unknown key (did you mean 'required'?)"}),
    ("flag", {**STRING, "required": "yes"}, {"p.required": "expected boolean, got string; write `required: true`, or leave it out"}),
    ("label", {**STRING, "label": 1}, {"p.label": "expected string, got integer"}),
    ("unknown validator", {**STRING, "validators": [rule("minlen")]}, {"p.validators[0].type": "unknown validator 'minlen' (did you mean 'minLength'?)"}),
    ("unknown authorizer", {**STRING, "authorizers": [rule("role")]}, {"p.authorizers[0].type": "unknown authorizer 'role'; there are actor, state"}),
    ("unknown generator", {**STRING, "generator": rule("dice")}, {"p.generator.type": "unknown generator 'dice'; there are hostname, pool, timestamp, uuid"}),
    ("unknown actor", {**STRING, "authorizers": [rule("actor", actors=["root"])]}, {"p.authorizers[0].config.actors": "unknown actor 'root', expected one of: user, agent, system"}),
    ("does not fit", {**STRING, "validators": [rule("min", value=1)]}, {"p.validators[0].type": "validator min does not fit type string"}),
    ("bad limit", {"type": "integer", "validators": [rule("min", value="1")]}, {"p.validators[0].config.value": "min value must be a number"}),
    ("bad count", {**STRING, "validators": [rule("minLength", value=-1)]}, {"p.validators[0].config.value": "minLength value must be a non-negative integer"}),
    ("bad flag", {"type": "array", "validators": [rule("uniqueItems", value=1)]}, {"p.validators[0].config.value": "uniqueItems value must be a boolean"}),
    ("bad enum", {**STRING, "validators": [rule("enum", values=[])]}, {"p.validators[0].config.values": "enum values must be a non-empty array"}),
    ("bad pattern", {**STRING, "validators": [rule("pattern", pattern="(")]}, {"p.validators[0].config.pattern": "invalid regular expression: missing ): ("}),
    ("look-ahead", {**STRING, "validators": [rule("pattern", pattern="(?=a)")]}, {"p.validators[0].config.pattern": "invalid regular expression: invalid perl operator: (?="}),
    ("unread config", {**STRING, "validators": [rule("minLength", value=1, max=2)]}, {"p.validators[0].config.max": "unknown key in the configuration of minLength"}),
    ("twice", {**STRING, "validators": [{"type": "minLength", "value": 1, "config": {"value": 2}}]}, {"p.validators[0].value": "contradicts config; write it once"}),
    ("range", {"type": "integer", "validators": [rule("max", value=1), rule("min", value=2.5)]}, {"p.validators[1].config.value": "min 2.5 is greater than max 1"}),
    ("length range", {**STRING, "validators": [{"type": "minLength", "value": 3}, {"type": "maxLength", "value": 2}]}, {"p.validators[0].value": "minLength 3 is greater than maxLength 2"}),
    ("default type", {"type": "integer", "default": "1"}, {"p.default": "expected integer, got string"}),
    ("default rule", {"type": "integer", "default": 0, "validators": [rule("min", value=1)]}, {"p.default": "value 0 is less than minimum 1"}),
    ("default inside", {"type": "array", "items": STRING, "default": ["a", 1]}, {"p.default[1]": "expected string, got integer"}),
    ("default and generator", {**STRING, "default": "x", "generator": rule("uuid")}, {"p.generator": "default and generator exclude each other"}),
    ("generator fit", {"type": "integer", "generator": rule("uuid")}, {"p.generator": "generator uuid does not fit type integer"}),
    ("secret object", {"type": "array", "secret": {"type": "persistent"}}, {"p.secret": "only primitive types (string, integer, number, boolean, json) can be secrets"}),
    ("secret reference", {"type": "reference", "secret": {"type": "persistent"}}, {"p.secret": "only primitive types (string, integer, number, boolean, json) can be secrets"}),
    ("secret key", {**STRING, "secret": {"type": "persistent", "ttl": 1}}, {"p.secret.ttl": "unknown key; write `secret: {type: persistent}` or `secret: {type: ephemeral}`"}),
    ("secret pool", {**STRING, "secret": {"type": "persistent"}, "generator": rule("pool", poolType="ip")}, {"p.generator.config.poolType": "pool values are not encrypted, so a property with a pool generator cannot be a secret"}),
    ("properties", {**STRING, "properties": {}}, {"p.properties": "properties is only for type object"}),
    ("items", {"type": "object", "items": STRING}, {"p.items": "items is only for type array"}),
    ("nested", {"type": "object", "properties": {"q": {"type": "array", "items": {"type": "x"}}}}, {"p.properties.q.items.type": "unknown type 'x'; there are array, boolean, integer, json, number, object, reference, string, uuid"}),
    ("pool in items", {"type": "array", "items": {"type": "object", "properties": {"ip": {**STRING, "generator": rule("pool", poolType="ip")}}}}, {"p.items.properties.ip.generator": "generator pool cannot be used in array items"}),
    ("source", {**STRING, "source": "user"}, {"p.source": "source must be one of: input, agent, system"}),
    ("source against actor", {**STRING, "source": "input", "authorizers": [rule("actor", actors=["agent"])]}, {"p.source": "source contradicts the actors of the property: [agent]"}),
    ("source against pool", {**STRING, "source": "input", "servicePoolType": "ip"}, {"p.servicePoolType": "servicePoolType contradicts the actors of the property: [user]"}),
    ("updatable", {**STRING, "updatable": "sometimes"}, {"p.updatable": "updatable must be one of: always, never, statuses"}),
    ("updatable against immutable", {**STRING, "updatable": "always", "immutable": True}, {"p.updatable": "updatable 'always' contradicts immutable"}),
    ("statuses alone", {**STRING, "updatable": "statuses"}, {"p.updatableIn": "updatable 'statuses' needs a non-empty array of states in updatableIn"}),
    ("updatableIn alone", {**STRING, "updatableIn": ["Stopped"]}, {"p.updatableIn": "updatableIn needs updatable 'statuses'"}),
    ("states twice", {**STRING, "updatable": "statuses", "updatableIn": ["A"], "authorizers": [rule("state", allowedStates=["B"])]}, {"p.updatableIn": "updatableIn contradicts the state authorizer"}),
    ("pool twice", {**STRING, "servicePoolType": "a", "generator": rule("pool", poolType="b")}, {"p.servicePoolType": "servicePoolType contradicts generator"}),
    ("origin", {"type": "reference", "validators": [rule("sameOrigin", value="planet")]}, {"p.validators[0].config.value": "sameOrigin value must be 'consumer' or 'group'"}),
]  # fmt: skip


@pytest.mark.parametrize(("document", "expected"), [case[1:] for case in REFUSED], ids=[case[0] for case in REFUSED])
def test_an_invalid_definition_is_refused_with_its_path(document: dict[str, Any], expected: dict[str, str]) -> None:
    assert schema_faults({"p": document}) == expected
    wrapped = {f"properties.{path}": message for path, message in expected.items()}
    assert schema_faults({"properties": {"p": document}}) == wrapped


def test_all_faults_are_reported_at_once() -> None:
    found = schema_faults(
        {"a": {"type": "x"}, "b": 1, "c": {"type": "string", "validators": [rule("min", value=1), 5, {}]}}
    )
    assert list(found) == ["a.type", "b", "c.validators[0].type", "c.validators[1]", "c.validators[2].type"]


@pytest.mark.parametrize("document", [1, "x", [], True])
def test_a_schema_that_is_not_an_object_is_refused(document: object) -> None:
    assert list(schema_faults(document)) == [""]


def test_a_property_may_be_called_properties_or_validators() -> None:
    assert create({"properties": {"type": "string"}}, {"properties": "x"}) == {"properties": "x"}
    assert create({"properties": {"type": {"type": "string"}}}, {"type": "x"}) == {"type": "x"}
    assert create({"validators": STRING, "a": STRING}, {"validators": "x"}) == {"validators": "x"}


def test_a_schema_keeps_the_given_document() -> None:
    for document in ({"a": STRING}, {"properties": {"a": STRING}}, {"properties": {"a": STRING}, "validators": []}):
        assert schema_of(document).source is document


def test_null_in_a_schema_means_not_given() -> None:
    document = {
        "a": {"type": "integer", "label": None, "required": None, "default": None, "validators": None, "secret": None,
              "generator": None, "properties": None, "items": None, "authorizers": None, "immutable": None,
              "source": None, "updatable": None, "servicePoolType": None},
        "b": None,
    }  # fmt: skip
    assert create(document, {}) == {}
    assert faults(document, {"b": 1}) == {"b": "unknown property"}


def test_shorthand_is_equal_to_config() -> None:
    for short, given in (
        ({"type": "minLength", "value": 3}, "ab"),
        ({"type": "enum", "values": ["x"]}, "y"),
        ({"type": "pattern", "pattern": "^x"}, "y"),
    ):
        long = {"type": short["type"], "config": {key: value for key, value in short.items() if key != "type"}}
        documents = [{"p": {**STRING, "validators": [spelling]}} for spelling in (short, long)]
        assert faults(documents[0], {"p": given}) == faults(documents[1], {"p": given}) != {}


def test_old_keys_are_equal_to_the_new_ones() -> None:
    old = {"p": {**STRING, "source": "agent", "updatable": "never"}}
    new = {"p": {**STRING, "immutable": True, "authorizers": [rule("actor", actors=["agent"])]}}
    for given, stored in (({"p": "x"}, None), ({"p": "y"}, {"p": "x"})):
        assert faults(old, given, stored) == faults(new, given, stored) != {}  # type: ignore[arg-type]
    assert schema_faults({"p": {**old["p"], **new["p"]}}) == {}


def test_a_state_that_is_not_in_the_lifecycle_is_refused() -> None:
    document = {"p": {**STRING, "authorizers": [rule("state", allowedStates=["Stopped", "Stoped"])]}}
    assert schema_faults(document, states=frozenset({"Stopped"})) == {
        "p.authorizers[0].config.allowedStates[1]": "state 'Stoped' is not in the lifecycle (did you mean 'Stopped'?)"
    }


def test_a_uuid_becomes_a_reference_by_a_validator() -> None:
    some = "22222222-2222-4222-8222-222222222222"
    assert faults({"p": {"type": "uuid"}}, {"p": some}) == {}
    assert faults({"p": {"type": "uuid"}}, {"p": "x"}) == {"p": "invalid uuid format"}
    document = {"p": {"type": "uuid", "validators": [rule("serviceReference", types=["MySQL"], origin="group")]}}
    assert faults(document, {"p": some}) == {"p": "referenced service does not exist"}
    assert faults(document, {"p": "x"}) == {"p": "invalid service ID format"}


def test_the_configuration_of_an_agent_may_have_secrets_but_no_references() -> None:
    secret = {"token": {**STRING, "secret": {"type": "persistent"}}}
    assert schema_faults(secret, purpose=Purpose.AGENT_CONFIGURATION) == {}
    pool = {"ip": {**STRING, "generator": rule("pool", poolType="ip")}}
    assert schema_faults(pool, purpose=Purpose.AGENT_CONFIGURATION) == {}
    refused = {
        "a": {"type": "reference"},
        "b": {**STRING, "authorizers": [rule("state", allowedStates=["A"])]},
        "c": {"type": "uuid", "validators": [rule("serviceReference")]},
    }
    found = schema_faults(refused, purpose=Purpose.AGENT_CONFIGURATION)
    assert list(found) == ["a.type", "b.authorizers[0].type", "c.validators[0].type"]
    assert all(message.endswith("cannot be used in an agent configuration") for message in found.values())


def wrapped(*validators: dict[str, Any], **more: Any) -> dict[str, Any]:
    members = {
        "a": {"type": "integer"},
        "b": {"type": "number"},
        "c": STRING,
        "o": {"type": "object", "properties": {"d": STRING}},
    }
    return {"properties": {**members, **more}, "validators": list(validators)}


COMPARED: list[tuple[dict[str, Any], dict[str, Any], dict[str, str]]] = [
    (rule("exactlyOne", properties=["a", "c"]), {"a": 1}, {}),
    (rule("exactlyOne", properties=["a", "c"]), {}, {"a": "exactly one of [a, c] must be set"}),
    (rule("exactlyOne", properties=["a", "o.d"]), {"a": 1, "o": {"d": "x"}}, {"a": "exactly one of [a, o.d] must be set"}),
    (rule("atMostOne", properties=["a", "b"]), {}, {}),
    (rule("atMostOne", properties=["a", "b"]), {"a": 1, "b": 2}, {"b": "at most one of [a, b] may be set"}),
    (rule("requiredIf", property="c", value="x", required=["a"]), {"c": "y"}, {}),
    (rule("requiredIf", property="c", value="x", required=["a"]), {"c": "x"}, {"a": "required field is missing when c is x"}),
    (rule("requiredIf", property="c", required=["o.d"]), {"c": "x"}, {"o.d": "required field is missing when c is set"}),
    (rule("uniqueValues", properties=["a", "b", "c"]), {"a": 1, "b": 2}, {}),
    (rule("uniqueValues", properties=["a", "b"]), {"a": 1, "b": 1.0}, {"b": "value must differ from a"}),
    (rule("compare", left="a", operator="<=", right="b"), {"a": 1, "b": 1.5}, {}),
    (rule("compare", left="a", operator="<=", right="b"), {"a": 2}, {}),
    (rule("compare", left="a", operator="<", right="b"), {"a": 2, "b": 2.0}, {"a": "value must be less than b"}),
    (rule("compare", left="a", operator="!=", right="b"), {"a": 2, "b": 2.0}, {"a": "value must be different from b"}),
    (rule("compare", left="a", operator="<", right="b"), {"a": "x", "b": 1}, {"a": "expected integer, got string"}),
]  # fmt: skip


@pytest.mark.parametrize(("validator", "given", "expected"), COMPARED)
def test_a_schema_validator_compares_properties(
    validator: dict[str, Any], given: dict[str, Any], expected: dict[str, str]
) -> None:
    assert faults(wrapped(validator), given) == expected


def test_a_schema_validator_checks_the_merged_result() -> None:
    document = wrapped(rule("compare", left="a", operator="<=", right="b"))
    assert faults(document, {"a": 5}, {"a": 1, "b": 2}) == {"a": "value must be less than or equal to b"}


REFUSED_TOGETHER = [
    (rule("onlyOne"), {"validators[0].type": "unknown schema validator 'onlyOne'; there are atMostOne, compare, exactlyOne, requiredIf, uniqueValues"}),
    (rule("exactlyOne", properties=["a", "z"]), {"validators[0].config.properties": "unknown property 'z'"}),
    (rule("exactlyOne", properties=["a"]), {"validators[0].config.properties": "exactlyOne properties must name at least 2 properties"}),
    (rule("compare", left="a", operator="=", right="b"), {"validators[0].config.operator": "compare operator must be one of: < <= > >= == !="}),
    (rule("compare", left="a", operator="<", right="c"), {"validators[0].config.operator": "a and c cannot be ordered: compare two numbers or two strings"}),
    (rule("uniqueValues", properties=["c", "s"]), {"validators[0].config.properties": "'s' is a secret, so its value cannot be compared"}),
    (rule("requiredIf", property="s", value="x", required=["a"]), {"validators[0].config.property": "'s' is a secret, so its value cannot be compared"}),
]  # fmt: skip


@pytest.mark.parametrize(("validator", "expected"), REFUSED_TOGETHER)
def test_an_invalid_schema_validator_is_refused(validator: dict[str, Any], expected: dict[str, str]) -> None:
    assert schema_faults(wrapped(validator, s={**STRING, "secret": {"type": "persistent"}})) == expected


def test_an_option_as_a_default_is_checked_when_it_is_used() -> None:
    system = {"type": "string", "default": "debian", "validators": [{"type": "serviceOption", "value": "os"}]}
    assert schema_faults({"os": system}) == {}
    assert create({"os": system}, {}, StubLookups(options={"os": ("debian",)})) == {"os": "debian"}
    assert faults({"os": system}, {}, lookups=StubLookups(options={"os": ("arch",)})) == {
        "os": "service option with value 'debian' not found or not enabled for provider"
    }
    without_provider = evaluation_context(Operation.UPDATE, provider_id=None)
    assert misfits(schema_of({"os": system}), {"os": "arch"}, without_provider) == ()


def test_the_configuration_of_an_agent_has_no_states_by_old_keys_either() -> None:
    document = {"key": {"type": "string", "updatable": "statuses", "updatableIn": ["Stopped"]}}
    assert schema_faults(document, purpose=Purpose.AGENT_CONFIGURATION) == {
        "key.updatable": "updatable 'statuses' cannot be used in an agent configuration"
    }


def test_an_unknown_type_is_reported_once() -> None:
    document = {"cpu": {"type": "int", "validators": [rule("min", value=1), rule("max", value="x"), rule("less")]}}
    assert schema_faults(document) == {
        "cpu.type": "unknown type 'int' (did you mean 'integer'?)",
        "cpu.validators[2].type": "unknown validator 'less'; there are enum, max, maxItems, maxLength, min, minItems, minLength, pattern, sameOrigin, serviceOption, serviceReference, serviceType, uniqueItems",
    }
