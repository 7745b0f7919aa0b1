"""The Jinja2 environment that expressions and `template()` files run in: sandboxed, strict, bounded."""

from __future__ import annotations

import json
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any

import jinja2
from jinja2.exceptions import SecurityError
from jinja2.sandbox import SandboxedEnvironment

from mainstay.converge.kinds import to_text
from mainstay.converge.manifest.expressions import LONGEST_REPETITION, RootView, holds_secret

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from mainstay.converge.manifest.expressions import Scope


# Runs may go on side by side in threads, each with its own scope.
WATCHER: ContextVar[Scope | None] = ContextVar("WATCHER", default=None)


class Sandbox(SandboxedEnvironment):
    """Keys of maps win over methods, and no expression can ask for more memory than a host has."""

    intercepted_binops = frozenset(("*", "**"))

    @contextmanager
    def watched_by(self, scope: Scope) -> Iterator[None]:
        """Tells `scope` when a value that comes from a secret is touched."""
        token = WATCHER.set(scope)
        try:
            yield
        finally:
            WATCHER.reset(token)

    def getattr(self, obj: Any, attribute: str) -> Any:
        if isinstance(obj, (dict, RootView)) and attribute in obj:
            return self._noticed(obj[attribute])
        return super().getattr(obj, attribute)

    def getitem(self, obj: Any, argument: Any) -> Any:
        if isinstance(obj, RootView) and argument in obj:
            return self._noticed(obj[argument])
        return self._noticed(super().getitem(obj, argument))

    def _noticed(self, value: Any) -> Any:
        scope = WATCHER.get()
        if scope is not None and holds_secret(value):
            scope.tainted = True
        return value

    def call_binop(self, context: Any, operator: str, left: Any, right: Any) -> Any:
        if operator == "**" and (not _small(left, 10**6) or not _small(right, 1000)):
            raise SecurityError("the power is too large")
        for number, sequence in ((left, right), (right, left)):
            if (
                isinstance(number, int)
                and hasattr(sequence, "__len__")
                and number * max(1, len(sequence)) > LONGEST_REPETITION
            ):
                raise SecurityError("the repetition is too long")
        return super().call_binop(context, operator, left, right)


def _small(value: Any, limit: int) -> bool:
    return isinstance(value, (int, float)) and abs(value) <= limit


class Undefined(jinja2.StrictUndefined):
    """Says which name is not defined, without Jinja2's inner words."""

    @property
    def _undefined_message(self) -> str:
        if self._undefined_hint:
            return self._undefined_hint
        return f"{self._undefined_name} is not defined"


def make_environment() -> Sandbox:
    sandbox = Sandbox(
        undefined=Undefined,
        keep_trailing_newline=True,
        autoescape=False,  # host files are no HTML
    )
    sandbox.filters["tojson"] = _tojson
    sandbox.filters["center"] = _bounded(sandbox.filters["center"])
    sandbox.finalize = to_text
    return sandbox


def _tojson(value: Any, indent: int | None = None) -> str:
    """Plain JSON: Jinja2's own escapes for HTML, which a configuration file must not get."""
    if isinstance(value, RootView):
        value = dict(value.items())
    return json.dumps(value, indent=indent, ensure_ascii=False)


def _bounded(center: Callable[..., Any]) -> Callable[..., Any]:
    def bounded(value: Any, width: int = 80) -> Any:
        if width > LONGEST_REPETITION:
            raise SecurityError("the text would be too long")
        return center(value, width)

    return bounded


def render_file(source: str, name: str, scope: Scope, read: Callable[[str], str]) -> str:
    """A file rendered by `template()`: full Jinja2, with includes from the working directory."""
    from mainstay.converge.manifest.expressions import Unresolved, environment

    sandbox = environment().overlay(loader=jinja2.FunctionLoader(read))
    try:
        with sandbox.watched_by(scope):
            rendered: str = sandbox.from_string(source).render(scope.names())
    except jinja2.TemplateSyntaxError as error:
        raise Unresolved(f"template {name}, line {error.lineno}: {error.message}") from None
    except jinja2.UndefinedError as error:
        raise Unresolved(f"template {name}: {error.message}") from None
    except (SecurityError, ArithmeticError, TypeError, ValueError, LookupError, RecursionError) as error:
        raise Unresolved(f"template {name}: {error}") from None
    return rendered
