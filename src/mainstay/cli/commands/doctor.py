"""Checks the control plane's database and lists what is stuck, why, and what to do.

Exit code: 0 nothing is stuck, 1 something is stuck."""

from __future__ import annotations

import os

from mainstay.cli.main import CommandRefused
from mainstay.cli.server_options import DATABASE_SETTINGS, add_setting_options, read_settings

TYPE_CHECKING = False
if TYPE_CHECKING:
    import argparse

SUMMARY = "list what is stuck in the control plane"


def configure(parser: argparse.ArgumentParser) -> None:
    add_setting_options(parser, DATABASE_SETTINGS)
    parser.add_argument("--json", action="store_true", help="print one JSON document")


def run(arguments: argparse.Namespace) -> int:
    import asyncio

    import msgspec

    from mainstay.control.maintenance import run_doctor
    from mainstay.control.settings import BadSettings
    from mainstay.control.store.engine.contract import Unavailable

    try:
        settings = read_settings(arguments, DATABASE_SETTINGS)
        if settings.is_embedded and not os.path.exists(settings.store_url.removeprefix("sqlite://")):
            raise CommandRefused(f"there is no database in {settings.data_dir}; use --data-dir")
        found = asyncio.run(run_doctor(settings))
    except BadSettings as error:
        raise CommandRefused(str(error)) from None
    except Unavailable as error:
        raise CommandRefused(f"the database is unreachable: {error}", exit_code=1) from None
    if arguments.json:
        print(msgspec.json.encode(found).decode())
    else:
        print("\n".join(f"{each.subject}: {each.message} [{each.code}]" for each in found) or "Nothing is stuck.")
    return 1 if found else 0
