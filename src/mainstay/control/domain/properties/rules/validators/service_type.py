"""`serviceType {value}`: the referenced service is of one of these service types."""

from __future__ import annotations

from mainstay.control.domain.properties.contract import (
    Check,
    Config,
    Lookups,
    Placement,
    PropertyType,
    ReferencedService,
    Validator,
)

BAD_CONFIG = "serviceType validator value must be a string or array of strings"


def require_type(names: frozenset[str]) -> Check:
    def check(value: object, lookups: Lookups) -> str | None:
        found = lookups.service(value.lower())  # type: ignore[attr-defined]
        if isinstance(found, ReferencedService) and found.service_type not in names:
            return "referenced service is not of the allowed service type"
        return None

    return check


def _compile_rule(config: Config, _placement: Placement) -> Check | None:
    single = config.get("value")
    names = (single,) if type(single) is str and single else config.strings("value", BAD_CONFIG)
    return None if names is None else require_type(frozenset(names))


RULE = Validator("serviceType", _compile_rule, fits=frozenset({PropertyType.REFERENCE}), service_only=True)
