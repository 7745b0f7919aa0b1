"""`sameOrigin {value}`: the referenced service belongs to the same customer, or to the same service group."""

from __future__ import annotations

from operator import attrgetter

from mainstay.control.domain.properties.contract import (
    Check,
    Config,
    Lookups,
    PropertyType,
    ReferencedService,
    Validator,
)

# Origin → the id that must be the same, and the message if it is not.
ORIGINS = {
    "consumer": (attrgetter("consumer_id"), "referenced service must belong to the same consumer"),
    "group": (attrgetter("group_id"), "referenced service must belong to the same service group"),
}


def read_origin(config: Config, key: str) -> Check | None:
    origin = config.get(key)
    if not isinstance(origin, str) or origin not in ORIGINS:
        config.fault(key, f"{config.rule} {key} must be 'consumer' or 'group'")
        return None
    id_of, message = ORIGINS[origin]

    def check(value: object, lookups: Lookups) -> str | None:
        found = lookups.service(value.lower())  # type: ignore[attr-defined]
        wanted = id_of(lookups.context)
        # A dry validation may know neither.
        is_other = isinstance(found, ReferencedService) and wanted is not None and id_of(found) != wanted
        return message if is_other else None

    return check


RULE = Validator(
    "sameOrigin",
    lambda config, _placement: read_origin(config, "value"),
    fits=frozenset({PropertyType.REFERENCE}),
    service_only=True,
)
