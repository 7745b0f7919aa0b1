"""`enum {values}`: the values that are allowed, compared as JSON."""

from __future__ import annotations

from mainstay.control.domain.properties.contract import Check, Config, Lookups, Placement, Validator
from mainstay.control.domain.values import canonical

MESSAGE = "value is not in allowed enum values"


def _compile_rule(config: Config, _placement: Placement) -> Check | None:
    values = config.values("values")
    if values is None:
        return None
    allowed = frozenset(map(canonical, values))

    def check(value: object, _lookups: Lookups) -> str | None:
        return None if canonical(value) in allowed else MESSAGE

    return check


RULE = Validator("enum", _compile_rule, keywords=lambda config: {"enum": config["values"]})
