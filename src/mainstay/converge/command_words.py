"""Splits a command into words by POSIX quoting rules: quotes and backslashes, no comments, no expansion."""

from __future__ import annotations

from mainstay.converge.value_kinds import Unfit
from mainstay.foundation.text import shorten

BLANKS = " \t\n"
ESCAPABLE_IN_DOUBLE_QUOTES = '$`"\\'


def split_words(command: str) -> list[str]:
    """Returns the words of a command; raises `Unfit` for an empty command or a quote that is never closed."""
    words: list[str] = []
    word: list[str] = []
    started = False
    quote = ""
    index = 0
    while index < len(command):
        character = command[index]
        following = command[index + 1 : index + 2]
        if quote == "'":
            if character == "'":
                quote = ""
            else:
                word.append(character)
        elif character == "\\" and (not quote or following in (*ESCAPABLE_IN_DOUBLE_QUOTES, "\n")):
            if not following:
                raise Unfit(f"ends with a backslash: {shorten(command)!r}")
            if following != "\n":
                word.append(following)
                started = True
            index += 1
        elif quote:
            if character == '"':
                quote = ""
            else:
                word.append(character)
        elif character in "'\"":
            quote = character
            started = True
        elif character in BLANKS:
            if started:
                words.append("".join(word))
                word, started = [], False
        else:
            word.append(character)
            started = True
        index += 1
    if quote:
        raise Unfit(f"the quote {quote} is never closed: {shorten(command)}")
    if started:
        words.append("".join(word))
    if not words or not words[0]:
        raise Unfit("the command is empty")
    if any("\0" in word for word in words):
        raise Unfit("contains a NUL character")
    return words
