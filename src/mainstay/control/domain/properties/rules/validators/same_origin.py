"""`sameOrigin {value}`: the referenced service belongs to the same consumer, or to the same service group."""

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

ORIGINS = ("consumer", "group")


def _require_consumer(value: object, lookups: Lookups) -> str | None:
    found = lookups.service(value.lower())  # type: ignore[attr-defined]
    consumer = lookups.context.consumer_id
    if isinstance(found, ReferencedService) and consumer is not None and found.consumer_id != consumer:
        return "referenced service must belong to the same consumer"
    return None


def _require_group(value: object, lookups: Lookups) -> str | None:
    found = lookups.service(value.lower())  # type: ignore[attr-defined]
    group = lookups.context.group_id
    # A dry validation may not know the group.
    if isinstance(found, ReferencedService) and group is not None and found.group_id != group:
        return "referenced service must belong to the same service group"
    return None


def read_origin(config: Config, key: str) -> Check | None:
    origin = config.get(key)
    if origin not in ORIGINS:
        config.fault(key, f"{config.rule} {key} must be 'consumer' or 'group'")
        return None
    return _require_consumer if origin == "consumer" else _require_group


def _compile_rule(config: Config, _placement: Placement) -> Check | None:
    return read_origin(config, "value")


RULE = Validator("sameOrigin", _compile_rule, fits=frozenset({PropertyType.REFERENCE}), service_only=True)
