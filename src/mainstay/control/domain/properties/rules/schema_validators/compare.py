"""`compare {left, operator, right}`: the relation that two properties must have when both are set."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

from mainstay.control.domain.faults import PathFault
from mainstay.control.domain.properties.contract import (
    Compare,
    Config,
    NamedProperty,
    PropertyScope,
    PropertyType,
    SchemaValidator,
)
from mainstay.control.domain.properties.lookup import find_value, read_property
from mainstay.control.domain.values import Properties, equal

# The schema is checked for types without an order, so values can be compared here.
OPERATORS: dict[str, tuple[str, Callable[[Any, Any], bool]]] = {
    "<": ("less than", operator.lt),
    "<=": ("less than or equal to", operator.le),
    ">": ("greater than", operator.gt),
    ">=": ("greater than or equal to", operator.ge),
    "==": ("equal to", equal),
    "!=": ("different from", lambda left, right: not equal(left, right)),
}
ORDERED = {
    PropertyType.INTEGER: "number",
    PropertyType.NUMBER: "number",
    PropertyType.STRING: "string",
}


def _compile_rule(config: Config, scope: PropertyScope) -> Compare | None:
    left = read_property(config, "left", scope, compared=True)
    right = read_property(config, "right", scope, compared=True)
    symbol = config.get("operator")
    if type(symbol) is not str or symbol not in OPERATORS:
        config.fault("operator", f"compare operator must be one of: {' '.join(OPERATORS)}")
        return None
    if left is None or right is None:
        return None
    if symbol not in ("==", "!=") and not _have_an_order(left, right):
        config.fault(
            "operator", f"{left.path} and {right.path} cannot be ordered: compare two numbers or two strings"
        )
        return None
    words, relation = OPERATORS[symbol]
    fault = PathFault(left.path, f"value must be {words} {right.path}")

    def compare(properties: Properties) -> list[PathFault]:
        first, second = find_value(properties, left), find_value(properties, right)
        return [] if first is None or second is None or relation(first, second) else [fault]

    return compare


def _have_an_order(left: NamedProperty, right: NamedProperty) -> bool:
    return left.type in ORDERED and ORDERED[left.type] == ORDERED.get(right.type)


RULE = SchemaValidator("compare", _compile_rule)
