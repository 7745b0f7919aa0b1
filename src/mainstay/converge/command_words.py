"""Splits a command into words by POSIX quoting rules: quotes and backslashes, no comments, no expansion.

The template of a command is split before its expressions have values, so that a value never becomes more than one
word. `manifest/command_templates.py` renders the words.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from mainstay.converge.value_kinds import COMMAND, SCALAR_SCHEMA, Unfit, ValueKind, read_text
from mainstay.foundation import Any, Struct
from mainstay.foundation.text import shorten
from mainstay.foundation.yaml.scalars import Node

BLANKS = " \t\n"
ESCAPABLE_IN_DOUBLE_QUOTES = '$`"\\'
UNQUOTED_CHARACTERS = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789@%+=:,./-_")


class Slot(Struct):
    """The place of an expression in a word."""

    expression: Any
    is_quoted: bool


class _Splitter(Struct):
    """Reads the parts of a template in order. An expression belongs to the word around it, whatever it contains."""

    words: list[list[str | Slot]] = []
    word: list[str | Slot] | None = None
    quote: str = ""
    # A backslash outside quotes was the last character.
    is_escaped: bool = False

    def add(self, piece: str | Slot) -> None:
        if self.word is None:
            self.word = []
        self.word.append(piece)

    def read_expression(self, expression: Any) -> None:
        self.add(Slot(expression, is_quoted=bool(self.quote) or self.is_escaped))
        self.is_escaped = False

    def read_text(self, text: str) -> None:
        index = 0
        while index < len(text):
            character = text[index]
            following = text[index + 1 : index + 2]
            if self.is_escaped:
                self.is_escaped = False
                if character != "\n":
                    self.add(character)
            elif self.quote:
                index += self._read_quoted(character, following)
            elif character == "\\":
                self.is_escaped = True
            elif character in "'\"":
                self.quote = character
                self.add("")
            elif character in BLANKS:
                self._end_word()
            else:
                self.add(character)
            index += 1

    def _read_quoted(self, character: str, following: str) -> int:
        """Reads one character inside quotes; returns how many more it took."""
        if character == self.quote:
            self.quote = ""
        elif self.quote == '"' and character == "\\" and following in (*ESCAPABLE_IN_DOUBLE_QUOTES, "\n"):
            if following != "\n":
                self.add(following)
            return 1
        else:
            self.add(character)
        return 0

    def _end_word(self) -> None:
        if self.word is not None:
            self.words.append(self.word)
            self.word = None

    def finish(self, text: str) -> list[list[str | Slot]]:
        if self.is_escaped:
            raise Unfit(f"ends with a backslash: {shorten(text)!r}")
        if self.quote:
            raise Unfit(f"the quote {self.quote} is never closed: {shorten(text)}")
        self._end_word()
        if not self.words or not any(self.words[0]):
            raise Unfit("the command is empty")
        return self.words


def split_template(parts: Iterable[Any], text: str) -> list[list[str | Slot]]:
    """Splits the parts of the template `text`: texts, and expressions, which are all other objects.

    Returns the pieces of each word; raises `Unfit` for an empty command or a quote that is never closed."""
    splitter = _Splitter()
    for part in parts:
        if isinstance(part, str):
            if "\0" in part:
                raise Unfit("contains a NUL character")
            splitter.read_text(part)
        else:
            splitter.read_expression(part)
    return splitter.finish(text)


def split_words(command: str) -> list[str]:
    """Returns the words of a command without expressions."""
    return ["".join(str(piece) for piece in word) for word in split_template((command,), command)]


def words_of(command: str | Sequence[str]) -> list[str]:
    """Returns the words of a command as written, or as a template gave them."""
    return split_words(command) if isinstance(command, str) else list(command)


def quote_word(word: str) -> str:
    """Quotes a word so that a shell, and `split_words`, read it as this one word."""
    if word and UNQUOTED_CHARACTERS.issuperset(word):
        return word
    return "'" + word.replace("'", "'\"'\"'") + "'"


def join_words(words: Iterable[str]) -> str:
    return " ".join(quote_word(word) for word in words)


# ---- the value of a property that is split at load ----
class CommandKind(ValueKind):
    """A command as a tuple of words. `escape` protects values in a command that has placeholders."""

    def __init__(self, escape: Callable[[str], str] | None = None) -> None:
        super().__init__(COMMAND.name, _read_words, _accept_words, SCALAR_SCHEMA, is_text=True, escape=escape)


def _read_words(node: Node) -> tuple[str, ...] | None:
    text = read_text(node)
    return None if text is None else tuple(split_words(text))


def _accept_words(value: Any) -> tuple[str, ...]:
    return tuple(value)


WORDS = CommandKind()
# `%` is the path of a file in such a command, so `%` in a value is doubled.
WORDS_WITH_PATH = CommandKind(lambda value: value.replace("%", "%%"))
