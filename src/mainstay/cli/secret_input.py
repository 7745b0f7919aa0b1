"""Reads secrets: prompts without echo on a terminal, else reads standard input. Secrets are never arguments."""

from __future__ import annotations

import sys

from mainstay.cli.main import CommandRefused

MAX_BYTES = 1024 * 1024


def prompt_secret(prompt: str) -> str:
    if sys.stdin.isatty():
        from getpass import getpass

        try:
            return getpass(f"{prompt}: ")
        except EOFError:
            raise CommandRefused("no input") from None
    text = sys.stdin.buffer.read(MAX_BYTES + 1)
    if len(text) > MAX_BYTES:
        raise CommandRefused(f"standard input is larger than {MAX_BYTES} bytes")
    try:
        return without_last_newline(text.decode())
    except UnicodeDecodeError:
        raise CommandRefused("standard input is not UTF-8") from None


def without_last_newline(text: str) -> str:
    """Editors and `echo` add a final newline that is not part of the secret."""
    return text.removesuffix("\n").removesuffix("\r")
