"""Edge cases of values: Unicode, equal numbers, huge and non-finite numbers, depth and size."""

from __future__ import annotations

import time
from typing import Any

import pytest

from mainstay.control.domain.faults import locate
from mainstay.control.domain.patterns import compile_pattern
from mainstay.control.domain.values import MAX_DEPTH, canonical, equal, json_problem
from property_requests import create, faults, schema_faults

TYPES = ("string", "integer", "number", "boolean", "object", "array", "json", "reference", "uuid")


def one(kind: str, *validators: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"p": {"type": kind, "validators": list(validators), **more}}


def deep(levels: int) -> object:
    value: object = 1
    for _ in range(levels):
        value = [value]
    return value


def test_lengths_are_counted_in_characters() -> None:
    limits = ({"type": "minLength", "value": 2}, {"type": "maxLength", "value": 2})
    assert faults(one("string", *limits), {"p": "日本"}) == {}
    assert faults(one("string", *limits), {"p": "🙂🙂"}) == {}
    assert faults(one("string", *limits), {"p": "e\u0301x"}) == {"p": "string length 3 exceeds maximum 2"}


def test_4_0_is_stored_as_the_integer_4() -> None:
    stored = create(one("integer"), {"p": 4.0})
    assert stored == {"p": 4}
    assert type(stored["p"]) is int
    assert faults(one("integer"), {"p": 4.5}) == {"p": "expected integer, got number"}


@pytest.mark.parametrize("kind", ["integer", "number"])
def test_true_is_not_a_number(kind: str) -> None:
    assert faults(one(kind), {"p": True}) == {"p": f"expected {kind}, got boolean"}


def test_1_is_not_a_boolean() -> None:
    assert faults(one("boolean"), {"p": 1}) == {"p": "expected boolean, got integer"}


def test_enum_and_unique_items_compare_as_json() -> None:
    enum = {"type": "enum", "values": [1, "a", {"x": [1.0]}]}
    same: list[object] = [1, 1.0, "a", {"x": [1]}]
    others: list[object] = [True, "1", {"x": [True]}, {"x": 1}, [1]]
    for value in same:
        assert faults(one("json", enum), {"p": value}) == {}
    for value in others:
        assert faults(one("json", enum), {"p": value}) == {"p": "value is not in allowed enum values"}
    unique = {"type": "uniqueItems", "value": True}
    assert faults(one("array", unique), {"p": [1, True, "1", None, 0, False, [], {}, ""]}) == {}
    assert "p" in faults(one("array", unique), {"p": [{"a": 1, "b": 2}, {"b": 2.0, "a": 1}]})
    assert faults(one("array", {"type": "uniqueItems", "value": False}), {"p": [1, 1]}) == {}


@pytest.mark.parametrize("value", [1e308, 2**53 + 1, -0.0, 5e-324], ids="abcd")
def test_huge_and_tiny_numbers_are_stored_unchanged(value: float) -> None:
    assert create(one("number"), {"p": value}) == {"p": value}
    assert equal(create(one("json"), {"p": value})["p"], value)


@pytest.mark.parametrize("value", [10**400, -(10**5000), 10**6000], ids="abc")
def test_a_number_beyond_a_double_is_refused_without_quoting_it(value: int) -> None:
    for kind in ("integer", "number"):
        assert faults(one(kind), {"p": value}) == {"p": f"expected {kind}, got a number that is too large"}


def test_a_message_shortens_a_large_number() -> None:
    found = faults(one("number", {"type": "max", "value": 10}), {"p": 10**300})
    assert found == {"p": "value about 10^300 exceeds maximum 10"}
    assert faults(one("integer", {"type": "max", "value": 2**53}), {"p": 2**53 + 1}) != {}


def test_a_limit_is_exact_for_integers_beyond_float_precision() -> None:
    limit = 2**53
    document = {**one("number", {"type": "max", "value": limit}), **{name: {"type": "number"} for name in "abcd"}}
    assert faults(document, {"p": limit}) == {}
    assert faults(document, {"p": limit + 1}) == {"p": f"value {limit + 1} exceeds maximum {limit}"}
    items = {"type": "array", "items": {"type": "number", "validators": [{"type": "max", "value": limit}]}}
    assert faults({"p": items}, {"p": [limit + 1]}) == {"p[0]": f"value {limit + 1} exceeds maximum {limit}"}
    assert faults(one("number", {"type": "enum", "values": [limit]}), {"p": limit + 1}) != {}


@pytest.mark.parametrize("name", ['say "hi"', "back\\slash", "line\nbreak", "\x01", "\x7f"])
def test_a_property_name_may_contain_any_character(name: str) -> None:
    document = {each: {"type": "string"} for each in (name, "a", "b", "c")}
    assert create(document, {name: "x", "a": "y"}) == {name: "x", "a": "y"}
    assert faults(document, {name: 1}) == {locate("", name): "expected string, got integer"}


@pytest.mark.parametrize(
    ("value", "name"), [(float("nan"), "NaN"), (float("inf"), "Infinity"), (-float("inf"), "Infinity")]
)
def test_nan_and_infinity_are_refused_everywhere(value: float, name: str) -> None:
    assert faults(one("number"), {"p": value}) == {"p": f"expected number, got {name}"}
    assert faults(one("integer"), {"p": value}) == {"p": f"expected integer, got {name}"}
    assert faults(one("json"), {"p": {"x": [value]}}) == {"p": f"expected json, got {name}"}
    assert faults(one("array"), {"p": [value]}) == {"p": f"expected array, got {name}"}
    assert faults(one("number"), {"p": value}, {"p": 1}) == {"p": f"expected number, got {name}"}


@pytest.mark.parametrize("kind", ["string", "json", "reference"])
def test_half_a_surrogate_pair_is_refused(kind: str) -> None:
    found = faults(one(kind, *([{"type": "pattern", "pattern": "a"}] if kind == "string" else [])), {"p": "\ud800"})
    assert set(found) == {"p"}
    assert faults({}, {"\ud800": 1}) == {'["\\ud800"]': "unknown property"}


def test_nesting_is_bounded() -> None:
    assert faults(one("json"), {"p": deep(MAX_DEPTH - 1)}) == {}
    message = {"p": f"expected json, got a value nested deeper than {MAX_DEPTH} levels"}
    assert faults(one("json"), {"p": deep(MAX_DEPTH)}) == message
    assert faults(one("json"), {"p": deep(100_000)}) == message
    assert faults(one("json"), {"p": deep(100_000)}, {"p": 1}) == message
    definition: dict[str, Any] = {"type": "string"}
    for _ in range(40):
        definition = {"type": "array", "items": definition}
    assert any("nested deeper" in message for message in schema_faults({"p": definition}).values())


def test_ten_thousand_items_are_validated_quickly() -> None:
    rules = one("array", {"type": "uniqueItems", "value": True}, items={"type": "integer"})
    many = list(range(10_000))
    started = time.perf_counter()
    assert faults(rules, {"p": many}) == {}
    assert len(faults(rules, {"p": [str(item) for item in many]})) == 10_000
    assert faults(rules, {"p": [*many, 9_999]}) == {"p": "array contains duplicate items"}
    assert faults(rules, {"p": [*many, 10_000]}, {"p": many}) == {}
    assert time.perf_counter() - started < 2


@pytest.mark.parametrize("kind", TYPES)
def test_null_at_creation_means_not_given_for_every_type(kind: str) -> None:
    assert create(one(kind), {"p": None}) == {}
    assert faults(one(kind, required=True), {"p": None}) == {"p": "required field is missing"}
    assert faults(one("array", items={"type": kind}), {"p": [None]}) == (
        {}
        if kind == "json"
        else {"p[0]": f"expected {'string' if kind in ('reference', 'uuid') else kind}, got null"}
    )


@pytest.mark.parametrize("kind", ["string", "json"])
def test_an_empty_string_is_a_value(kind: str) -> None:
    assert create(one(kind, required=True), {"p": ""}) == {"p": ""}
    assert faults(one("string", {"type": "minLength", "value": 1}), {"p": ""}) != {}


@pytest.mark.parametrize("given", [None, [], "x", 1, True])
def test_properties_that_are_not_an_object_are_refused(given: object) -> None:
    assert list(faults({}, given)) == [""]


def test_ambiguous_names_are_quoted_in_paths() -> None:
    document = {"a.b": {"type": "object", "properties": {"c[0]": {"type": "string"}}}}
    assert faults(document, {"a.b": {"c[0]": 1}}) == {'["a.b"]["c[0]"]': "expected string, got integer"}
    (path,) = faults({}, {"x" * 5000: 1})
    assert len(path) < 250


@pytest.mark.parametrize("pattern", [r"^(a+)+$", r"^(a|aa)+$", r"(.*a){12}b", r"^(\w+\s?)*$", r"(x+x+)+y"])
def test_a_malicious_pattern_takes_linear_time(pattern: str) -> None:
    search = compile_pattern(pattern)
    started = time.perf_counter()
    assert not search("a" * 200_000 + "!")
    assert time.perf_counter() - started < 2


def test_a_pattern_is_unanchored_and_a_dollar_is_the_end_of_the_text() -> None:
    assert faults(one("string", {"type": "pattern", "pattern": "b"}), {"p": "abc"}) == {}
    assert faults(one("string", {"type": "pattern", "pattern": "^a$"}), {"p": "a\n"}) != {}


def test_a_pattern_with_a_large_program_still_matches() -> None:
    search = compile_pattern("|".join(f"word{number}" for number in range(200)))
    assert search("a word199 here")
    assert not search("wor")


def test_python_values_that_are_not_json_are_refused() -> None:
    assert json_problem({"a": (1,)}) == "a value that is not JSON"
    assert canonical({"a": [1]}) == canonical({"a": [1.0]})
