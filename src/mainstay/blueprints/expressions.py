"""Finds the lookups in the expressions of a manifest without evaluating them: all branches count. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

import jinja2
from jinja2 import nodes

from mainstay.converge.manifest.expressions import Expression, split
from mainstay.converge.manifest.sandbox import environment
from mainstay.converge.manifest.scope import BadExpression

ROOTS = ("properties", "service", "job", "instance", "data", "facts", "environ", "each")
# Spellings of the roots in expressions.
NAMES = {name: name for name in ROOTS} | {name.capitalize(): name for name in ROOTS}
# Filters after which a value has no syntax of its own in the text around it.
ESCAPES = frozenset(("quote", "line", "tojson"))
NUMBERS = frozenset(("abs", "count", "float", "int", "length", "round", "wordcount"))
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


class Flow(NamedTuple):
    """A lookup whose value reaches the text that an expression gives."""

    use: Use
    # The filter that makes the value safe; None if the value is written as it is.
    escape: str | None


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
        tree = _parse(source)
        if tree is not None:
            yield from self._visit(tree, template, depth, guarded=False)

    def included(self, node: nodes.Node, depth: int) -> Iterator[tuple[str, str]]:
        """(name, text) of each template that the node includes."""
        for name in _included(node):
            content = self._read(name) if depth < DEEPEST_INCLUDE else None
            if content is not None:
                yield name, content

    def uses_below(self, node: nodes.Node, template: str | None, depth: int) -> list[Use]:
        return list(self._visit(node, template, depth, guarded=False))

    def _visit(self, node: nodes.Node, template: str | None, depth: int, *, guarded: bool) -> Iterator[Use]:
        found = _path_of(node)
        if found is not None and found[0][0] in ROOTS:
            path, has_default = found
            yield Use(path, has_default or guarded, node.lineno - 1, template)
            if isinstance(node, nodes.Call):
                for argument in node.args[1:]:
                    yield from self._visit(argument, template, depth, guarded=guarded)
            return
        if isinstance(node, nodes.Filter) and node.name in ("default", "d"):
            guarded = True
        if isinstance(node, nodes.Test) and node.name in ("defined", "undefined"):
            guarded = True
        for name, content in self.included(node, depth):
            yield from self._parsed(content, name, depth + 1)
        for child in node.iter_child_nodes():
            yield from self._visit(child, template, depth, guarded=guarded)


class FlowReader:
    """Finds the lookups whose values reach a text. A condition or comparison uses a value without showing it."""

    def __init__(self, reader: Reader) -> None:
        self._reader = reader
        # Lookups behind the variables of loops and assignments in a template.
        self._bound: dict[str, list[Use]] = {}

    def flows(self, source: str) -> list[Flow]:
        """The flows of one expression, without its braces."""
        return list(self._parsed(f"{{{{{source}}}}}", None, 0))

    def _parsed(self, source: str, template: str | None, depth: int) -> Iterator[Flow]:
        tree = _parse(source)
        if tree is not None:
            yield from self._walk(tree, template, depth)

    def _walk(self, node: nodes.Node, template: str | None, depth: int) -> Iterator[Flow]:
        """The flows of statements."""
        if isinstance(node, nodes.Output):
            for expression in node.nodes:
                yield from self._flow(expression, template, depth)
            return
        if isinstance(node, nodes.For):
            self._bind(node.target, node.iter, template, depth)
        elif isinstance(node, nodes.Assign):
            self._bind(node.target, node.node, template, depth)
        elif isinstance(node, nodes.With):
            for target, value in zip(node.targets, node.values, strict=True):
                self._bind(target, value, template, depth)
        elif isinstance(node, nodes.Include):
            yield from self._included(node, depth)
        for child in node.iter_child_nodes():
            if isinstance(child, (nodes.Stmt, nodes.Template)):
                yield from self._walk(child, template, depth)

    def _bind(self, target: nodes.Node, value: nodes.Node, template: str | None, depth: int) -> None:
        uses = self._uses(value, template, depth)
        names = [target] if isinstance(target, nodes.Name) else list(target.find_all(nodes.Name))
        for name in names:
            self._bound[name.name] = [*self._bound.get(name.name, []), *uses]

    def _included(self, node: nodes.Node, depth: int) -> Iterator[Flow]:
        for name, content in self._reader.included(node, depth):
            yield from self._parsed(content, name, depth + 1)

    def _flow(self, node: nodes.Node, template: str | None, depth: int) -> Iterator[Flow]:
        if isinstance(node, (nodes.Const, nodes.TemplateData, nodes.Compare, nodes.Test, nodes.Not)):
            return
        if isinstance(node, nodes.Filter) and node.node is not None and node.name in ESCAPES:
            yield from (Flow(use, node.name) for use in self._uses(node.node, template, depth))
        elif isinstance(node, nodes.Filter) and node.name in NUMBERS:
            # An argument is the value for a text that is not a number.
            for argument in (*node.args, *(pair.value for pair in node.kwargs)):
                yield from self._flow(argument, template, depth)
        elif isinstance(node, (nodes.CondExpr, nodes.Concat, nodes.And, nodes.Or)) or (
            isinstance(node, nodes.Filter) and node.name in ("default", "d")
        ):
            test = node.test if isinstance(node, nodes.CondExpr) else None
            for child in node.iter_child_nodes():
                if child is not test:
                    yield from self._flow(child, template, depth)
        elif list(_included(node)):
            yield from self._included(node, depth)
        else:
            yield from (Flow(use, None) for use in self._uses(node, template, depth))

    def _uses(self, node: nodes.Node, template: str | None, depth: int) -> list[Use]:
        found = self._reader.uses_below(node, template, depth)
        calls = [node] if isinstance(node, nodes.Call) else []
        for call in (*calls, *node.find_all(nodes.Call)):
            root = _computed_root(call)
            if root is not None:
                found.append(Use((root,), has_default=False, line=call.lineno - 1, template=template))
        names = [node] if isinstance(node, nodes.Name) else node.find_all(nodes.Name)
        return found + [use for name in names for use in self._bound.get(name.name, [])]


def _parse(source: str) -> nodes.Template | None:
    """None if the syntax is wrong, which is reported when the manifest is loaded."""
    try:
        tree: nodes.Template = environment().parse(source)
    except jinja2.TemplateSyntaxError:
        return None
    return tree


def _included(node: nodes.Node) -> Iterator[str]:
    """Templates that are named by a constant."""
    if isinstance(node, nodes.Call) and isinstance(node.node, nodes.Name) and node.node.name == "template":
        for argument in node.args[:1]:
            if isinstance(argument, nodes.Const):
                yield str(argument.value)
    elif isinstance(node, nodes.Include) and isinstance(node.template, nodes.Const):
        yield str(node.template.value)


def _computed_root(call: nodes.Call) -> str | None:
    """What a call may read that no constant path names: any property, or the output of a command."""
    if not isinstance(call.node, nodes.Name) or not call.args:
        return None
    if call.node.name == "result":
        return "result"
    is_computed = call.node.name == "lookup" and not isinstance(call.args[0], nodes.Const)
    return "properties" if is_computed else None


def _path_of(node: nodes.Node) -> tuple[tuple[str, ...], bool] | None:
    """(path, has a default) of an expression that leads to a value; None for other expressions."""
    if isinstance(node, nodes.Name):
        root = NAMES.get(node.name)
        return None if root is None else ((root,), False)
    if isinstance(node, nodes.Getattr):
        return _extend(_path_of(node.node), node.attr)
    if isinstance(node, nodes.Getitem) and isinstance(node.arg, nodes.Const):
        return _extend(_path_of(node.node), str(node.arg.value))
    if not isinstance(node, nodes.Call) or not node.args or not isinstance(node.args[0], nodes.Const):
        return None
    first = str(node.args[0].value)
    if isinstance(node.node, nodes.Name) and node.node.name == "lookup":
        return tuple(first.split(".")), len(node.args) > 1 or bool(node.kwargs)
    if isinstance(node.node, nodes.Getattr) and node.node.attr == "get":
        outer = _path_of(node.node.node)
        return None if outer is None else ((*outer[0], first), True)
    return None


def _extend(outer: tuple[tuple[str, ...], bool] | None, name: str) -> tuple[tuple[str, ...], bool] | None:
    return None if outer is None else ((*outer[0], name), outer[1])
