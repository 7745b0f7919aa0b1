"""The canonical JSON of stored events is the one that a client computes from the document of the API."""

from __future__ import annotations

import json
import random
import struct
from datetime import UTC, datetime

import msgspec
import pytest

from mainstay.control.domain.event_chain import HASHED
from mainstay.control.domain.event_encoding import canonical_event, canonical_text
from mainstay.foundation.canonical_json import canonical_json
from torture import count_of

TEXTS = [
    "",
    "a",
    "Z",
    "é",
    "\ufb33",
    "😀",
    "\x00",
    "\x1f\x7f",
    "\u2028",
    '"',
    "\\",
    "/",
    "\n",
    ":59.1234",
    ",1.5]",
    "-0",
]
TEXTS += ["1e5", "[1.5e-7,", "2026-11-16T15:34:59.5Z", "1234567890123456789", '":1.5', "12345678-1234-1234"]
NUMBERS: list[float] = [
    0,
    -7,
    10**15,
    2**53 - 1,
    2**53,
    2**53 + 1,
    -(2**53) - 3,
    2**63,
    2**64 + 1,
    10**21,
    10**300,
    10**400,
]
NUMBERS += [0.0, -0.0, 4.0, 1.5, -1e-7, 0.000001, 1e20, 1e21, 1e22, 123456789.25, 5e-324, 1.7976931348623157e308]


def test_every_text_has_the_canonical_form_of_its_value() -> None:
    source = random.Random(17)

    def draw(depth: int) -> object:
        kind = source.randint(0, 7 if depth < 4 else 5)
        if kind == 7:
            return {source.choice(TEXTS) + source.choice(TEXTS): draw(depth + 1) for _ in range(source.randint(0, 4))}
        if kind == 6:
            return [draw(depth + 1) for _ in range(source.randint(0, 4))]
        return source.choice(
            [None, True, False, source.choice(NUMBERS), source.choice(NUMBERS), source.choice(TEXTS)]
        )

    for _ in range(count_of(200_000)):
        value = {"diff": draw(0), "reason": draw(1)}
        text = msgspec.json.encode(value).decode()
        assert canonical_text(text) == canonical_json(json.loads(text)), text


def test_every_double_has_its_canonical_form() -> None:
    source = random.Random(19)
    for _ in range(count_of(400_000)):
        (number,) = struct.unpack(">d", source.randbytes(8))
        text = msgspec.json.encode([number, source.uniform(-1e7, 1e7)]).decode()
        assert canonical_text(text) == canonical_json(json.loads(text)), text


def test_text_of_other_encoders_has_the_same_form() -> None:
    text = ' { "b" : [ 1E2 , -0 , "\\u00e9\\u0041\\/" ] , "a" : 0.10 } '
    assert canonical_text(text).decode() == '{"a":0.1,"b":[100,0,"éA/"]}'


@pytest.mark.parametrize("microsecond", [0, 1, 120_000])
def test_an_event_is_encoded_as_a_client_encodes_the_document_of_the_api(microsecond: int) -> None:
    event: dict[str, object] = {name: f"{name} é😀\n" for name in HASHED}
    event |= {"sequenceNumber": 7, "createdAt": datetime(2026, 11, 16, 1, 2, 3, microsecond, UTC)}
    properties = {"reason": "x", "diff": [{"value": 1.0, "path": "/a", "op": "add"}]}
    received = json.loads(msgspec.json.encode({**event, "properties": properties}))
    stored = {**event, "properties": msgspec.json.encode(properties).decode()}
    assert canonical_event(stored) == canonical_json(received)
