"""`uniqueValues {properties}`: no two of these properties have the same value."""

from __future__ import annotations

from mainstay.control.domain.faults import PathFault
from mainstay.control.domain.properties.contract import Compare, Config, PropertyScope, SchemaValidator
from mainstay.control.domain.properties.lookup import find_value, read_properties
from mainstay.control.domain.values import Properties, canonical


def _compile_rule(config: Config, scope: PropertyScope) -> Compare | None:
    compared = read_properties(config, "properties", scope, at_least=2, compared=True)
    if compared is None:
        return None

    def compare(properties: Properties) -> list[PathFault]:
        owners: dict[object, str] = {}
        faults = []
        for named in compared:
            value = find_value(properties, named)
            if value is None:
                continue
            owner = owners.setdefault(canonical(value), named.path)
            if owner != named.path:
                faults.append(PathFault(named.path, f"value must differ from {owner}"))
        return faults

    return compare


RULE = SchemaValidator("uniqueValues", _compile_rule)
