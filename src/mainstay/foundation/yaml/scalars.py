"""Scalars of YAML 1.2 (core schema): the meaning of a plain scalar, and the nodes of a document."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

from mainstay.foundation import Any, TypeAlias

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
    return (
        place for place, leaf in leaves(node, path) if leaf.__class__ is PlainScalar and isinstance(leaf.value, str)
    )


def node_at(node: Any, path: tuple[str | int, ...]) -> Any:
    """What is at a path below a node; None if there is nothing."""
    for step in path:
        try:
            node = node[step]
        except (KeyError, IndexError, TypeError):
            return None
    return node


def to_value(node: Node) -> Any:
    """Converts a node to the plain value it represents, as in `data`."""
    if node.__class__ is str:
        return node
    return with_leaves(node, lambda leaf: leaf.value if isinstance(leaf, PlainScalar) else leaf)


def leaves(node: Any, path: tuple[str | int, ...] = ()) -> Iterator[tuple[tuple[str | int, ...], Any]]:
    """Everything below a node that is neither a map nor a list, with its path."""
    if isinstance(node, (dict, list)):
        for step, child in node.items() if isinstance(node, dict) else enumerate(node):
            yield from leaves(child, (*path, step))
    else:
        yield path, node


def with_leaves(tree: Any, change: Callable[[Any], Any], *, keys: bool = False) -> Any:
    """The same maps and lists, with `change` applied to everything in them that is neither. `keys`: and to keys."""
    if isinstance(tree, dict):
        return {change(key) if keys else key: with_leaves(child, change, keys=keys) for key, child in tree.items()}
    if isinstance(tree, (list, tuple)):
        return [with_leaves(child, change, keys=keys) for child in tree]
    return change(tree)
