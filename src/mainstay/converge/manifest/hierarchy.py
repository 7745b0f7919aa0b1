"""Merges the data of a host: the manifest's own, then the overrides that its hierarchy names. Pure."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Any

FIRST, DEEP = "first", "deep"


class DataLayer(dict[str, "Any"]):
    """Data from outside the manifest. `origin` names where it comes from, for faults."""

    def __init__(self, values: Mapping[str, Any], origin: str) -> None:
        super().__init__(values)
        self.origin = origin


def apply_hierarchy(
    base: Mapping[str, Any], overrides: Mapping[str, Mapping[str, Any]], order: Sequence[str], merge: str
) -> dict[str, Any]:
    """`first`: the first override that exists, merged shallowly. `deep`: all of them, later wins."""
    chosen = dict(base)
    for key in order:
        if key not in overrides:
            continue
        if merge == FIRST:
            return {**chosen, **overrides[key]}
        chosen = merge_deep(chosen, overrides[key])
    return chosen


def merge_deep(under: Mapping[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    """Merges maps key by key, concatenates lists, and replaces anything else."""
    merged = dict(under)
    for key, value in over.items():
        existing = merged.get(key)
        if isinstance(existing, dict) and isinstance(value, dict):
            merged[key] = merge_deep(existing, value)
        elif isinstance(existing, list) and isinstance(value, list):
            merged[key] = existing + value
        else:
            merged[key] = value
    return merged


def overlay(under: Mapping[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    """Like `merge_deep`, but a later list replaces an earlier list, as with `--data` and `--set`."""
    merged = dict(under)
    for key, value in over.items():
        existing = merged.get(key)
        merged[key] = overlay(existing, value) if isinstance(existing, dict) and isinstance(value, dict) else value
    return merged


def nest(key: str, value: Any) -> dict[str, Any]:
    """`a.b` = 1 as {a: {b: 1}}."""
    nested: Any = value
    for part in reversed(key.split(".")):
        nested = {part: nested}
    result: dict[str, Any] = nested
    return result
