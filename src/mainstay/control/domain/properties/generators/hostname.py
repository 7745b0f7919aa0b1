"""`hostname {prefix}`: the prefix and the service's id."""

from __future__ import annotations

from mainstay.control.domain.properties.contract import (
    Config,
    Generate,
    GenerationFailed,
    Generator,
    Lookups,
    Placement,
    PropertyType,
    Unknown,
)


def _compile_rule(config: Config, _placement: Placement) -> Generate | None:
    if config.get("prefix") is None:
        config.fault("prefix", "prefix is required")
        return None
    prefix = config.string("prefix")

    def generate(_path: str, current: object, lookups: Lookups) -> object:
        if current is not None:
            return current
        if lookups.context.service_id is None:
            if lookups.context.dry:
                return Unknown.COUNTED
            raise GenerationFailed("hostname generator requires service context")
        return f"{prefix}-{lookups.context.service_id}"

    return generate


RULE = Generator("hostname", _compile_rule, fits=frozenset({PropertyType.STRING}), service_only=True)
