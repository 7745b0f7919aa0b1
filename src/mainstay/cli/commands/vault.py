"""Rotates the vault key: `mainstay vault rotate` creates a new key and encrypts every secret with it.

Stop the servers first, and start them afterwards. With a key file, the command removes the old key at the end. With
VAULT_ENCRYPTION_KEY, first set the new key there and the old key in VAULT_ENCRYPTION_KEYS_OLD; remove the old key afterwards.
The command lists secrets that it cannot decrypt and exits with 1; the key file then keeps the old keys.

`mainstay vault clean` deletes secrets whose service or agent does not exist any more; `mainstay doctor` lists them.

`mainstay vault discard` is for a lost key: it lists the secrets that the key of this server cannot decrypt, asks for their
number, and deletes them, so that a server starts again. Stop the servers first. Set each secret anew afterwards."""

from __future__ import annotations

import argparse
import os
import sys

from mainstay.cli.main import CommandRefused, add_argument, add_switch
from mainstay.cli.server_options import DATABASE_SETTINGS, add_setting_options, database_errors, read_settings
from mainstay.cli.views.run_display import counted, printable

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

    from mainstay.control.settings import ServerSettings

SUMMARY = "rotate the vault key, delete secrets without an owner, or give up secrets whose key is lost"
GROUP = "operate"


def configure(parser: argparse.ArgumentParser) -> None:
    add_argument(
        parser,
        "verb",
        "rotate|clean|discard",
        "encrypt every secret with a new key, delete secrets without an owner, or give up secrets whose key is lost",
        choices=("rotate", "clean", "discard"),
    )
    add_switch(parser, "--yes", "discard: do not ask for the number of secrets")
    add_setting_options(parser, DATABASE_SETTINGS)


def run(arguments: argparse.Namespace) -> int:
    import asyncio

    from mainstay.control.maintenance import delete_lost_secrets

    if arguments.yes and arguments.verb != "discard":
        raise CommandRefused("--yes is an option of `mainstay vault discard`")
    with database_errors():
        settings = read_settings(arguments, DATABASE_SETTINGS)
        if arguments.verb == "clean":
            print(f"deleted {asyncio.run(delete_lost_secrets(settings))} secrets without an owner")
            return 0
        return _discard(settings, ask=not arguments.yes) if arguments.verb == "discard" else _rotate(settings)


def _rotate(settings: ServerSettings) -> int:
    import asyncio

    from mainstay.control.maintenance import rotate_key

    rotation = asyncio.run(rotate_key(settings, os.environ))
    print(f"encrypted {counted(rotation.resealed, 'secret')} with the current key")
    for place in rotation.unreadable:
        print(
            f"cannot decrypt {place}: it is damaged, or its key is missing; set the property again", file=sys.stderr
        )
    return 1 if rotation.unreadable else 0


def _discard(settings: ServerSettings, *, ask: bool) -> int:
    import asyncio

    from mainstay.control.maintenance import discard_secrets

    def confirm(lost: Sequence[str]) -> None:
        for line in lost:
            print(printable(line))
        sys.stdout.flush()
        if ask:
            _ask_for_number(len(lost))

    count = asyncio.run(discard_secrets(settings, os.environ, confirm))
    if not count:
        print("The key of this server decrypts every secret; there is nothing to give up.")
        return 0
    print(f"Gave up {counted(count, 'secret')}. Start the servers, and set each one anew.")
    return 0


def _ask_for_number(count: int) -> None:
    """A typed number is a deliberate one."""
    if not sys.stdin.isatty():
        raise CommandRefused(
            f"{counted(count, 'secret')} would be given up, and there is no terminal to confirm it. If a copy of"
            " the key exists, restore it instead; otherwise repeat the command with --yes"
        )
    print("The key of this server decrypts none of these. If a copy of their key exists, restore it instead.")
    print(f"Type the number of secrets to give up ({count}): ", end="", flush=True)
    if sys.stdin.readline().strip() != str(count):
        raise CommandRefused("nothing was changed: the number does not match")
