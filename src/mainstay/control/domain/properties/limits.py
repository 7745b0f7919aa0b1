"""Validators that compare a length or a number with a limit, for the rules in `rules/validators/`."""

from __future__ import annotations

from mainstay.control.domain.properties.contract import Check, Config, Lookups, Placement, PropertyType, Validator
from mainstay.control.domain.values import shown

NUMERIC = frozenset({PropertyType.INTEGER, PropertyType.NUMBER})


def limit_length(name: str, kind: PropertyType, *, least: bool) -> Validator:
    """Limits the characters of a string or the items of an array. The JSON Schema keyword has the same name."""

    def compile_rule(config: Config, _placement: Placement) -> Check | None:
        limit = config.count("value")
        if limit is None:
            return None

        is_less, exceeds = (
            f"{kind} length %d is less than minimum {limit}",
            f"{kind} length %d exceeds maximum {limit}",
        )

        # Two functions, because a variable operator would take twice the time.
        def check_least(value: object, _lookups: Lookups) -> str | None:
            if (length := len(value)) < limit:  # type: ignore[arg-type]
                return is_less % length
            return None

        def check_greatest(value: object, _lookups: Lookups) -> str | None:
            if (length := len(value)) > limit:  # type: ignore[arg-type]
                return exceeds % length
            return None

        return check_least if least else check_greatest

    return Validator(name, compile_rule, fits=frozenset({kind}), keywords=lambda config: {name: config["value"]})


def limit_value(name: str, keyword: str, *, least: bool) -> Validator:

    def compile_rule(config: Config, placement: Placement) -> Check | None:
        limit = config.number("value")
        if limit is None:
            return None
        limit_shown = shown(limit)
        show = placement.shown

        def check_least(value: object, _lookups: Lookups) -> str | None:
            if value < limit:  # type: ignore[operator]
                return f"value {show(value)} is less than minimum {limit_shown}"
            return None

        def check_greatest(value: object, _lookups: Lookups) -> str | None:
            if value > limit:  # type: ignore[operator]
                return f"value {show(value)} exceeds maximum {limit_shown}"
            return None

        return check_least if least else check_greatest

    return Validator(name, compile_rule, fits=NUMERIC, keywords=lambda config: {keyword: config["value"]})
