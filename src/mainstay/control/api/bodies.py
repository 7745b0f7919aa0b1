"""Parses a JSON body into a struct within limits, and reports all faults at once."""

from __future__ import annotations

import re
from functools import cache
from typing import TypeVar, get_type_hints

import msgspec

from mainstay.control.domain.faults import PathFault, locate
from mainstay.control.operations.machinery.bodies import PATTERN_FAULTS, Body
from mainstay.control.operations.machinery.refusals import BadInput, InvalidProperties

MAX_DEPTH = 64
# Possessive, and accepts an unterminated string: a retry from every quote would take quadratic time.
STRINGS = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+(?:"|\\?\Z)', re.DOTALL)
# The kind of a bracket does not matter for the depth.
ONE_KIND = bytes.maketrans(b"{}", b"[]")
NO_BRACKETS = bytes(byte for byte in range(256) if byte not in b"[]{}")
WHERE = re.compile(r"^(?P<message>.*?)(?: - at `\$(?P<path>.*)`)?$", re.DOTALL)

JSON_NAMES = {"str": "string", "int": "integer", "float": "number", "bool": "boolean"}
NAMES = re.compile(r"`?\b(str|int|float|bool)\b`?")

B = TypeVar("B", bound=Body)


def decode_json(raw: bytes) -> object:
    if raw.count(b"[") + raw.count(b"{") > MAX_DEPTH:
        _refuse_depth(raw)
    try:
        return msgspec.json.decode(raw)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise BadInput(f"the body is not JSON: {error}", code="invalid_json") from None
    except RecursionError:
        raise BadInput("the body is nested too deeply", code="too_deep") from None


def _refuse_depth(raw: bytes) -> None:
    """Removes empty pairs of brackets, level by level. A loop over the brackets would take seconds, since a body may
    have millions."""
    brackets = STRINGS.sub(b"", raw).translate(ONE_KIND, NO_BRACKETS)
    for _ in range(MAX_DEPTH):
        fewer = brackets.replace(b"[]", b"")
        if len(fewer) == len(brackets):
            break
        brackets = fewer
    if b"[]" in brackets or brackets.count(b"[") > MAX_DEPTH:
        raise BadInput(f"the body is nested deeper than {MAX_DEPTH} levels", code="too_deep")


@cache
def _fields(body: type[Body]) -> tuple[tuple[str, str, object, bool, bool], ...]:
    """(JSON name, field name, type, required, keeps null) of each field."""
    hints = get_type_hints(body, include_extras=True)
    return tuple(
        (info.encode_name, info.name, hints[info.name], info.required, info.default is msgspec.UNSET)
        for info in msgspec.structs.fields(body)
    )


def parse_body(raw: bytes, body: type[B]) -> B:
    document = decode_json(raw) if raw.strip() else {}
    if document is None:
        document = {}
    if not isinstance(document, dict):
        raise BadInput("the body must be a JSON object", code="invalid_body")
    faults: list[PathFault] = []
    values: dict[str, object] = {}
    for wire, name, wanted, required, keeps_null in _fields(body):
        value = document.get(wire)
        if value is None and not (keeps_null and wire in document):
            if required:
                faults.append(PathFault(wire, "required field is missing"))
            continue
        try:
            values[name] = msgspec.convert(value, wanted)
        except msgspec.ValidationError as error:
            faults.append(_fault(wire, error))
    if faults:
        raise InvalidProperties(faults, code="invalid_body")
    return body(**values)


def _fault(wire: str, error: msgspec.ValidationError) -> PathFault:
    found = WHERE.match(str(error))
    message = str(error) if found is None else found["message"]
    inner = "" if found is None else found["path"] or ""
    for pattern, text in PATTERN_FAULTS.items():
        if message.endswith(f"matching regex {pattern!r}"):
            message = text
    message = NAMES.sub(lambda name: JSON_NAMES[name[1]], message).replace("`", "'")
    return PathFault(f"{locate('', wire)}{inner}", message[:1].lower() + message[1:])
