"""`serviceReference {types?, origin?}`: makes a uuid a reference, with the rules of `serviceType` and `sameOrigin`."""

from __future__ import annotations

from mainstay.control.domain.properties.contract import Check, Config, Lookups, Placement, PropertyType, Validator
from mainstay.control.domain.properties.rules.validators.same_origin import read_origin
from mainstay.control.domain.properties.rules.validators.service_type import require_type


def _compile_rule(config: Config, _placement: Placement) -> Check | None:
    checks: list[Check] = []
    if config.get("types") is not None and (types := config.strings("types")) is not None:
        checks.append(require_type(frozenset(types)))
    if config.get("origin") is not None and (origin := read_origin(config, "origin")) is not None:
        checks.append(origin)

    def check(value: object, lookups: Lookups) -> str | None:
        return next((message for each in checks if (message := each(value, lookups)) is not None), None)

    return check


RULE = Validator(
    "serviceReference",
    _compile_rule,
    fits=frozenset({PropertyType.REFERENCE, PropertyType.UUID}),
    service_only=True,
)
