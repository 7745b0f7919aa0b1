"""`hostname {prefix}`: the prefix and the service's id."""

from __future__ import annotations

from mainstay.control.domain.properties.contract import (
    Config,
    Generate,
    GenerationFailed,
    Generator,
    Outside,
    Placement,
    PropertyType,
    Unknown,
)


def _compile_rule(config: Config, _placement: Placement) -> Generate | None:
    if config.get("prefix") is None:
        config.fault("prefix", "prefix is required")
        return None
    prefix = config.string("prefix")

    def generate(_path: str, current: object, outside: Outside) -> object:
        if current is not None:
            return current
        if outside.situation.service_id is None:
            if outside.situation.dry:
                return Unknown.COUNTED
            raise GenerationFailed("hostname generator requires service context")
        return f"{prefix}-{outside.situation.service_id}"

    return generate


RULE = Generator("hostname", _compile_rule, fits=frozenset({PropertyType.STRING}), service_only=True)
