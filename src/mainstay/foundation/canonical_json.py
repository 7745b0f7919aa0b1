"""Canonical JSON (RFC 8785): equal values have equal bytes, so that a hash of them can be verified elsewhere."""

from __future__ import annotations

from math import isfinite

LARGEST_EXACT = 2**53


def canonical_json(value: object) -> bytes:
    """Raises ValueError for a number that JSON does not have, or half of a surrogate pair. An integer beyond the range
    of a double is written with all its digits."""
    from json import dumps
    from json.encoder import encode_basestring

    if not _has_other_numbers(value):
        # The encoder of the standard library is much faster, and differs only in the order of names beyond ASCII and in
        # numbers that are not small integers.
        text = dumps(value, ensure_ascii=False, sort_keys=True, separators=(",", ":"))
        if text.isascii():
            return text.encode()
    parts: list[str] = []

    def write(each: object) -> None:
        if isinstance(each, str):
            parts.append(encode_basestring(each))
        elif each is None or isinstance(each, bool):
            parts.append({None: "null", True: "true", False: "false"}[each])
        elif isinstance(each, (int, float)):
            parts.append(canonical_number(each))
        elif isinstance(each, dict):
            # By UTF-16 code units: a character beyond the first plane sorts before U+E000.
            members = sorted(each.items(), key=lambda member: member[0].encode("utf-16-be", "surrogatepass"))
            for index, (name, member) in enumerate(members):
                parts.append(f"{',' if index else '{'}{encode_basestring(name)}:")
                write(member)
            parts.append("}" if members else "{}")
        elif isinstance(each, list):
            for index, item in enumerate(each):
                parts.append("," if index else "[")
                write(item)
            parts.append("]" if each else "[]")
        else:
            raise ValueError(f"{type(each).__name__} is not a JSON value")

    write(value)
    return "".join(parts).encode()


def _has_other_numbers(value: object) -> bool:
    """Whether a fraction, a large integer, or what is no JSON value, occurs anywhere."""
    stack = [value]
    while stack:
        each = stack.pop()
        kind = type(each)
        if kind is dict:
            stack.extend(each.values())  # type: ignore[attr-defined]
        elif kind is list:
            stack.extend(each)  # type: ignore[arg-type]
        elif kind is int:
            if not -LARGEST_EXACT <= each <= LARGEST_EXACT:  # type: ignore[operator]
                return True
        elif kind is not str and each is not None and kind is not bool:
            return True
    return False


def canonical_number(value: float) -> str:
    """As ECMAScript prints a double: no point in whole numbers below 1e21, an exponent without leading zeros."""
    if isinstance(value, int) and abs(value) <= LARGEST_EXACT:
        return str(value)
    try:
        number = float(value)
    except OverflowError:
        # RFC 8785 has no form for it. Earlier releases stored such integers, and a chain over them must not stop.
        return str(value)
    if not isfinite(number):
        raise ValueError(f"{number} is not a JSON number")
    if number == 0:
        return "0"
    digits, _, exponent = repr(abs(number)).partition("e")
    whole, _, fraction = digits.partition(".")
    fraction = "" if fraction == "0" else fraction
    # The decimal point is after this many of the significant digits.
    point = len(whole) + int(exponent or 0)
    significant = (whole + fraction).lstrip("0")
    point -= len(whole + fraction) - len(significant)
    significant = significant.rstrip("0")
    sign = "-" if number < 0 else ""
    return sign + _place_point(significant, point)


def _place_point(digits: str, point: int) -> str:
    if len(digits) <= point <= 21:
        return digits + "0" * (point - len(digits))
    if 0 < point <= 21:
        return f"{digits[:point]}.{digits[point:]}"
    if -6 < point <= 0:
        return f"0.{'0' * -point}{digits}"
    mantissa = digits[0] + (f".{digits[1:]}" if len(digits) > 1 else "")
    return f"{mantissa}e{point - 1:+d}"
