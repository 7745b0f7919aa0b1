"""Example orders of a blueprint, used by `mainstay blueprint test`."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from mainstay.agent.blueprint import read_map
from mainstay.converge.host.state import list_names
from mainstay.converge.value_kinds import describe
from mainstay.foundation.faults import DoesNotLoad, Fault

FOLDER = "orders"
KEYS = ("description", "properties", "change", "pools", "options")


class ExampleOrder:
    """`change`: the properties of an update. `pools` and `options`: values that the provider offers, by type."""

    def __init__(self, path: str, found: Mapping[str, Any]) -> None:
        self.path = path
        self.name = os.path.splitext(os.path.basename(path))[0]
        self.properties: dict[str, Any] = found.get("properties") or {}
        self.change: dict[str, Any] = found.get("change") or {}
        self.pools: dict[str, list[Any]] = found.get("pools") or {}
        self.options: dict[str, list[Any]] = found.get("options") or {}


def read_orders(directory: str) -> list[ExampleOrder]:
    """Raises `DoesNotLoad` with the faults of all orders."""
    faults: list[Fault] = []
    orders = []
    folder = os.path.join(directory, FOLDER)
    for name in sorted(list_names(folder)):
        if not name.endswith((".yaml", ".yml")):
            continue
        try:
            orders.append(_read_order(os.path.join(folder, name)))
        except DoesNotLoad as refusal:
            faults += refusal.faults
    if faults:
        raise DoesNotLoad(faults)
    return orders


def _read_order(path: str) -> ExampleOrder:
    found, faults = read_map(path)
    for key, value in found.items():
        if key not in KEYS:
            faults.unknown_key(key, (key,), KEYS)
        elif key != "description" and not isinstance(value, dict):
            faults.add((key,), f"{key} must be a map, got {describe(value)}")
        elif key in ("pools", "options"):
            for name, values in value.items():
                if not isinstance(values, list):
                    faults.add((key, name), f"{key}.{name} must be a list of values, got {describe(values)}")
    faults.raise_if_any()
    return ExampleOrder(path, found)
