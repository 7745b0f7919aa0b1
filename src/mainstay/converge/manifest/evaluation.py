"""Compiles and evaluates expressions, and renders the files of `template()`, with the Jinja2 of `sandbox.py`."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import lru_cache
from itertools import islice
from typing import Any, Literal

import jinja2
from jinja2 import nodes
from jinja2.environment import TemplateExpression
from jinja2.parser import Parser

from mainstay.converge.contract import NO_SECRET
from mainstay.converge.failures import Failure, Missing
from mainstay.converge.manifest.references import read_references
from mainstay.converge.manifest.sandbox import Budget, RootView, TemplateFunction, environment
from mainstay.converge.manifest.scope import (
    MISSING,
    MOST_ITEMS,
    NOT_RENDERED,
    BadExpression,
    FollowUp,
    References,
    TemplateScope,
    UndefinedValue,
    Unresolved,
    quoted,
)
from mainstay.converge.value_kinds import to_text
from mainstay.foundation.faults import DoesNotLoad
from mainstay.foundation.suggestions import did_you_mean
from mainstay.foundation.text import Tainted, shorten

# Operators of other languages: pattern, name, and what to write instead.
FOREIGN = (
    (r"&&", "&&", "and"),
    (r"\|\|", "||", "or"),
    (r"\$\{", "${", "{{ … }}"),
    (r"\?\?", "??", "value | default(other)"),
    (r"\?\.", "?.", "value | default(other)"),
    (r"\?", "?:", "a if condition else b"),
    (r"===", "===", "=="),
    (r"!==", "!==", "!="),
    (r"!(?!=)", "!", "not"),
)
# What Jinja2 calls text after a whole expression.
TEXT_AFTER = "chunk after expression"
LONGEST_EXPRESSION = 20_000
LARGEST_NUMBER = 10**300
HIDDEN_REASON = "the evaluation fails on a secret value"


@lru_cache(maxsize=4096)
def compile_expression(source: str) -> tuple[Callable[..., Any], References]:
    """The function that evaluates the expression, and what it refers to: parsed once for both."""
    if not source.strip():
        raise BadExpression("the expression between {{ and }} is empty")
    if len(source) > LONGEST_EXPRESSION:
        raise BadExpression(f"the expression is longer than {LONGEST_EXPRESSION} characters: {quoted(source)}")
    try:
        return _compiled(source)
    except (RecursionError, MemoryError):
        raise BadExpression(f"the expression is too large: {quoted(source)}") from None
    except (jinja2.TemplateSyntaxError, SyntaxError, ValueError) as error:
        message = shorten(getattr(error, "message", None) or str(error), 200)
        message = _foreign_operator(source, is_assigned=message == TEXT_AFTER) or message
        raise BadExpression(f"{reword(message)} in {quoted(source)}") from None


def _compiled(source: str) -> tuple[Callable[..., Any], References]:
    """Like `Environment.compile_expression`, and reads from the same syntax tree what the expression refers to."""
    sandbox = environment()
    parser = Parser(sandbox, source, state="variable")
    try:
        tree = parser.parse_expression()
        if not parser.stream.eos:
            raise jinja2.TemplateSyntaxError(TEXT_AFTER, parser.stream.current.lineno, None, None)
        tree.set_environment(sandbox)
    except jinja2.TemplateSyntaxError:
        sandbox.handle_exception(source=source)
    references = read_references(tree, sandbox)
    body: list[nodes.Node] = [nodes.Assign(nodes.Name("result", "store"), tree, lineno=1)]
    template = sandbox.from_string(nodes.Template(body, lineno=1))
    return TemplateExpression(template, undefined_to_none=False), references


def _foreign_operator(source: str, *, is_assigned: bool) -> str | None:
    """The first operator of another language outside quotes, with what to write instead.

    `=` is also part of a call; `is_assigned` says that the fault is text after an expression."""
    bare = re.sub(r"'[^']*'|\"[^\"]*\"", "", source)
    for pattern, foreign, ours in FOREIGN:
        if re.search(pattern, bare):
            return f"{foreign} is not supported; write `{ours}`"
    if is_assigned and re.search(r"(?<![=!<>])=(?!=)", bare):
        return "= is not supported; write `==`"
    return None


def reword(message: str) -> str:
    """Replaces internal terms in a message of Jinja2, and suggests the name of a filter."""
    message = message.removesuffix(".")
    if "end of template" in message:
        return "the expression ends too early"
    if message == TEXT_AFTER:
        return "unexpected text after the expression"
    kind, found, name = message.partition(" named ")
    if found and kind in ("No filter", "No test"):
        known = environment().filters if kind == "No filter" else environment().tests
        return f"unknown {kind[3:]} {name}" + did_you_mean(name.strip("'"), known)
    return message


def is_quoted(source: str) -> bool:
    """Whether every part of the text that an expression gives is constant or ends in the filter `quote`."""
    output = environment().parse(f"{{{{{source}}}}}").body[0]
    return all(_is_quoted_node(node) for node in output.iter_child_nodes())


def _is_quoted_node(node: nodes.Node) -> bool:
    if isinstance(node, nodes.CondExpr):
        return _is_quoted_node(node.expr1) and (node.expr2 is None or _is_quoted_node(node.expr2))
    if isinstance(node, nodes.Concat):
        return all(_is_quoted_node(child) for child in node.nodes)
    return isinstance(node, nodes.Const) or (isinstance(node, nodes.Filter) and node.name == "quote")


def render_file(source: str, name: str, scope: TemplateScope, read: Callable[[str], str]) -> str:
    """Renders a file for `template()`: full Jinja2, with includes from the working directory."""

    def load(wanted: str) -> tuple[str, str, Callable[[], bool]]:
        return source if wanted == name else read(wanted), wanted, lambda: True

    # Jinja2 makes all line ends the same; keep those of the file.
    line_end: Literal["\n", "\r\n"] = "\r\n" if "\r\n" in source else "\n"
    sandbox = environment().overlay(loader=jinja2.FunctionLoader(load), newline_sequence=line_end)
    try:
        with sandbox.watched_by(scope):
            rendered: str = sandbox.get_template(name).render(_names(scope))
    except (Unresolved, Failure, DoesNotLoad):
        raise
    except jinja2.TemplateSyntaxError as error:
        raise Unresolved(
            f"template {error.name or name}, line {error.lineno}: {reword(error.message or '')}"
        ) from None
    except Exception as error:  # noqa: BLE001  # a template can raise any exception
        text = HIDDEN_REASON if scope.tainted else shorten(str(error), 200).removesuffix(".")
        raise Unresolved(f"template {_place(error, name)}: {text}") from None
    return rendered


def _place(error: Exception, name: str) -> str:
    """Returns file and line of a template where an error was raised; Jinja2 puts them into the traceback."""
    place = name
    step = error.__traceback__
    while step is not None:
        if (
            "__jinja_template__" in step.tb_frame.f_globals
            or step.tb_frame.f_code.co_name == "top-level template code"
        ):
            place = f"{step.tb_frame.f_code.co_filename}, line {step.tb_lineno}"
        step = step.tb_next
    return place


# ---- results ----
def evaluate(compiled: Callable[..., Any], scope: TemplateScope, source: str) -> Any:
    before, scope.tainted = scope.tainted, NO_SECRET
    try:
        with environment().watched_by(scope):
            return _plain(compiled(_names(scope)))
    except (Unresolved, Failure, DoesNotLoad) as error:
        if not scope.tainted:
            raise
        # The message may contain the secret. A dry run needs to know that something does not exist yet.
        kind = error.__class__ if isinstance(error, Missing) else Unresolved
        raise kind(f"{HIDDEN_REASON} in {quoted(source)}") from None
    except Exception as error:  # noqa: BLE001  # an expression can raise any exception
        if scope.tainted:
            text = HIDDEN_REASON
        elif isinstance(error, jinja2.UndefinedError):
            raise UndefinedValue(f"{error.message or 'a value is not defined'} in {quoted(source)}") from None
        else:
            text = shorten(str(error) or error.__class__.__name__, 200).removesuffix(".")
        raise Unresolved(f"{text} in {quoted(source)}") from None
    finally:
        scope.tainted = max(scope.tainted, before)


def _names(scope: TemplateScope) -> dict[str, Any]:
    """All names for an expression; roots also with a capital letter."""

    def lookup(path: str, default: Any = MISSING) -> Any:
        """The filter `default` and the test `defined` accept a value that is not defined."""
        value = scope.find(str(path))
        if value is not MISSING:
            return value
        if default is MISSING:
            # Jinja2 raises any class that takes a message.
            return environment().undefined(scope.undefined_problem(str(path)), exc=UndefinedValue)  # type: ignore[arg-type]
        return default

    functions = {"lookup": lookup, **scope.functions}
    found: dict[str, Any] = {name: TemplateFunction(function, name) for name, function in functions.items()}
    found.update((spelling, RootView(scope, name)) for spelling, name in scope.spellings().items())
    return found


def _article(word: str) -> str:
    return f"an {word}" if word[:1] in "aeiou" else f"a {word}"


def _plain(value: Any, budget: Budget | None = None) -> Any:
    """Converts a result to maps, lists, text, numbers, true, false and null; refuses anything else."""
    budget = budget or Budget()
    budget.spend(len(value) + 1 if isinstance(value, str) else 1)
    if value is None or isinstance(value, (bool, float, Tainted)):
        return value
    if isinstance(value, str):
        return str.__str__(value)
    if isinstance(value, int):
        if abs(value) > LARGEST_NUMBER:
            raise ValueError("the number is too large")
        return value
    if isinstance(value, RootView):
        return _plain(value._value(), budget)
    if isinstance(value, dict):
        return {to_text(_plain(key, budget)): _plain(child, budget) for key, child in value.items()}
    if value is NOT_RENDERED:
        raise FollowUp
    if hasattr(value.__class__, "_fail_with_undefined_error"):
        value._fail_with_undefined_error()
    if isinstance(value, TemplateFunction):
        raise TypeError(value.problem())
    if callable(value) or not hasattr(value, "__iter__"):
        raise TypeError(f"expected a value, got {_article(value.__class__.__name__)}")
    items = [_plain(child, budget) for child in islice(value, MOST_ITEMS + 1)]
    if len(items) > MOST_ITEMS:
        raise ValueError(f"the list has more than {MOST_ITEMS} items")
    return items
