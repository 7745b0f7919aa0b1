"""Canonical JSON, compared with the vectors of RFC 8785."""

from __future__ import annotations

import json
import math
import random
import struct

import pytest

from mainstay.foundation.canonical_json import canonical_json


@pytest.mark.parametrize(
    ("bits", "text"),
    [
        ("0000000000000000", "0"),
        ("8000000000000000", "0"),
        ("0000000000000001", "5e-324"),
        ("8000000000000001", "-5e-324"),
        ("7fefffffffffffff", "1.7976931348623157e+308"),
        ("4340000000000000", "9007199254740992"),
        ("c340000000000000", "-9007199254740992"),
        ("4430000000000000", "295147905179352830000"),
        ("44b52d02c7e14af5", "9.999999999999997e+22"),
        ("44b52d02c7e14af6", "1e+23"),
        ("444b1ae4d6e2ef4e", "999999999999999700000"),
        ("444b1ae4d6e2ef50", "1e+21"),
        ("3eb0c6f7a0b5ed8c", "9.999999999999997e-7"),
        ("3eb0c6f7a0b5ed8d", "0.000001"),
        ("41b3de4355555553", "333333333.3333332"),
        ("becbf647612f3696", "-0.0000033333333333333333"),
    ],
)
def test_numbers_of_the_specification(bits: str, text: str) -> None:
    (number,) = struct.unpack(">d", bytes.fromhex(bits))
    assert canonical_json(number).decode() == text


def test_members_are_sorted_by_utf16_code_units() -> None:
    value = {"€": 1, "\r": 2, "\ufb33": 3, "1": 4, "😀": 5, "\x80": 6, "ö": 7}
    assert list(json.loads(canonical_json(value))) == ["\r", "1", "\x80", "ö", "€", "😀", "\ufb33"]


def test_strings_escape_only_what_they_must() -> None:
    assert canonical_json('€$\x0f\nA\'B"\\\\"/\u2028\x7f').decode() == '"€$\\u000f\\nA\'B\\"\\\\\\\\\\"/\u2028\x7f"'


def test_structure_has_no_white_space() -> None:
    value = {"b": [1, 2.0, {"c": None}], "a": {}, "d": [], "e": [True, False]}
    assert canonical_json(value) == b'{"a":{},"b":[1,2,{"c":null}],"d":[],"e":[true,false]}'


def test_an_integer_beyond_the_range_of_a_double_keeps_its_digits() -> None:
    assert canonical_json([10**400, -(10**309)]).decode() == f"[{10**400},-{10**309}]"


@pytest.mark.parametrize("value", [math.nan, math.inf, "\ud800", object(), {"a": object()}])
def test_values_outside_of_json_are_refused(value: object) -> None:
    with pytest.raises((ValueError, OverflowError, AttributeError)):
        canonical_json(value)


def test_every_number_survives() -> None:
    source = random.Random(7)
    numbers = [struct.unpack(">d", source.randbytes(8))[0] for _ in range(3000)]
    numbers += [source.uniform(-1e7, 1e7) for _ in range(1000)] + [10.0**power for power in range(-30, 30)]
    for number in filter(math.isfinite, numbers):
        text = canonical_json(number).decode()
        assert float(text) == number
        assert len(text.strip("-")) <= 25


def test_the_fast_path_agrees_with_the_slow_one() -> None:
    source = random.Random(11)
    texts = ["", "a", ":59.1234", ",1.5]", "-0", "é", "\n", '"', "1e5", "[1.5e-7,", "2026-11-16T15:34:59.5Z"]

    def draw(depth: int) -> object:
        kind = source.randint(0, 7 if depth < 3 else 5)
        if kind == 6:
            return [draw(depth + 1) for _ in range(source.randint(0, 3))]
        if kind == 7:
            return {source.choice(texts): draw(depth + 1) for _ in range(source.randint(0, 3))}
        number = source.choice([0, -7, 2**53, 2**53 + 2, 4.0, 1.5, -1e-7, 1e21, 123456789.25, -0.0])
        return source.choice([None, True, False, number, number, source.choice(texts)])

    for _ in range(5000):
        value = draw(0)
        # A name that sorts last and is not ASCII forces the slow path.
        slow = canonical_json({"a": value, "\uffff": 0}).decode()
        assert slow == f'{{"a":{canonical_json(value).decode()},"\uffff":0}}'
