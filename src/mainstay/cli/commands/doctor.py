"""Lists what is stuck in the control plane, why, and the command that helps.

On the server's machine the command reads the database (--data-dir, --database-url, --config, or the default data
directory). Elsewhere it asks the server of `mainstay login`, with an admin token. Each finding has a stable code, in
brackets and in --json. On the server's machine it also checks that the vault key opens the stored secrets. Exit code: 0
nothing is stuck, 1 something is stuck."""

from __future__ import annotations

import argparse
import os
from collections.abc import Mapping, Sequence

from mainstay.cli.main import CommandRefused, print_json
from mainstay.cli.remote.connection_options import add_remote_options
from mainstay.cli.server_options import DATABASE_SETTINGS, add_setting_options, database_errors, read_settings
from mainstay.cli.views.run_display import printable
from mainstay.foundation import Any

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
        print_json(found)
    else:
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
    except ModuleNotFoundError:
        # Without the server packages there is no database here.
        if is_named:
            raise
        return None
    import asyncio

    with database_errors():
        settings = read_settings(arguments, DATABASE_SETTINGS)
        if not settings.is_embedded or os.path.exists(settings.store_url.removeprefix("sqlite://")):
            found: Sequence[Mapping[str, Any]] = msgspec.to_builtins(asyncio.run(run_doctor(settings, os.environ)))
            return found
        if is_named or "MAINSTAY_DATA_DIR" in os.environ:
            raise CommandRefused(f"there is no database in {settings.data_dir}; use --data-dir")
    return None
