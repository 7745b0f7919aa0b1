"""`serviceOption {value}`: the value is one of the options of this type that the provider offers and has enabled."""

from __future__ import annotations

from mainstay.control.domain.properties.contract import Check, Config, Lookups, Placement, Unknown, Validator
from mainstay.control.domain.values import equal

BAD_CONFIG = "serviceOption validator value must be a string (serviceOptionType)"


def _compile_rule(config: Config, placement: Placement) -> Check | None:
    option_type = config.string("value", BAD_CONFIG)
    if option_type is None:
        return None
    show = placement.shown

    def check(value: object, lookups: Lookups) -> str | None:
        if lookups.context.provider_id is None:
            return "service option validation requires provider ID in context"
        options = lookups.options(option_type)
        if options is None:
            return f"service option type '{option_type}' not found"
        if isinstance(options, Unknown) or any(equal(value, option) for option in options):
            return None
        return f"service option with value '{show(value)}' not found or not enabled for provider"

    return check


RULE = Validator("serviceOption", _compile_rule)
