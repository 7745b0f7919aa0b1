"""What an expression refers to: names, filters, look-ups and results, read from its syntax tree. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from jinja2 import nodes

from mainstay.converge.manifest.scope import Reference, References
from mainstay.foundation import Struct

if TYPE_CHECKING:
    from collections.abc import Iterator

    from jinja2.environment import Environment

# Filters and tests that accept an undefined value.
GUARD_FILTERS = frozenset(("default", "d"))
GUARD_TESTS = frozenset(("defined", "undefined"))


def read_references(expression: nodes.Node, environment: Environment) -> References:
    references = References()
    _Walk(references, environment).visit(expression, in_branch=False, has_default=False)
    return references


class _Walk(Struct):
    references: References
    environment: Environment

    def visit(self, node: nodes.Node, *, in_branch: bool, has_default: bool) -> None:
        # Iterative: an expression may be nested as deeply as Jinja2 can compile it.
        waiting = [(node, in_branch, has_default)]
        while waiting:
            current, conditional, guarded = waiting.pop()
            waiting += reversed(list(self._children(current, in_branch=conditional, has_default=guarded)))

    def _children(
        self, node: nodes.Node, *, in_branch: bool, has_default: bool
    ) -> Iterator[tuple[nodes.Node, bool, bool]]:
        """Notes what `node` itself refers to; yields the nodes below it that are still to be visited."""
        if isinstance(node, (nodes.Name, nodes.Getattr, nodes.Getitem, nodes.Call)):
            reference, below = _reference_of(node)
            if reference is not None:
                reference.in_branch = in_branch
                reference.has_default = reference.has_default or has_default
                self.references.found.append(reference)
            # An argument is used only if the value is undefined, or not at all.
            is_lookup = reference is not None and reference.function is not None
            yield from ((child, in_branch or is_lookup, has_default) for child in below)
            self._note_file(node)
        elif isinstance(node, nodes.CondExpr):
            yield node.test, in_branch, has_default
            yield from ((child, True, has_default) for child in (node.expr1, node.expr2) if child is not None)
        elif isinstance(node, (nodes.And, nodes.Or)):
            yield node.left, in_branch, has_default
            yield node.right, True, has_default
        elif isinstance(node, (nodes.Filter, nodes.Test)):
            yield from self._filtered(node, in_branch=in_branch, has_default=has_default)
        else:
            yield from ((child, in_branch, has_default) for child in node.iter_child_nodes())

    def _filtered(
        self, node: nodes.Filter | nodes.Test, *, in_branch: bool, has_default: bool
    ) -> Iterator[tuple[nodes.Node, bool, bool]]:
        is_filter = isinstance(node, nodes.Filter)
        known = self.environment.filters if is_filter else self.environment.tests
        if node.name not in known:
            (self.references.filters if is_filter else self.references.tests).append(node.name)
        is_guard = node.name in (GUARD_FILTERS if is_filter else GUARD_TESTS)
        for child in node.iter_child_nodes():
            is_value = child is node.node
            yield child, in_branch or (is_guard and not is_value), has_default or (is_guard and is_value)

    def _note_file(self, node: nodes.Node) -> None:
        if not isinstance(node, nodes.Call) or not isinstance(node.node, nodes.Name):
            return
        path = _constant_text(node.args)
        if path is not None and node.node.name == "template":
            self.references.templates.append(path)
        elif path is not None and node.node.name == "file":
            self.references.files.append(path)


def _reference_of(node: nodes.Node) -> tuple[Reference | None, list[nodes.Node]]:
    """The reference that ends in `node`, and the nodes beside it that are visited on their own."""
    steps: list[str | int] = []
    while isinstance(node, (nodes.Getattr, nodes.Getitem)):
        step = node.attr if isinstance(node, nodes.Getattr) else _constant_step(node.arg)
        if step is None:
            # A computed step: only what is above it is known.
            below = [node.arg] if isinstance(node, nodes.Getitem) else []
            reference, beside = _reference_of(node.node)
            return reference, [*beside, *below] if reference is not None else [node.node, *below]
        steps.append(step)
        node = node.node
    path = tuple(reversed(steps))
    if isinstance(node, nodes.Name):
        return Reference(node.name, path), []
    if not isinstance(node, nodes.Call):
        return None, [node]
    called = _called(node, path)
    arguments: list[nodes.Node] = [*node.args, *(pair.value for pair in node.kwargs)]
    if called is not None:
        return called, arguments[1:]
    if isinstance(node.node, nodes.Name):
        return Reference(node.node.name, is_called=True), arguments
    if isinstance(node.node, nodes.Getattr):
        # A method: the value that has it must exist.
        return None, [node.node.node, *arguments]
    return None, [node.node, *arguments]


def _called(call: nodes.Call, steps: tuple[str | int, ...]) -> Reference | None:
    """The reference of `lookup('…')` or `result('…')` with a constant argument."""
    if not isinstance(call.node, nodes.Name) or call.node.name not in ("lookup", "result"):
        return None
    text = _constant_text(call.args)
    if text is None:
        return None
    if call.node.name == "result":
        return Reference(text, steps, function="result")
    name, _, rest = text.partition(".")
    above: tuple[str | int, ...] = tuple(rest.split(".")) if rest else ()
    has_default = len(call.args) > 1 or bool(call.kwargs)
    return Reference(name, (*above, *steps), function="lookup", looked_up=len(above), has_default=has_default)


def _constant_text(arguments: list[nodes.Expr]) -> str | None:
    first = arguments[0] if arguments else None
    return first.value if isinstance(first, nodes.Const) and isinstance(first.value, str) else None


def _constant_step(node: nodes.Node) -> str | int | None:
    value = node.value if isinstance(node, nodes.Const) else None
    return value if isinstance(value, (str, int)) and not isinstance(value, bool) else None
