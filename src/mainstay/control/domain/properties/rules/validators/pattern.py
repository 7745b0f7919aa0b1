"""`pattern {pattern}`: a regular expression that must be found somewhere in the string."""

from __future__ import annotations

from mainstay.control.domain.patterns import BadPattern, compile_pattern
from mainstay.control.domain.properties.contract import Check, Config, Lookups, Placement, PropertyType, Validator


def _compile_rule(config: Config, _placement: Placement) -> Check | None:
    pattern = config.string("pattern")
    if pattern is None:
        return None
    try:
        search = compile_pattern(pattern)
    except BadPattern as reason:
        config.fault("pattern", f"invalid regular expression: {reason}")
        return None
    message = f"string does not match pattern {pattern}"

    def check(value: object, _lookups: Lookups) -> str | None:
        return None if search(value) else message  # type: ignore[arg-type]

    return check


RULE = Validator(
    "pattern",
    _compile_rule,
    fits=frozenset({PropertyType.STRING}),
    keywords=lambda config: {"pattern": config["pattern"]},
)
