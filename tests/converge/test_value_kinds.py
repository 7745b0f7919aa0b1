"""Kinds of values: how a written value becomes a typed value."""

from __future__ import annotations

import contextlib
import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mainstay.converge.value_kinds import (
    BOOLEAN,
    DURATION_SECONDS,
    EXIT_CODES,
    MODE_BITS,
    TEXT,
    TEXTS,
    Unfit,
    ValueKind,
    conceal,
    describe,
    parse_duration,
    parse_mode,
    to_text,
)
from mainstay.foundation.text import REDACTED, Tainted, shorten
from mainstay.foundation.yaml.scalars import PlainScalar, core_value, to_value


@pytest.mark.parametrize(
    ("text", "value"),
    [
        *(("", None), ("~", None), ("null", None), ("Null", None), ("NULL", None)),
        *(("true", True), ("True", True), ("TRUE", True), ("false", False), ("False", False), ("FALSE", False)),
        *(("yes", "yes"), ("No", "No"), ("on", "on"), ("OFF", "OFF"), ("y", "y"), ("nUll", "nUll"), ("tRue", "tRue")),
        *(("0", 0), ("-0", 0), ("0644", 644), ("+7", 7), ("-7", -7), ("0o17", 15), ("0x1F", 31)),
        *(("0O17", "0O17"), ("-0x1", "-0x1"), ("1_000", "1_000"), ("0b1", "0b1"), ("12:30", "12:30")),
        *(("1e3", 1000.0), ("1.", 1.0), (".5", 0.5), ("-1.5E-2", -0.015), ("+.inf", math.inf), ("-.INF", -math.inf)),
        *((".", "."), ("1e", "1e"), ("e3", "e3"), ("inf", "inf"), ("nan", "nan"), ("1.2.3", "1.2.3"), (" 1", " 1")),
        ("9" * 301, "9" * 301),
    ],
)
def test_a_plain_scalar_is_read_by_the_yaml_1_2_core_schema(text: str, value: Any) -> None:
    found = core_value(text)
    assert found == value
    assert type(found) is type(value)


def test_nan_is_read_as_a_number() -> None:
    assert math.isnan(core_value(".nan"))
    assert math.isnan(core_value(".NaN"))


@given(st.text())
def test_any_text_has_a_core_value(text: str) -> None:
    value = core_value(text)
    assert value is None or isinstance(value, (bool, int, float, str))


def test_text_is_taken_as_written() -> None:
    for text in ("0644", "1e3", "true", "0x10", "+7", "007", "1.0"):
        assert TEXT.read(PlainScalar(text)) == text
    assert TEXT.read("yes") == "yes"
    assert TEXT.read("") == ""
    for nothing in ("", "~", "null"):
        assert TEXT.read(PlainScalar(nothing)) is None


@pytest.mark.parametrize(
    ("text", "mode"),
    [
        ("0644", 0o644),
        ("644", 0o644),
        ("0o755", 0o755),
        ("0O700", 0o700),
        ("0", 0),
        ("0777", 0o777),
        ("00644", 0o644),
        ("1", 1),
    ],
)
def test_modes_are_octal(text: str, mode: int) -> None:
    assert parse_mode(text) == mode
    assert MODE_BITS.read(PlainScalar(text)) == mode
    assert MODE_BITS.accept(text) == mode


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("9z", 'mode "9z" is not a valid octal number'),
        ("0888", 'mode "0888" is not a valid octal number'),
        ("", 'mode "" is not a valid octal number'),
        ("-644", 'mode "-644" is not a valid octal number'),
        ("0b1", 'mode "0b1" is not a valid octal number'),
        ("0o", 'mode "0o" is not a valid octal number'),
        ("u=rwx", 'mode "u=rwx" is not a valid octal number'),
        ("٠٦٤٤", 'mode "٠٦٤٤" is not a valid octal number'),
        ("7" * 30, f'mode "{"7" * 30}" is not a valid octal number'),
    ],
)
def test_an_invalid_mode_is_refused(text: str, says: str) -> None:
    with pytest.raises(Unfit) as refusal:
        parse_mode(text)
    assert str(refusal.value) == says


@pytest.mark.parametrize("value", [420, 644, 0, 1.5, True, [], {}])
def test_a_template_must_give_a_mode_as_text(value: Any) -> None:
    with pytest.raises(Unfit, match="quote it where it is defined"):
        MODE_BITS.accept(value)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("500ms", 0.5),
        ("30s", 30),
        ("1.5s", 1.5),
        ("5m", 300),
        ("1h30m", 5400),
        ("2d", 172800),
        ("1d2h3m4s5ms", 93784.005),
        ("366d", 366 * 86400),
    ],
)
def test_a_duration_is_read_in_seconds(text: str, seconds: float) -> None:
    assert parse_duration(text) == seconds
    assert DURATION_SECONDS.read(text) == seconds


@pytest.mark.parametrize(
    "text", ["", "30", "s", "5 m", "5M", "1m1h", "-5s", "1e3s", "0s", "0ms", "367d", "1h 30m", "9" * 50 + "s", "٣s"]
)
def test_an_invalid_duration_is_refused(text: str) -> None:
    with pytest.raises(Unfit, match="duration"):
        parse_duration(text)


@given(st.text(alphabet="0123456789dhms. -", max_size=60))
def test_any_text_is_a_bounded_duration_or_refused(text: str) -> None:
    with contextlib.suppress(Unfit):
        assert 0 < parse_duration(text) <= 366 * 86400


def test_booleans_are_true_and_false_only() -> None:
    assert BOOLEAN.read(PlainScalar("true")) is True
    assert BOOLEAN.read(PlainScalar("FALSE")) is False
    assert BOOLEAN.read(PlainScalar("~")) is None
    for node, says in (
        ("true", "got the text 'true'; write true"),
        ("no", "got the text 'no'; write false"),
        ("maybe", "got the text 'maybe'"),
        (PlainScalar("1"), "got 1"),
        ([], "got a list"),
    ):
        with pytest.raises(Unfit) as refusal:
            BOOLEAN.read(node)
        assert str(refusal.value) == f"expected true or false, {says}"


def test_lists_of_text_and_exit_codes_are_read() -> None:
    assert TEXTS.read([PlainScalar("0644"), "a", PlainScalar("true")]) == ("0644", "a", "true")
    assert TEXTS.read([]) == ()
    assert TEXTS.read(PlainScalar("")) is None
    assert TEXTS.accept([1, True, "a", {"b": 1}]) == ("1", "true", "a", '{"b": 1}')
    assert EXIT_CODES.read([PlainScalar("0"), PlainScalar("255")]) == (0, 255)
    assert EXIT_CODES.accept([0, 1]) == (0, 1)


@pytest.mark.parametrize(
    "kind", [TEXT, BOOLEAN, MODE_BITS, DURATION_SECONDS, TEXTS, EXIT_CODES], ids=lambda kind: kind.name
)
def test_an_empty_value_means_not_given_for_every_kind(kind: ValueKind) -> None:
    assert kind.read(PlainScalar("")) is None
    assert kind.accept(None) is None


@pytest.mark.parametrize(
    "kind", [TEXT, BOOLEAN, MODE_BITS, DURATION_SECONDS, TEXTS, EXIT_CODES], ids=lambda kind: kind.name
)
@given(
    value=st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
        lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
        max_leaves=5,
    )
)
def test_any_value_of_a_template_is_accepted_or_refused(kind: ValueKind, value: Any) -> None:
    message = "accepted"
    try:
        kind.accept(value)
    except Unfit as refusal:
        message = str(refusal)
    assert message


def test_values_are_converted_to_text() -> None:
    for value, text in (
        (None, ""),
        (True, "true"),
        (1.5, "1.5"),
        ([1, None], "[1, null]"),
        ({"ä": "ö"}, '{"ä": "ö"}'),
    ):
        assert to_text(value) == text


def test_nodes_are_converted_to_values() -> None:
    assert to_value({"a": [PlainScalar("1"), "1", PlainScalar("~")]}) == {"a": [1, "1", None]}


def test_descriptions_of_values_are_short_and_show_no_secret() -> None:
    assert describe("a" * 100) == f"the text '{'a' * 59}…'"
    assert describe(PlainScalar("1" * 100)) == "1" * 59 + "…"
    assert describe(Tainted("secret")) == REDACTED
    assert (describe(None), describe(PlainScalar("~")), describe({}), describe([]), describe(True)) == (
        *("nothing", "nothing", "a map", "a list", "true"),
    )
    assert shorten("abc", 3) == "abc"
    assert shorten("abcd", 3) == "ab…"


def test_a_secret_is_concealed_at_any_depth() -> None:
    assert conceal({"a": [Tainted("s"), ("b", 1, None)]}) == {"a": [REDACTED, ["b", 1, None]]}
    assert repr([Tainted("s")]) == "[[redacted]]"
