"""The canonical JSON (RFC 8785) of events as the database holds them. Pure.

Every event is encoded once, by the process that serves requests. Compiled code reads and writes the JSON; the few forms
that it writes differently are recognized and left to `canonical_json`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from mainstay.foundation.canonical_json import canonical_json, canonical_number

# Digits become 0, and the first byte of a character beyond the first plane becomes 255, which UTF-8 does not use.
_MARKS = bytes.maketrans(b"123456789\xf0\xf1\xf2\xf3\xf4", b"000000000\xff\xff\xff\xff\xff")
_ENCODER = msgspec.json.Encoder(order="sorted")


def canonical_event(event: Mapping[str, Any]) -> bytes:
    """`event` has the members that the hash covers, as the API names them; `properties` is JSON text."""
    return _ENCODER.encode({**event, "properties": msgspec.Raw(canonical_text(event["properties"]))})


def canonical_text(text: str) -> bytes:
    """The canonical form of JSON text. Escapes, and fractions written by `_fraction`, are as the RFC requires."""
    encoded = _ENCODER.encode(_DECODER.decode(text))
    return canonical_json(msgspec.json.decode(text)) if _may_differ(encoded) else encoded


def _fraction(literal: str) -> msgspec.Raw:
    return msgspec.Raw(canonical_number(float(literal)).encode())


_DECODER = msgspec.json.Decoder(float_hook=_fraction)


def _may_differ(encoded: bytes) -> bool:
    """Whether an integer may be beyond 2**53, or names may sort differently by UTF-8 than by UTF-16."""
    marked = encoded.translate(_MARKS)
    return b"0" * 16 in marked or b"\xff" in marked
