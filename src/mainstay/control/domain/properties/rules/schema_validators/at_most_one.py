"""`atMostOne {properties}`: these properties exclude each other."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from itertools import combinations

from mainstay.control.domain.faults import PathFault
from mainstay.control.domain.properties.contract import Compare, Config, PropertyScope, SchemaValidator
from mainstay.control.domain.properties.lookup import is_set, named_paths, read_properties
from mainstay.control.domain.values import Properties


def _compile_rule(config: Config, scope: PropertyScope) -> Compare | None:
    choices = read_properties(config, "properties", scope, at_least=2, compared=False)
    if choices is None:
        return None
    message = f"at most one of [{', '.join(choice.path for choice in choices)}] may be set"

    def compare(properties: Properties) -> list[PathFault]:
        found = [choice for choice in choices if is_set(properties, choice)]
        return [PathFault(choice.path, message) for choice in found[1:]]

    return compare


def _keywords(config: Mapping[str, object], present: Callable[[str], Properties]) -> Properties:
    pairs = combinations(named_paths(config), 2)
    return {"allOf": [{"not": {"allOf": [present(left), present(right)]}} for left, right in pairs]}


RULE = SchemaValidator("atMostOne", _compile_rule, _keywords)
