"""Finds the lookups in the expressions of a manifest without evaluating them: all branches count. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import jinja2
from jinja2 import nodes

from mainstay.converge.manifest.expressions import BadExpression, Expression, environment, split

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from mainstay.foundation.faults import DocumentPath
    from mainstay.foundation.yaml.scalars import Node

ROOTS = ("properties", "service", "job", "instance", "data", "facts", "environ")
# Spellings of the roots in expressions.
NAMES = {name: name for name in ROOTS} | {name.capitalize(): name for name in ROOTS}
# Limit for templates that include templates.
DEEPEST_INCLUDE = 10


class Use(NamedTuple):
    """One lookup: the path with the root first, and whether it has a default."""

    path: tuple[str, ...]
    has_default: bool
    # Line offset in the text that contains it.
    line: int
    # The template that contains it; None is the manifest itself.
    template: str | None = None


class Text(NamedTuple):
    """A text with expressions in a manifest, and its path."""

    path: DocumentPath
    text: str
    at_key: bool = False
    # An expression without braces, as in `control`.
    is_bare: bool = False


def texts_in(node: Node, path: DocumentPath = ()) -> Iterator[Text]:
    if isinstance(node, dict):
        for key, child in node.items():
            if "{{" in key:
                yield Text((*path, key), key, at_key=True)
            yield from texts_in(child, (*path, key))
    elif isinstance(node, list):
        for index, child in enumerate(node):
            yield from texts_in(child, (*path, index))
    elif isinstance(node, str):
        in_control = len(path) > 1 and path[-2] == "control" and path[-1] in ("if", "unless")
        if "{{" in node or in_control:
            yield Text(path, node, is_bare=in_control and "{{" not in node)


class Reader:
    """Finds uses. `read` returns the text of a template by its path in the manifest, None if there is none."""

    def __init__(self, read: Callable[[str], str | None]) -> None:
        self._read = read

    def uses(self, text: str, *, is_bare: bool = False) -> list[Use]:
        """The lookups in a text of a manifest. Syntax errors are reported when the manifest is loaded."""
        try:
            parts: list[str | Expression] = [Expression(text)] if is_bare else split(text)
        except BadExpression:
            return []
        found: list[Use] = []
        line = 0
        for part in parts:
            if isinstance(part, Expression):
                for use in self._parsed(f"{{{{{part.source}}}}}", None, 0):
                    found.append(use if use.template else use._replace(line=line + use.line))
                line += part.source.count("\n")
            else:
                line += part.count("\n")
        return found

    def _parsed(self, source: str, template: str | None, depth: int) -> Iterator[Use]:
        try:
            tree = environment().parse(source)
        except jinja2.TemplateSyntaxError:
            return
        yield from self._visit(tree, template, depth, guarded=False)

    def _visit(self, node: nodes.Node, template: str | None, depth: int, *, guarded: bool) -> Iterator[Use]:
        found = _path_of(node)
        if found is not None and found[0][0] in ROOTS:
            path, has_default, is_lookup = found
            # A lookup of a missing value fails before a `default` filter runs.
            has_default = has_default or (guarded and not is_lookup)
            yield Use(path, has_default, node.lineno - 1, template)
            if isinstance(node, nodes.Call):
                for argument in node.args[1:]:
                    yield from self._visit(argument, template, depth, guarded=guarded)
            return
        if isinstance(node, nodes.Filter) and node.name in ("default", "d"):
            guarded = True
        if isinstance(node, nodes.Test) and node.name in ("defined", "undefined"):
            guarded = True
        for name in _included(node):
            content = self._read(name) if depth < DEEPEST_INCLUDE else None
            if content is not None:
                yield from self._parsed(content, name, depth + 1)
        for child in node.iter_child_nodes():
            yield from self._visit(child, template, depth, guarded=guarded)


def _included(node: nodes.Node) -> Iterator[str]:
    """Templates that are named by a constant."""
    if isinstance(node, nodes.Call) and isinstance(node.node, nodes.Name) and node.node.name == "template":
        for argument in node.args[:1]:
            if isinstance(argument, nodes.Const):
                yield str(argument.value)
    elif isinstance(node, nodes.Include) and isinstance(node.template, nodes.Const):
        yield str(node.template.value)


def _path_of(node: nodes.Node) -> tuple[tuple[str, ...], bool, bool] | None:
    """(path, has a default, is a `lookup` call) of an expression that leads to a value; None for other expressions."""
    if isinstance(node, nodes.Name):
        root = NAMES.get(node.name)
        return None if root is None else ((root,), False, False)
    if isinstance(node, nodes.Getattr):
        return _extend(_path_of(node.node), node.attr)
    if isinstance(node, nodes.Getitem) and isinstance(node.arg, nodes.Const):
        return _extend(_path_of(node.node), str(node.arg.value))
    if not isinstance(node, nodes.Call) or not node.args or not isinstance(node.args[0], nodes.Const):
        return None
    first = str(node.args[0].value)
    if isinstance(node.node, nodes.Name) and node.node.name == "lookup":
        return tuple(first.split(".")), len(node.args) > 1 or bool(node.kwargs), True
    if isinstance(node.node, nodes.Getattr) and node.node.attr == "get":
        outer = _path_of(node.node.node)
        return None if outer is None else ((*outer[0], first), True, outer[2])
    return None


def _extend(outer: tuple[tuple[str, ...], bool, bool] | None, name: str) -> tuple[tuple[str, ...], bool, bool] | None:
    return None if outer is None else ((*outer[0], name), outer[1], outer[2])
