"""The vault of the control plane. `mainstay vault rotate` makes a new key and seals every secret with it.

With a key file the old key is removed at the end. With VAULT_ENCRYPTION_KEY, set the new key there and the old one in
VAULT_ENCRYPTION_KEYS_OLD first; once this command has run, the old one can go. Stop the servers before, start them after."""

from __future__ import annotations

import os

from mainstay.cli.main import CommandRefused
from mainstay.cli.server_options import WHERE_THE_DATABASE_IS, add_setting_options

TYPE_CHECKING = False
if TYPE_CHECKING:
    import argparse

SUMMARY = "change the key of the vault"


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("verb", choices=("rotate",), metavar="rotate", help="seal every secret with a new key")
    add_setting_options(parser, WHERE_THE_DATABASE_IS)


def run(arguments: argparse.Namespace) -> int:
    import asyncio

    from mainstay.control.maintenance import rotate_key
    from mainstay.control.settings import BadSettings, load_settings
    from mainstay.control.store.engine.contract import Unavailable
    from mainstay.control.vault.seal import CannotOpen

    flags = {name: getattr(arguments, name) for name in WHERE_THE_DATABASE_IS}
    try:
        count = asyncio.run(rotate_key(load_settings(flags, os.environ, arguments.config), os.environ))
    except (BadSettings, CannotOpen) as error:
        raise CommandRefused(str(error)) from None
    except Unavailable as error:
        raise CommandRefused(f"the database cannot be reached: {error}", exit_code=1) from None
    print(f"sealed {count} secret{'' if count == 1 else 's'} with the current key")
    return 0
