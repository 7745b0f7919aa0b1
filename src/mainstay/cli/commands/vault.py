"""Rotates the vault key: `mainstay vault rotate` creates a new key and encrypts every secret with it.

Stop the servers first, and start them afterwards. With a key file, the command removes the old key at the end. With
VAULT_ENCRYPTION_KEY, first set the new key there and the old key in VAULT_ENCRYPTION_KEYS_OLD; remove the old key afterwards.
The command lists secrets that it cannot decrypt and exits with 1; the key file then keeps the old keys.

`mainstay vault clean` deletes secrets whose service or agent does not exist any more; `mainstay doctor` lists them."""

from __future__ import annotations

import os
import sys

from mainstay.cli.main import CommandRefused
from mainstay.cli.server_options import DATABASE_SETTINGS, add_setting_options, read_settings

TYPE_CHECKING = False
if TYPE_CHECKING:
    import argparse

SUMMARY = "rotate the vault key, or delete secrets without an owner"


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "verb",
        choices=("rotate", "clean"),
        metavar="rotate|clean",
        help="encrypt every secret with a new key, or delete secrets without an owner",
    )
    add_setting_options(parser, DATABASE_SETTINGS)


def run(arguments: argparse.Namespace) -> int:
    import asyncio

    from mainstay.control.maintenance import delete_lost_secrets, rotate_key
    from mainstay.control.settings import BadSettings
    from mainstay.control.store.engine.contract import Unavailable

    try:
        settings = read_settings(arguments, DATABASE_SETTINGS)
        if arguments.verb == "clean":
            print(f"deleted {asyncio.run(delete_lost_secrets(settings))} secrets without an owner")
            return 0
        rotation = asyncio.run(rotate_key(settings, os.environ))
    except BadSettings as error:
        raise CommandRefused(str(error)) from None
    except Unavailable as error:
        raise CommandRefused(f"the database is unreachable: {error}", exit_code=1) from None
    count = rotation.resealed
    print(f"encrypted {count} secret{'' if count == 1 else 's'} with the current key")
    for place in rotation.unreadable:
        print(
            f"cannot decrypt {place}: it is damaged, or its key is missing; set the property again", file=sys.stderr
        )
    return 1 if rotation.unreadable else 0
