"""Documents as JSON values: YAML or JSON text, read strictly, with the place of every fault.

Manifests are read as nodes instead (`yaml/document.py`), because their text properties keep how a scalar is written.
A scalar means the same in both.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from math import isfinite

from mainstay.foundation import Any
from mainstay.foundation.faults import DocumentPath, DoesNotLoad, Fault
from mainstay.foundation.yaml.document import locate, nearest_place, parse
from mainstay.foundation.yaml.scalars import DEEPEST_NESTING, TOO_MANY_DIGITS, overlong_numbers, to_value

MOST_NUMBERS_REPORTED = 100
TOO_DEEP = f"nested more than {DEEPEST_NESTING} levels deep"
NOT_A_NUMBER = "JSON has neither infinity nor NaN; write a number, or quote the text"


def read_yaml(text: str, file: str) -> Any:
    """Returns the JSON value of one YAML document; raises `DoesNotLoad` with every fault found."""
    value = read_yaml_values(text, file)
    _refuse_numbers(_non_finite_numbers(value, ()), NOT_A_NUMBER, text, file)
    return value


def read_yaml_values(text: str, file: str) -> Any:
    """Like `read_yaml`, but infinity and NaN are numbers, as in the `data` of a manifest."""
    node = parse(text, file)
    _refuse_numbers(overlong_numbers(node), TOO_MANY_DIGITS, text, file)
    return to_value(node)


def _refuse_numbers(paths: Iterator[DocumentPath], problem: str, text: str, file: str) -> None:
    found = list(islice(paths, MOST_NUMBERS_REPORTED))
    if found:
        places = locate(text, found)
        raise DoesNotLoad([Fault(file, *nearest_place(places, path), problem) for path in found])


def read_json(text: str, file: str) -> Any:
    """Returns the value of one JSON document; raises `DoesNotLoad`."""
    from json import JSONDecodeError, loads

    try:
        value = loads(text, object_pairs_hook=_refuse_duplicates)
        if next(_non_finite_numbers(value, ()), None) is not None:
            raise ValueError(NOT_A_NUMBER)
    except JSONDecodeError as error:
        raise DoesNotLoad([Fault(file, error.lineno, error.colno, f"not valid JSON: {error.msg}")]) from None
    except RecursionError:
        raise DoesNotLoad([Fault(file, 1, 1, f"not valid JSON: {TOO_DEEP}")]) from None
    except ValueError as error:
        raise DoesNotLoad([Fault(file, 1, 1, f"not valid JSON: {error}")]) from None
    return value


def _refuse_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, value in pairs:
        if key in found:
            raise ValueError(f"duplicate key {key!r}")
        found[key] = value
    return found


def _non_finite_numbers(value: Any, path: DocumentPath) -> Iterator[DocumentPath]:
    if isinstance(value, float) and not isfinite(value):
        yield path
    elif isinstance(value, (dict, list)):
        if len(path) > DEEPEST_NESTING:
            raise ValueError(TOO_DEEP)
        for step, child in value.items() if isinstance(value, dict) else enumerate(value):
            yield from _non_finite_numbers(child, (*path, step))
