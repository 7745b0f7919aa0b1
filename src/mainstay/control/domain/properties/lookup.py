"""Property paths in schema validators (`databaseConfig.port`): parsing, and the values in a document."""

from __future__ import annotations

from collections.abc import Mapping

from mainstay.control.domain.properties.contract import Config, NamedProperty, PropertyScope, Unknown
from mainstay.control.domain.values import Properties


def find_value(properties: Properties, named: NamedProperty) -> object | None:
    """The value. None: the property or an enclosing object is not set, or the value is unknown."""
    value = _walk(properties, named)
    return None if isinstance(value, Unknown) else value


def is_set(properties: Properties, named: NamedProperty) -> bool:
    return _walk(properties, named) is not None


def _walk(properties: Properties, named: NamedProperty) -> object | None:
    value: object = properties
    for name in named.names:
        if not isinstance(value, dict):
            return None
        value = value.get(name)
    return value


def read_property(config: Config, key: str, scope: PropertyScope, *, compared: bool) -> NamedProperty | None:
    path = config.string(key)
    return None if path is None else _resolve(config, key, path, scope, compared=compared)


def read_properties(
    config: Config, key: str, scope: PropertyScope, *, at_least: int, compared: bool
) -> tuple[NamedProperty, ...] | None:
    paths = config.strings(key)
    if paths is None:
        return None
    if len(paths) < at_least:
        config.fault(key, f"{config.rule} {key} must name at least {at_least} properties")
        return None
    found = [_resolve(config, key, path, scope, compared=compared) for path in paths]
    complete = tuple(named for named in found if named is not None)
    return complete if len(complete) == len(found) else None


def _resolve(config: Config, key: str, path: str, scope: PropertyScope, *, compared: bool) -> NamedProperty | None:
    named = scope.find(path)
    if named is None:
        config.fault(key, f"unknown property '{path}'")
    elif compared and named.secret:
        # The result would reveal the secret, and the stored value is only a reference to it.
        config.fault(key, f"'{path}' is a secret, so its value cannot be compared")
        return None
    return named


def named_paths(config: Mapping[str, object]) -> list[str]:
    """The properties that a checked configuration names, without duplicates."""
    paths = config["properties"]
    return list(dict.fromkeys(paths)) if isinstance(paths, list) else []
