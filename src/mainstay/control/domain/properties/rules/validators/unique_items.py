"""`uniqueItems {value}`: no two items of the array are equal, compared as JSON."""

from __future__ import annotations

from mainstay.control.domain.properties.contract import Check, Config, Lookups, Placement, PropertyType, Validator
from mainstay.control.domain.values import canonical

MESSAGE = "array contains duplicate items"


def _compile_rule(config: Config, _placement: Placement) -> Check | None:
    wanted = config.boolean("value")
    if not wanted:
        return None

    def check(value: object, _lookups: Lookups) -> str | None:
        items: list[object] = value  # type: ignore[assignment]
        return MESSAGE if len(set(map(canonical, items))) < len(items) else None

    return check


RULE = Validator(
    "uniqueItems",
    _compile_rule,
    fits=frozenset({PropertyType.ARRAY}),
    keywords=lambda config: {"uniqueItems": config["value"]},
)
