"""Values of pools in a plane file: plain values, ranges of integers, and `{value, name}` where the name is another text."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from mainstay.cli.views.tables import format_value

# (value, name)
NamedValue = tuple[Any, str]


SHORTEST_RANGE = 3
MAX_VALUES = 100_000


class UnfitValues(Exception):
    """The list of values cannot be read; the message says why. `index` of the item at fault; None: of the list."""

    def __init__(self, message: str, index: int | None = None) -> None:
        super().__init__(message)
        self.index = index


def write_values(values: Sequence[NamedValue], property_type: str) -> list[Any]:
    """The values as a list for a file, in their order. Runs of integers become ranges."""
    written: list[Any] = []
    run: list[int] = []

    def end_run() -> None:
        written.extend([f"{run[0]}-{run[-1]}"] if len(run) >= SHORTEST_RANGE else run)
        run.clear()

    for value, name in values:
        plain = property_type != "json" and name == format_value(value)
        if plain and property_type == "integer" and value >= 0:
            if run and value != run[-1] + 1:
                end_run()
            run.append(value)
            continue
        end_run()
        written.append(value if plain else {"value": value, "name": name})
    end_run()
    return written


def read_values(written: Any, property_type: str) -> list[NamedValue]:
    """Raises `UnfitValues`."""
    if not isinstance(written, list):
        raise UnfitValues("must be a list")
    found: list[NamedValue] = []
    seen: set[str] = set()
    for index, each in enumerate(written):
        try:
            read = _read(each, property_type)
        except UnfitValues as problem:
            raise UnfitValues(str(problem), index) from None
        for value, _ in read:
            key = value_key(value)
            if key in seen:
                raise UnfitValues(f"contains {format_value(value)} twice", index)
            seen.add(key)
        found += read
        if len(found) > MAX_VALUES:
            raise UnfitValues(f"has more than {MAX_VALUES} values")
    return found


def index_of(written: Any, value: Any, property_type: str) -> int | None:
    """Which item of a list that can be read contains the value."""
    key = value_key(value)
    for index, each in enumerate(written):
        if any(value_key(found) == key for found, _ in _read(each, property_type)):
            return index
    return None


def _read(each: Any, property_type: str) -> list[NamedValue]:
    if isinstance(each, dict):
        if "value" not in each or not each.keys() <= {"value", "name"} or not isinstance(each.get("name", ""), str):
            raise UnfitValues("an object in it must have `value`, and may have `name`")
        return [(each["value"], each.get("name") or format_value(each["value"]))]
    if each is None or isinstance(each, list) or property_type == "json":
        raise UnfitValues("must contain plain values, or objects with `value`")
    if property_type == "integer" and isinstance(each, str):
        first, dash, last = each.partition("-")
        if not (dash and first.isascii() and first.isdecimal() and last.isascii() and last.isdecimal()):
            raise UnfitValues(f"{each!r} is neither an integer nor a range such as 8100-8199")
        low, high = int(first[:20]), int(last[:20])
        if not 0 <= high - low < MAX_VALUES:
            raise UnfitValues(f"{each} is not a range of 1 to {MAX_VALUES} values")
        return [(number, str(number)) for number in range(low, high + 1)]
    return [(each, format_value(each))]


def value_key(value: Any) -> str:
    """Equal for equal JSON values."""
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    return json.dumps(value, sort_keys=True)
