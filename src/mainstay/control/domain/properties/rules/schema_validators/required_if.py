"""`requiredIf {property, value?, required}`: when a property is set (to this value), the others must be set too."""

from __future__ import annotations

from mainstay.control.domain.faults import PathFault
from mainstay.control.domain.properties.contract import Compare, Config, PropertyScope, SchemaValidator
from mainstay.control.domain.properties.lookup import find_value, is_set, read_properties, read_property
from mainstay.control.domain.values import Properties, equal, json_problem, shown


def _compile_rule(config: Config, scope: PropertyScope) -> Compare | None:
    wanted = config.get("value")
    if json_problem(wanted) is not None:
        config.fault("value", "requiredIf value must be a JSON value")
    condition = read_property(config, "property", scope, compared=wanted is not None)
    required = read_properties(config, "required", scope, at_least=1, compared=False)
    if condition is None or required is None:
        return None
    when = f"{condition.path} is set" if wanted is None else f"{condition.path} is {shown(wanted)}"

    def compare(properties: Properties) -> list[PathFault]:
        found = find_value(properties, condition)
        if found is None or (wanted is not None and not equal(found, wanted)):
            return []
        missing = [named for named in required if not is_set(properties, named)]
        return [PathFault(named.path, f"required field is missing when {when}") for named in missing]

    return compare


RULE = SchemaValidator("requiredIf", _compile_rule)
