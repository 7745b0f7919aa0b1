"""Renders the template of a command: first split into words, then each word rendered. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from mainstay.converge.command_words import Slot, split_template
from mainstay.converge.manifest.expressions import Template
from mainstay.converge.manifest.scope import TemplateScope, holds_secret, tainted_if
from mainstay.converge.value_kinds import Unfit, text_problem, to_text
from mainstay.foundation import Any
from mainstay.foundation.text import Tainted

BLANK_PROGRAM = "the first word is a value with blanks; give a list, or write the command out"


def render_words(
    template: Template, scope: TemplateScope, escape: Callable[[str], str] | None = None
) -> tuple[str, ...]:
    """Returns the arguments. A value is one argument, or a part of one; only a list may be several."""
    words: list[str] = []
    for index, pieces in enumerate(split_template(template.parts, template.text)):
        words += _rendered_word(pieces, scope, escape, is_program=index == 0)
    if not words or not words[0]:
        raise Unfit("the command is empty")
    for word in words:
        problem = text_problem(word)
        if problem:
            raise Unfit(f"an argument {problem}")
    return tuple(words)


def _rendered_word(
    pieces: list[str | Slot], scope: TemplateScope, escape: Callable[[str], str] | None, *, is_program: bool
) -> Iterator[str]:
    def value_of(slot: Slot) -> Any:
        return tainted_if(scope, lambda: slot.expression.evaluate(scope))

    only = pieces[0] if len(pieces) == 1 else None
    if isinstance(only, Slot) and not only.is_quoted:
        value = value_of(only)
        if isinstance(value, list):
            yield from (_escaped(_text_of(item), escape) for item in value)
            return
        yield _escaped(_value_text(value, is_program=is_program), escape)
        return
    texts = [
        piece if isinstance(piece, str) else _escaped(_value_text(value_of(piece), is_program=is_program), escape)
        for piece in pieces
    ]
    word = "".join(texts)
    yield Tainted(word) if any(isinstance(text, Tainted) for text in texts) else word


def _value_text(value: Any, *, is_program: bool) -> str:
    """The text of a value inside a word."""
    if isinstance(value, list):
        texts = [_text_of(item) for item in value]
        joined = " ".join(texts)
        text = Tainted(joined) if any(isinstance(each, Tainted) for each in texts) else joined
    else:
        text = _text_of(value)
    if is_program and any(character.isspace() for character in text):
        raise Unfit(BLANK_PROGRAM)
    return text


def _text_of(value: Any) -> str:
    if value is None:
        raise Unfit("an expression gives null, which cannot be an argument; for an empty argument write ''")
    text = to_text(value)
    return Tainted(text) if holds_secret(value) else text


def _escaped(text: str, escape: Callable[[str], str] | None) -> str:
    if escape is None:
        return text
    return Tainted(escape(text)) if isinstance(text, Tainted) else escape(text)
