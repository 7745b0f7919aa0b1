"""Words of commands in systemd units."""

from __future__ import annotations

import os
import sys

from mainstay.cli.main import CommandRefused

# Any other character may mean something to systemd, in some position.
PLAIN = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_./:=,+@-")
ESCAPED = {"\\": "\\\\", '"': '\\"', "%": "%%", "$": "$$"}


def quoted_word(word: str) -> str:
    """Escapes a word for ExecStart."""
    if word and PLAIN.issuperset(word):
        return word
    return '"' + "".join(_escape(character) for character in word) + '"'


def _escape(character: str) -> str:
    # A line break would end the directive.
    return f"\\x{ord(character):02x}" if character < " " or character == "\x7f" else ESCAPED.get(character, character)


def unit_path(written: str) -> str:
    """An absolute path that a unit can name."""
    path = os.path.abspath(written)
    try:
        path.encode()
    except UnicodeEncodeError:
        raise CommandRefused(f"{path} is not UTF-8, which units of systemd must be; rename it") from None
    if any(character < " " or character == "\x7f" for character in path):
        raise CommandRefused(f"{path} contains control characters; rename it")
    return path


def program_words() -> list[str]:
    """The words with which a unit runs this program."""
    # Of the program file; it runs from its cache, but the unit must start the file.
    archive = getattr(getattr(sys.modules["__main__"], "__loader__", None), "archive", None)
    if archive is not None:
        return [sys.executable, os.path.abspath(archive)]
    if "/" not in sys.argv[0]:
        raise CommandRefused("a unit needs the path of this program; start it by its path, or install mainstay")
    program = os.path.abspath(sys.argv[0])
    return [program] if os.access(program, os.X_OK) else [sys.executable, program]
