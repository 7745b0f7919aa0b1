"""`exactlyOne {properties}`: exactly one of these properties is set."""

from __future__ import annotations

from mainstay.control.domain.faults import PathFault
from mainstay.control.domain.properties.contract import Compare, Config, PropertyScope, SchemaValidator
from mainstay.control.domain.properties.lookup import is_set, named_paths, read_properties
from mainstay.control.domain.values import Properties


def _compile_rule(config: Config, scope: PropertyScope) -> Compare | None:
    choices = read_properties(config, "properties", scope, at_least=2, compared=False)
    if choices is None:
        return None
    fault = PathFault(choices[0].path, f"exactly one of [{', '.join(choice.path for choice in choices)}] must be set")

    def compare(properties: Properties) -> list[PathFault]:
        return [] if sum(is_set(properties, choice) for choice in choices) == 1 else [fault]

    return compare


RULE = SchemaValidator(
    "exactlyOne", _compile_rule, lambda config, present: {"oneOf": [present(path) for path in named_paths(config)]}
)
