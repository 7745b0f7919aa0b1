"""Reads `control` and `health_checks`. Loaded by manifests that use them."""

from __future__ import annotations

from mainstay.converge.command_words import join_words
from mainstay.converge.contract import HealthCheck, Property
from mainstay.converge.manifest.expressions import BadExpression, Expression, holds_secret, split
from mainstay.converge.value_kinds import DURATION_SECONDS, TEXT, TRIES, describe, to_text
from mainstay.foundation.text import shorten
from mainstay.foundation.yaml.scalars import PlainScalar

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from typing import Any

    from mainstay.converge.manifest.resource_reading import ResourceReading
    from mainstay.foundation.faults import DocumentPath
    from mainstay.foundation.yaml.scalars import Node

# Properties of every health check; those of a kind are in its file.
HEALTH_CHECK: dict[str, Property] = {
    "name": Property(TEXT, "name of the check; default: the value of its kind"),
    "tries": Property(TRIES, "number of tries; default 1"),
    "try_sleep": Property(DURATION_SECONDS, "pause between two tries; default `1s`"),
    "timeout": Property(DURATION_SECONDS, "time limit of one try"),
}


# ---- control ----
def read_control(reading: ResourceReading, node: Node, path: DocumentPath, prefix: str) -> None:
    if not isinstance(node, dict):
        reading.faults.add(path, f"{prefix}control must be a map with `if` or `unless`, got {describe(node)}")
        return
    for key, child in node.items():
        place = (*path, key)
        if key not in ("if", "unless"):
            reading.faults.unknown_key(key, place, ("if", "unless"), f"{prefix}control: ")
            continue
        expression = _read_condition(reading, child, place, f"{prefix}control.{key}")
        if expression is not None:
            reading.given[f"control_{key}"] = expression


def _read_condition(reading: ResourceReading, node: Node, path: DocumentPath, name: str) -> Expression | None:
    if isinstance(node, PlainScalar) and isinstance(node.value, bool):
        node = node.text.lower()
    if not isinstance(node, str):
        reading.faults.add(path, f"{name} must be an expression, got {describe(node)}")
        return None
    if "${" in node and reading.refuse_foreign(node, path, f"{name}: "):
        return None
    try:
        expression = _as_expression(node)
        expression.check()
    except BadExpression as error:
        reading.faults.add(path, f"{name}: {error}")
        return None
    problems = reading.check_in_run(path, f"{name}: ").expression_problems(expression)
    reading.values(private=reading.declares_sensitive).add_problems(problems, path, f"{name}: ")
    return expression


def _as_expression(text: str) -> Expression:
    """Parses an expression with or without its braces."""
    stripped = text.strip()
    if not stripped.startswith("{{"):
        return Expression(stripped)
    parts = split(stripped)
    if len(parts) != 1 or not isinstance(parts[0], Expression):
        raise BadExpression(f"expected one expression, got {shorten(text)!r}")
    return parts[0]


# ---- health checks ----
def read_health_checks(
    reading: ResourceReading, node: Node, path: DocumentPath, prefix: str
) -> tuple[HealthCheck, ...]:
    if not isinstance(node, list):
        reading.faults.add(path, f"{prefix}expected a list, got {describe(node)}")
        return ()
    checks = []
    for index, item in enumerate(node):
        place = (*path, index)
        if not isinstance(item, dict):
            kinds = _choice(reading.reader.health_check_kinds())
            reading.faults.add(place, f"{prefix}each check is a map with {kinds}, got {describe(item)}")
            continue
        check = _read_health_check(reading, item, place, prefix, f"health check {index + 1}")
        if check is not None:
            checks.append(check)
    return tuple(checks)


def _read_health_check(
    reading: ResourceReading, item: dict[str, Node], path: DocumentPath, prefix: str, private_name: str
) -> HealthCheck | None:
    faults, kinds = reading.faults, reading.reader.health_check_kinds()
    before = faults.seen
    found = [kind for name, kind in kinds.items() if name in item]
    own = {name: entry for kind in found or kinds.values() for name, entry in kind.properties.items()}
    values = _read_check_values(reading, item, {**own, **HEALTH_CHECK}, path, prefix, _choice(kinds))
    if faults.seen == before and (len(found) != 1 or values.get(found[0].name) is None):
        problem = "a check needs" if len(found) <= 1 else "a check has one of"
        faults.add(path, f"{prefix}{problem} {_choice(kinds)}")
    if faults.seen > before:
        return None
    main = values[found[0].name]
    shown = join_words(main) if isinstance(main, tuple) else to_text(main)
    given = {name: values[name] for name in own if values.get(name) is not None}
    reading.has_secret_check = reading.has_secret_check or any(own[name].secret for name in given)
    return HealthCheck(
        found[0],
        given,
        name=values.get("name") or (private_name if holds_secret(main) else shown),
        tries=values.get("tries") or 1,
        try_sleep_seconds=values.get("try_sleep") or 1.0,
        timeout_seconds=values.get("timeout"),
    )


def _read_check_values(
    reading: ResourceReading,
    item: dict[str, Node],
    table: Mapping[str, Property],
    path: DocumentPath,
    prefix: str,
    choice: str,
) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, node in item.items():
        place = (*path, key)
        if key.startswith("goss"):
            reading.faults.add(place, f"{prefix}`{key}` is not supported; use {choice}", at_key=True)
        elif key not in table:
            reading.faults.unknown_key(key, place, table, prefix)
        else:
            values = reading.values(private=reading.declares_sensitive or table[key].secret)
            found[key] = reading.read_value(table[key], node, place, f"{prefix}{key}: ", values)
    return found


def _choice(kinds: Iterable[str]) -> str:
    return " or ".join(f"`{name}`" for name in kinds)
