"""Which changes of a schema make values secret or plain, and how quoted values are erased."""

from __future__ import annotations

from typing import Any

import pytest

from mainstay.control.domain.properties.contract import RevealedSecret
from mainstay.control.domain.properties.secrecy import Eraser, drops_secret, makes_secret, plain_values
from property_requests import schema_of

TEXT = {"type": "string"}
SECRET = {"type": "string", "secret": {"type": "persistent"}}
ONCE = {"type": "string", "secret": {"type": "ephemeral"}}
FREE = {"type": "json"}


def an_object(**members: Any) -> dict[str, Any]:
    return {"type": "object", "properties": members}


def an_array(items: dict[str, Any]) -> dict[str, Any]:
    return {"type": "array", "items": items}


@pytest.mark.parametrize(
    ("before", "after", "expected"),
    [
        ({"a": TEXT}, {"a": SECRET}, True),
        ({"a": SECRET}, {"a": SECRET}, False),
        ({"a": ONCE}, {"a": SECRET}, False),
        ({}, {"a": SECRET}, False),
        (None, {"a": SECRET}, True),
        (None, {"a": TEXT}, False),
        ({"a": an_object(b=TEXT)}, {"a": an_object(b=SECRET)}, True),
        ({"a": an_object(b=TEXT)}, {"a": an_object(b=TEXT, c=SECRET)}, False),
        ({"a": FREE}, {"a": an_object(c=SECRET)}, True),
        ({"a": {"type": "object"}}, {"a": an_object(c=SECRET)}, True),
        ({"a": {"type": "array"}}, {"a": an_array(SECRET)}, True),
        ({"a": an_array(an_object(b=TEXT))}, {"a": an_array(an_object(b=SECRET))}, True),
        ({"a": an_array(FREE)}, {"a": an_array(an_object(b=SECRET))}, True),
        ({"a": {"type": "json", "secret": {"type": "persistent"}}}, {"a": an_object(b=SECRET)}, False),
    ],
)
def test_a_property_that_admitted_plain_values_becomes_secret(before: Any, after: Any, expected: bool) -> None:
    assert makes_secret(schema_of(before), schema_of(after)) is expected


@pytest.mark.parametrize(
    ("before", "after", "expected"),
    [
        ({"a": SECRET}, {"a": SECRET, "b": TEXT}, False),
        ({"a": SECRET}, {"a": TEXT}, True),
        ({"a": SECRET}, {"a": ONCE}, True),
        ({"a": SECRET}, {}, True),
        ({"a": SECRET}, None, True),
        ({"a": TEXT}, {"a": SECRET}, False),
        ({"a": an_array(an_object(b=SECRET))}, {"a": an_array(an_object(b=TEXT))}, True),
        ({"a": an_array(an_object(b=SECRET))}, {"a": an_object(b=SECRET)}, True),
    ],
)
def test_a_secret_property_stops_being_that_secret(before: Any, after: Any, expected: bool) -> None:
    assert drops_secret(schema_of(before), schema_of(after)) is expected


def test_a_text_like_a_reference_is_a_plain_value_unless_its_owner_holds_that_secret_there() -> None:
    schema = schema_of({"a": SECRET, "b": SECRET, "users": an_array(an_object(pin=SECRET))})
    properties: dict[str, object] = {
        "a": "vault://1",
        "b": "vault://2",
        "users": [{"pin": "x"}, {"pin": "vault://3"}],
    }
    found = plain_values(schema, properties, {("1", "a"), ("2", "a"), ("3", "users[].pin")})
    assert [slot.path for slot in found] == ["b", "users[0].pin"]


def test_an_eraser_removes_every_text_that_quotes_a_value() -> None:
    eraser = Eraser(
        [RevealedSecret(value) for value in ("hunter2", 4711, 'qu"ote', "line 1\nline 2", {"k": ["deep"]}, "x")]
    )
    document = {
        "exact": "hunter2",
        "inside": "password=hunter2;",
        "number": 4711,
        "text": "pin 4711",
        "json": '{"v": "qu\\"ote"}',
        "line": "+line 2",
        "nested": [{"a": "so deep"}],
        "short": "x",
        "kept": ["x-ray", "hunter", 471, True, None, 1.5],
        "hunter2": 1,
    }
    assert eraser.erase(document) == {
        **dict.fromkeys(("exact", "inside", "number", "text", "json", "line", "short"), "***"),
        "nested": [{"a": "***"}],
        "kept": ["x-ray", "hunter", 471, True, None, 1.5],
        "***": 1,
    }
    assert Eraser([]).erase(document) is document


def test_an_eraser_ignores_empty_texts_and_truth_values() -> None:
    eraser = Eraser([RevealedSecret(value) for value in ("", True, "\n", {"a": None})])
    assert eraser.erase({"text": "any\n", "flag": True, "empty": ""}) == {"text": "any\n", "flag": True, "empty": ""}
