"""Scalars of YAML 1.2 (core schema): the meaning of a plain scalar, and the nodes of a document."""

from __future__ import annotations

import re

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any, TypeAlias

    # Maps, lists, text, and plain scalars that may be more than text.
    Node: TypeAlias = "dict[str, Node] | list[Node] | str | PlainScalar"

CORE = re.compile(
    r"(?P<null>null|Null|NULL|~|)|(?P<true>true|True|TRUE)|(?P<false>false|False|FALSE)"
    r"|(?P<int>[-+]?[0-9]+)|(?P<oct>0o[0-7]+)|(?P<hex>0x[0-9a-fA-F]+)"
    r"|(?P<float>[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?|[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN))"
)
# The first characters of such scalars; most texts begin otherwise and need no match.
FIRST_OF_CORE = frozenset("0123456789+-.~tTfFnN")
LONGEST_NUMBER = 300
TOO_MANY_DIGITS = f"the number has more than {LONGEST_NUMBER} digits; quote it if it is text"
# Levels of maps and lists in a document.
DEEPEST_NESTING = 60


class PlainScalar:
    """An unquoted scalar that YAML 1.2 reads as null, boolean or number; `text` is how it was written."""

    __slots__ = ("text", "value")

    def __init__(self, text: str) -> None:
        self.text = text
        self.value = core_value(text)

    def __repr__(self) -> str:
        return f"PlainScalar({self.text!r})"


def core_value(text: str) -> Any:
    """Returns the value of a plain scalar by the YAML 1.2 core schema; the text itself if no rule applies."""
    found = CORE.fullmatch(text)
    if found is None or len(text) > LONGEST_NUMBER:
        return text
    kind = found.lastgroup
    if kind == "null":
        return None
    if kind in ("true", "false"):
        return kind == "true"
    if kind == "float":
        return float(text.lower().replace(".inf", "inf").replace(".nan", "nan"))
    return int(text, {"int": 10, "oct": 8, "hex": 16}[kind or "int"])


def overlong_numbers(node: Node, path: tuple[str | int, ...] = ()) -> Iterator[tuple[str | int, ...]]:
    """Paths of numbers with too many digits, which have no value but their text."""
    if isinstance(node, PlainScalar):
        if isinstance(node.value, str):
            yield path
    elif isinstance(node, (dict, list)):
        for step, child in node.items() if isinstance(node, dict) else enumerate(node):
            if child.__class__ is not str:
                yield from overlong_numbers(child, (*path, step))


def to_value(node: Node) -> Any:
    """Converts a node to the plain value it represents, as in `data`."""
    if node.__class__ is str:
        return node
    if isinstance(node, PlainScalar):
        return node.value
    if isinstance(node, dict):
        return {key: to_value(child) for key, child in node.items()}
    if isinstance(node, list):
        return [to_value(child) for child in node]
    return node
