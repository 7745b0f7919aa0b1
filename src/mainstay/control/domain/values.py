"""JSON values: type names, equality, bounds, and their form in messages."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Hashable

# The shape is defined by users, so this is the only plain dictionary that the domain accepts.
Properties = dict[str, object]

# Python's own recursion limit depends on the depth of the caller.
MAX_DEPTH = 64
# A larger float is not an exact integer.
EXACT_FLOAT = 2**53
# Every client reads integers up to this one exactly.
MAX_INTEGER = 2**53 - 1
# The largest double. Clients read a larger number as infinity.
MAX_NUMBER = (2**53 - 1) * 2**971
# Python refuses to print integers of thousands of digits.
MAX_SHOWN_BITS = 256
MAX_SHOWN_TEXT = 200

JSON_TYPES: dict[type, str] = {
    str: "string",
    bool: "boolean",
    int: "integer",
    float: "number",
    dict: "object",
    list: "array",
    type(None): "null",
}
_UNKNOWN = object()
TOO_LARGE = "a number that is too large"
_LEVELS = range(MAX_DEPTH)
_UUID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}", re.IGNORECASE | re.ASCII)


def type_name(value: object) -> str:
    """The JSON name of a value's type, or a description of a value that is not JSON."""
    kind = type(value)
    if kind is float and not math.isfinite(value):  # type: ignore[arg-type]
        return "NaN" if math.isnan(value) else "Infinity"  # type: ignore[arg-type]
    if kind is str and not is_text(value):  # type: ignore[arg-type]
        return "invalid Unicode"
    return JSON_TYPES.get(kind, "a value that is not JSON")


def is_text(value: str) -> bool:
    """False for a string with half a surrogate pair, which can be neither stored nor sent."""
    if value.isascii():
        return True
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True


def is_uuid(value: str) -> bool:
    return _UUID.fullmatch(value) is not None


def is_integer(value: object) -> bool:
    kind = type(value)
    if kind is int or (kind is float and value.is_integer()):  # type: ignore[attr-defined]
        return -MAX_INTEGER <= value <= MAX_INTEGER  # type: ignore[operator]
    return False


def is_number(value: object) -> bool:
    kind = type(value)
    if kind is int:
        return -MAX_NUMBER <= value <= MAX_NUMBER  # type: ignore[operator]
    return kind is float and math.isfinite(value)  # type: ignore[arg-type]


def integer_problem(value: object) -> str:
    """Why a value is not an integer, worded for a type fault."""
    if is_number(value) and value == int(value):  # type: ignore[call-overload]
        return "a number outside ±(2^53 - 1)"
    return number_problem(value)


def number_problem(value: object) -> str:
    """Why a value is not a number, worded for a type fault."""
    return TOO_LARGE if type(value) is int else type_name(value)


def whole(value: float) -> int | float:
    """Converts 4.0 to 4. A float that is too large to be exact is returned unchanged."""
    if type(value) is float and -EXACT_FLOAT <= value <= EXACT_FLOAT:
        return int(value)
    return value


def json_problem(value: object) -> str | None:
    """Why a value is not JSON within the bounds, worded for a type fault. None: it is."""
    level = [value]
    for _ in _LEVELS:
        below: list[object] = []
        for item in level:
            kind = type(item)
            if kind is str:
                if not (item.isascii() or is_text(item)):  # type: ignore[attr-defined, arg-type]
                    return "invalid Unicode"
            elif kind is dict:
                below += item  # type: ignore[arg-type]
                below += item.values()  # type: ignore[attr-defined]
            elif kind is list:
                below += item  # type: ignore[arg-type]
            elif kind is float:
                if not math.isfinite(item):  # type: ignore[arg-type]
                    return type_name(item)
            elif kind is int:
                if not -MAX_NUMBER <= item <= MAX_NUMBER:  # type: ignore[operator]
                    return TOO_LARGE
            elif kind not in JSON_TYPES:
                return type_name(item)
        if not below:
            return None
        level = below
    return f"a value nested deeper than {MAX_DEPTH} levels"


def comparable(value: object, levels: int = MAX_DEPTH + 2) -> object:
    """Makes a value that is not JSON safe to compare. Cuts it just below the refused depth and replaces unknown types by
    a marker, so that validation still finds the same problems."""
    kind = type(value)
    if kind not in JSON_TYPES:
        return _UNKNOWN
    if kind is dict:
        return {name: comparable(item, levels - 1) for name, item in value.items()} if levels else {}  # type: ignore[attr-defined]
    if kind is list:
        return [comparable(item, levels - 1) for item in value] if levels else []  # type: ignore[attr-defined]
    return value


def canonical(value: object) -> Hashable:
    """Equal for equal JSON: 1 equals 1.0 but not true, and the order of an object's members does not matter."""
    kind = type(value)
    if kind is bool:
        return (bool, value)
    if kind is list:
        return (list, tuple(map(canonical, value)))  # type: ignore[call-overload]
    if kind is dict:
        return (dict, frozenset((name, canonical(item)) for name, item in value.items()))  # type: ignore[attr-defined]
    return value


def equal(left: object, right: object) -> bool:
    return left is right or canonical(left) == canonical(right)


def shown(value: object) -> str:
    """A value in a message: a string without quotes, anything else as JSON, of bounded length."""
    kind = type(value)
    if kind is int:
        return str(value) if -EXACT_FLOAT < value < EXACT_FLOAT else _shown_integer(value)  # type: ignore[operator, arg-type]
    if kind is float and value.is_integer() and abs(value) <= EXACT_FLOAT:  # type: ignore[attr-defined, arg-type]
        return str(int(value))  # type: ignore[call-overload]
    text = value if kind is str else _shown_json(value)
    return text if len(text) <= MAX_SHOWN_TEXT else f"{text[:MAX_SHOWN_TEXT]}…"  # type: ignore[arg-type, index, return-value]


def _shown_integer(value: int) -> str:
    if value.bit_length() <= MAX_SHOWN_BITS:
        return str(value)
    return f"{'-' if value < 0 else ''}about 10^{int(value.bit_length() * 0.30103)}"


def _shown_json(value: object) -> str:
    try:
        # An object may contain a secret that is not sealed yet, or an unknown value.
        return json.dumps(value, ensure_ascii=False, default=hidden)
    except ValueError:
        # It contains an integer of thousands of digits.
        return type_name(value)


def hidden(_value: object) -> str:
    """Replaces `shown` for secrets."""
    return "***"
