"""Takes what must not be on a command line: asked for without echo on a terminal, read from standard input otherwise."""

from __future__ import annotations

import sys

from mainstay.cli.main import CommandRefused

LARGEST_BYTES = 1024 * 1024


def ask_secret(question: str) -> str:
    if sys.stdin.isatty():
        from getpass import getpass

        try:
            return getpass(f"{question}: ")
        except EOFError:
            raise CommandRefused("nothing was given") from None
    text = sys.stdin.buffer.read(LARGEST_BYTES + 1)
    if len(text) > LARGEST_BYTES:
        raise CommandRefused(f"standard input holds more than {LARGEST_BYTES} bytes")
    try:
        return without_last_newline(text.decode())
    except UnicodeDecodeError:
        raise CommandRefused("standard input is not UTF-8") from None


def without_last_newline(text: str) -> str:
    """Editors and `echo` end a file with one; it is not part of a secret."""
    return text.removesuffix("\n").removesuffix("\r")
