"""Templates: `{{ expression }}` in text, sandboxed and strict. All other text is kept as it is.

Expressions are those of Jinja2, which is imported only when a manifest uses more than a plain `lookup('…')`: the
import takes longer than most runs.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from mainstay.converge.manifest.scope import BadExpression, References, TemplateScope, Unresolved, tainted_if
from mainstay.converge.value_kinds import to_text
from mainstay.foundation import Any
from mainstay.foundation.text import shorten

# Compiled on first use: most manifests have no templates.
PLAIN_LOOKUP = r"\s*lookup\(\s*(?:'([^'\\]*)'|\"([^\"\\]*)\")\s*\)\s*"


class Template:
    """Text with expressions in it, compiled once."""

    __slots__ = ("parts", "text")

    def __init__(self, text: str) -> None:
        self.text = text
        self.parts = split(text)
        for part in self.parts:
            if isinstance(part, Expression):
                part.check()

    def computed(self) -> list[Expression]:
        """The expressions that are more than plain look-ups."""
        return [part for part in self.parts if isinstance(part, Expression) and part.constant is None]

    def render(self, scope: TemplateScope) -> Any:
        """Returns the value, which keeps its type if the text is exactly one expression."""
        if len(self.parts) == 1 and isinstance(self.parts[0], Expression):
            return tainted_if(scope, lambda: self.parts[0].evaluate(scope))  # type: ignore[union-attr]
        return tainted_if(
            scope,
            lambda: "".join(part if isinstance(part, str) else to_text(part.evaluate(scope)) for part in self.parts),
        )

    def render_escaped(self, scope: TemplateScope, escape: Callable[[str], str]) -> str | None:
        """Returns the text with every value escaped; None if it is exactly one expression, which gives null."""
        return tainted_if(scope, lambda: self._escaped(scope, escape))  # type: ignore[no-any-return]

    def _escaped(self, scope: TemplateScope, escape: Callable[[str], str]) -> str | None:
        texts = []
        for index, part in enumerate(self.parts):
            if isinstance(part, str):
                texts.append(part)
                continue
            before = self.parts[index - 1] if index else ""
            if isinstance(before, str) and (len(before) - len(before.rstrip("\\"))) % 2:
                # The backslash would give the first character of the value a meaning.
                raise BadExpression("a backslash before {{ is not supported: values are escaped; remove it")
            value = part.evaluate(scope)
            if value is None and len(self.parts) == 1:
                return None
            texts.append(escape(to_text(value)))
        return "".join(texts)


class Expression:
    """The text between the braces."""

    __slots__ = ("_compiled", "constant", "source")

    def __init__(self, source: str) -> None:
        self.source = source
        plain = re.fullmatch(PLAIN_LOOKUP, source)
        self.constant: str | None = (plain[1] or plain[2] or "") if plain else None
        self._compiled: tuple[Callable[..., Any], References] | None = None

    def check(self) -> None:
        """Raises `BadExpression` if the syntax is wrong."""
        if self.constant is None:
            self._compile()

    def references(self) -> References:
        """What an expression refers to that is more than a plain `lookup('…')`."""
        return self._compile()[1]

    def evaluate(self, scope: TemplateScope) -> Any:
        if self.constant is not None:
            return self._look_up(scope)
        from mainstay.converge.manifest.evaluation import evaluate

        return evaluate(self._compile()[0], scope, self.source)

    def _compile(self) -> tuple[Callable[..., Any], References]:
        if self._compiled is None:
            from mainstay.converge.manifest.evaluation import compile_expression

            self._compiled = compile_expression(self.source)
        return self._compiled

    def ends_in_quote(self) -> bool:
        """Whether the filter `quote` is applied to the whole value."""
        if self.constant is not None:
            return False
        from mainstay.converge.manifest.evaluation import is_quoted

        return is_quoted(self.source)

    def _look_up(self, scope: TemplateScope) -> Any:
        try:
            return scope.lookup(self.constant or "")
        except Unresolved as error:
            error.is_computed = False
            raise


def split(text: str) -> list[str | Expression]:
    """Splits a template into text and expressions. Braces and quotes inside an expression belong to it."""
    parts: list[str | Expression] = []
    start = 0
    while (opening := text.find("{{", start)) >= 0:
        if opening > start:
            parts.append(text[start:opening])
        closing = _end_of_expression(text, opening + 2)
        source = text[opening + 2 : closing]
        if source[:1] in ("-", "+") and source[1:2] in (" ", "\n"):
            raise BadExpression("{{- and -}} do not trim here: text is kept as written; write {{ … }}")
        parts.append(Expression(source))
        start = closing + 2
    if start < len(text):
        parts.append(text[start:])
    return parts


def _end_of_expression(text: str, start: int) -> int:
    depth = 0
    quote = ""
    index = start
    while index < len(text):
        character = text[index]
        if quote:
            if character == "\\":
                index += 1
            elif character == quote:
                quote = ""
        elif character in "'\"":
            quote = character
        elif character in "([{":
            depth += 1
        elif character == "}" and depth == 0 and text.startswith("}}", index):
            return index
        elif character in ")]}":
            depth -= 1
        index += 1
    raise BadExpression(
        f"{{{{ is never closed: {shorten(text[start - 2 :])!r}; for a literal {{{{ write {{{{ '{{{{' }}}}"
    )
