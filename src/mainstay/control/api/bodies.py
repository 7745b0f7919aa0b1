"""Parses a JSON body into a struct within limits, and reports all faults at once."""

from __future__ import annotations

import json
import re
from functools import cache
from typing import TypeVar, get_type_hints

import msgspec

from mainstay.control.access import Caller, Role
from mainstay.control.domain.faults import MAX_LISTED, PathFault, locate
from mainstay.control.domain.old_clients import OLD_MEMBERS
from mainstay.control.operations.machinery.bodies import PATTERN_FAULTS, AgentProtocolBody, Body
from mainstay.control.operations.machinery.refusals import BadInput, InvalidProperties
from mainstay.foundation.suggestions import did_you_mean

MAX_DEPTH = 64
# A larger body is parsed in a thread.
PARSED_ON_LOOP_BYTES = 64 * 2**10
# Commas and colons of a large body: one of many short values takes far longer to parse than others of its size.
MAX_SEPARATORS = 100_000
# A report of an agent is never refused for its length, and has more bytes than this for each.
BYTES_PER_SEPARATOR = 6
# Possessive, and accepts an unterminated string: a retry from every quote would take quadratic time.
STRINGS = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+(?:"|\\?\Z)', re.DOTALL)
# The kind of a bracket does not matter for the depth.
ONE_KIND = bytes.maketrans(b"{}", b"[]")
NO_BRACKETS = bytes(byte for byte in range(256) if byte not in b"[]{}")
# An escaped half of a surrogate pair without its other half.
HALF_PAIR = re.compile(rb"\\u[dD][89abAB]..(?!\\u[dD][c-fC-F])|(?<!\\u[dD][89abAB]..)\\u[dD][c-fC-F]", re.DOTALL)
# Also written as `\u003A`.
ESCAPED_COLON = b"\\u003"
WHERE = re.compile(r"^(?P<message>.*?)(?: - at `\$(?P<path>.*)`)?$", re.DOTALL)

JSON_NAMES = {"str": "string", "int": "integer", "float": "number", "bool": "boolean"}
NAMES = re.compile(r"`?\b(str|int|float|bool)\b`?")

B = TypeVar("B", bound=Body)
S = TypeVar("S", bound=msgspec.Struct)


class DecodedBody(bytes):
    """A body that was decoded before it is read, in a thread."""

    document: object = None
    # Raised where the body is read, as for any other body. None: the body is sound.
    fault: BadInput | None = None

    @classmethod
    def of(cls, raw: bytes, caller: Caller | None) -> DecodedBody:
        decoded = cls(raw)
        if not raw.strip():
            return decoded
        try:
            if caller is None or caller.role is not Role.ADMIN:
                is_agent = caller is not None and caller.role is Role.AGENT
                _refuse_density(raw, max(MAX_SEPARATORS, len(raw) // BYTES_PER_SEPARATOR if is_agent else 0))
            decoded.document = _decode_json(raw)
        except BadInput as fault:
            decoded.fault = fault
        return decoded


def _decode_json(raw: bytes) -> object:
    if isinstance(raw, DecodedBody):
        if raw.fault is not None:
            raise raw.fault
        return raw.document
    if raw.count(b"[") + raw.count(b"{") > MAX_DEPTH:
        _refuse_depth(raw)
    try:
        document = msgspec.json.decode(raw)
    except msgspec.ValidationError:
        raise BadInput("the body contains a number that is out of range", code="invalid_json") from None
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        reason = "a string contains half a surrogate pair" if HALF_PAIR.search(raw) else error
        raise BadInput(f"the body is not JSON: {reason}", code="invalid_json") from None
    except RecursionError:
        raise BadInput("the body is nested too deeply", code="too_deep") from None
    # A decoded document has one colon less for each duplicate key. An escaped colon would make up for it, so then the
    # strings do not count.
    encoded = msgspec.json.encode(document)
    if ESCAPED_COLON in raw:
        has_duplicates = STRINGS.sub(b"", raw).count(b":") != STRINGS.sub(b"", encoded).count(b":")
    else:
        has_duplicates = raw.count(b":") != encoded.count(b":")
    if has_duplicates:
        _refuse_duplicate_keys(raw)
    return document


def _refuse_density(raw: bytes, most: int) -> None:
    if raw.count(b",") + raw.count(b":") <= most:
        return
    without_texts = STRINGS.sub(b"", raw)
    if without_texts.count(b",") + without_texts.count(b":") > most:
        raise BadInput(
            f"the body contains more than {most // 2:,} values; send fewer at once", code="too_many_values"
        )


def _refuse_duplicate_keys(raw: bytes) -> None:
    if len(raw) > PARSED_ON_LOOP_BYTES:
        # Finding the name takes a second decoder, which is a hundred times slower.
        raise BadInput("the body contains a key twice", code="duplicate_key")

    def read_object(members: list[tuple[str, object]]) -> None:
        seen = set()
        for name, _ in members:
            if name in seen:
                raise BadInput(f"the body contains the key {locate('', name)} twice", code="duplicate_key")
            seen.add(name)

    json.loads(raw, object_pairs_hook=read_object)


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
    return _parse(raw, body, frozenset())[0]


def parse_change(raw: bytes, body: type[B], noun: type[msgspec.Struct]) -> tuple[B, dict[str, object]]:
    """The changes, and the members of the noun that the body repeats but cannot change: see `refuse_other_values`."""
    return _parse(raw, body, frozenset(noun.__struct_encode_fields__))


def parse_list(raw: bytes, item: type[S]) -> list[S]:
    try:
        return msgspec.convert(_decode_json(raw) if raw.strip() else [], list[item])  # type: ignore[valid-type]
    except msgspec.ValidationError as error:
        raise InvalidProperties([_fault("", error)], code="invalid_body") from None


def _parse(raw: bytes, body: type[B], noun: frozenset[str]) -> tuple[B, dict[str, object]]:
    document = _decode_json(raw) if raw.strip() else {}
    if document is None:
        document = {}
    if not isinstance(document, dict):
        raise BadInput("the body must be a JSON object", code="invalid_body")
    faults: list[PathFault] = []
    values: dict[str, object] = {}
    known = 0
    for wire, name, wanted, required, keeps_null in _fields(body):
        value = document.get(wire)
        known += value is not None or wire in document
        if value is None and not (keeps_null and wire in document):
            if required:
                faults.append(PathFault(wire, "required field is missing"))
            continue
        try:
            values[name] = msgspec.convert(value, wanted)
        except msgspec.ValidationError as error:
            faults.append(_fault(wire, error))
    echoed: dict[str, object] = {}
    if known < len(document) and not (known and issubclass(body, AgentProtocolBody)):
        fixed = noun.difference(body.__struct_encode_fields__)
        echoed = {name: value for name, value in document.items() if name in fixed}
        faults += _unknown_fields(document, body, noun)
    if faults:
        raise InvalidProperties(faults, code="invalid_body")
    return body(**values), echoed


def _unknown_fields(document: dict[str, object], body: type[Body], noun: frozenset[str]) -> list[PathFault]:
    known = body.__struct_encode_fields__
    expected = noun.union(known, OLD_MEMBERS.get(body.__name__, ()))
    unknown = [name for name in document if name not in expected]
    faults = [
        PathFault(locate("", name), f"unknown field{_suggestion(name, known)}") for name in unknown[:MAX_LISTED]
    ]
    # The others are only counted: a body may have hundreds of thousands.
    return faults + [PathFault("", "unknown field")] * (len(unknown) - MAX_LISTED)


def _suggestion(name: str, known: tuple[str, ...]) -> str:
    if not known:
        return "; this request takes no fields"
    return did_you_mean(name, known) or f"; known fields: {', '.join(known)}"


def _fault(wire: str, error: msgspec.ValidationError) -> PathFault:
    found = WHERE.match(str(error))
    message = str(error) if found is None else found["message"]
    inner = "" if found is None else found["path"] or ""
    for pattern, text in PATTERN_FAULTS.items():
        if message.endswith(f"matching regex {pattern!r}"):
            message = text
    message = NAMES.sub(lambda name: JSON_NAMES[name[1]], message).replace("`", "'")
    return PathFault(f"{locate('', wire) if wire else ''}{inner}", message[:1].lower() + message[1:])
