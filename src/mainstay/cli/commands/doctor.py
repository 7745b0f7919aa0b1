"""Lists what is stuck in the control plane, why, and the command that helps.

On the server's machine the command reads the database (--data-dir, --database-url, --config, or the default data
directory). Elsewhere it asks the server of `mainstay login`, with an admin token. Each finding has a stable code, in
brackets and in --json. On the server's machine it also checks that the vault key opens the stored secrets. Exit code: 0
nothing is stuck, 1 something is stuck."""

from __future__ import annotations

import argparse
import os

from mainstay.cli.main import CommandRefused
from mainstay.cli.remote.connection_options import add_remote_options
from mainstay.cli.server_options import DATABASE_SETTINGS, add_setting_options, read_settings

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Any

SUMMARY = "list what is stuck in the control plane"
GROUP = "operate"


def configure(parser: argparse.ArgumentParser) -> None:
    add_setting_options(parser, DATABASE_SETTINGS)
    add_remote_options(parser)


def run(arguments: argparse.Namespace) -> int:
    found = _read_database(arguments)
    if found is None:
        from mainstay.cli.remote.connection import connected

        with connected(arguments) as client:
            found = client.get("/doctor")
    if arguments.json:
        from mainstay.cli.main import print_json

        print_json(found)
    else:
        from mainstay.cli.views.run_display import printable

        for each in found:
            print(printable(f"{each['subject']}: {each['message']} [{each['code']}]"))
            print(printable(f"  $ {each['command']}"))
        if not found:
            print("Nothing is stuck.")
    return 1 if found else 0


def _read_database(arguments: argparse.Namespace) -> Sequence[Mapping[str, Any]] | None:
    """None: no database is named, and there is none in the default data directory."""
    is_named = bool(arguments.data_dir or arguments.database_url or arguments.config)
    try:
        import msgspec

        from mainstay.control.maintenance import run_doctor
        from mainstay.control.settings import BadSettings
        from mainstay.control.store.engine.contract import Unavailable
    except ModuleNotFoundError:
        # Without the server packages there is no database here.
        if is_named:
            raise
        return None
    import asyncio

    try:
        settings = read_settings(arguments, DATABASE_SETTINGS)
        if settings.is_embedded and not os.path.exists(settings.store_url.removeprefix("sqlite://")):
            if not is_named and "MAINSTAY_DATA_DIR" not in os.environ:
                return None
            raise CommandRefused(f"there is no database in {settings.data_dir}; use --data-dir")
        found: Sequence[Mapping[str, Any]] = msgspec.to_builtins(asyncio.run(run_doctor(settings, os.environ)))
    except BadSettings as error:
        raise CommandRefused(str(error)) from None
    except Unavailable as error:
        raise CommandRefused(f"the database is unreachable: {error}", exit_code=1) from None
    return found
