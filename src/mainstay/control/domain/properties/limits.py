"""Validators that compare a length or a number with a limit; each rule's own file says which."""

from __future__ import annotations

import operator

from mainstay.control.domain.properties.contract import Check, Config, Outside, Placement, PropertyType, Validator
from mainstay.control.domain.values import shown

NUMERIC = frozenset({PropertyType.INTEGER, PropertyType.NUMBER})


def _complaint(*, least: bool) -> str:
    return "is less than minimum" if least else "exceeds maximum"


def limit_length(name: str, kind: PropertyType, *, least: bool) -> Validator:
    """Characters of a string or items of an array; the keyword of JSON Schema has the same name."""
    breaks = operator.lt if least else operator.gt
    complaint = _complaint(least=least)

    def compile_rule(config: Config, _placement: Placement) -> Check | None:
        limit = config.count("value")
        if limit is None:
            return None

        def check(value: object, _outside: Outside) -> str | None:
            length = len(value)  # type: ignore[arg-type]
            return f"{kind} length {length} {complaint} {limit}" if breaks(length, limit) else None

        return check

    return Validator(name, compile_rule, fits=frozenset({kind}), keywords=lambda config: {name: config["value"]})


def limit_value(name: str, keyword: str, *, least: bool) -> Validator:
    breaks = operator.lt if least else operator.gt
    complaint = _complaint(least=least)

    def compile_rule(config: Config, placement: Placement) -> Check | None:
        limit = config.number("value")
        if limit is None:
            return None
        limit_shown = shown(limit)
        show = placement.shown

        def check(value: object, _outside: Outside) -> str | None:
            return f"value {show(value)} {complaint} {limit_shown}" if breaks(value, limit) else None  # type: ignore[arg-type]

        return check

    return Validator(name, compile_rule, fits=NUMERIC, keywords=lambda config: {keyword: config["value"]})
