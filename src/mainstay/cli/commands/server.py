"""Runs the control plane: the API, the job queue and everything behind them. `mainstay server` needs no configuration.

`mainstay server migrate` only brings the database up to date. Settings come from flags, MAINSTAY_… variables or --config."""

from __future__ import annotations

import os

from mainstay.cli.main import Refused

TYPE_CHECKING = False
if TYPE_CHECKING:
    import argparse

SUMMARY = "run the control plane"
VERBS = ("run", "migrate")


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("verb", nargs="?", choices=VERBS, default="run", metavar="migrate", help="what to do instead")
    parser.add_argument("--host", metavar="ADDRESS", help="address to listen on; 127.0.0.1 when not given")
    parser.add_argument(
        "--port", metavar="N", type=int, help="port to listen on; 8420 when not given, 0 for a free one"
    )
    parser.add_argument("--data-dir", metavar="DIR", help="where the database, the vault key and the token are kept")
    parser.add_argument("--database-url", metavar="URL", help="postgresql://… ; the embedded database when not given")
    parser.add_argument("--config", metavar="FILE", help="settings as TOML, under the names of the flags")


def run(arguments: argparse.Namespace) -> int:
    try:
        from mainstay.control.serve import migrate, run_server
        from mainstay.control.settings import BadSettings, load_settings
        from mainstay.control.store.contract import Unavailable
        from mainstay.control.store.migrations import ChangedMigration, NewerDatabase
    except ModuleNotFoundError as error:
        raise Refused(
            f"the server's parts are not installed ({error.name}): pip install 'mainstay[server]'"
        ) from None
    flags = {name: getattr(arguments, name) for name in ("host", "port", "data_dir", "database_url")}
    try:
        settings = load_settings(flags, os.environ, arguments.config)
        if arguments.verb == "migrate":
            import asyncio

            done = asyncio.run(migrate(settings))
            print("\n".join(f"ran {name}" for name in done) or "The database is up to date.")
            return 0
        run_server(settings, os.environ)
    except (BadSettings, ChangedMigration, NewerDatabase) as error:
        raise Refused(str(error)) from None
    except Unavailable as error:
        raise Refused(f"the database cannot be reached: {error}", exit_code=1) from None
    except OSError as error:
        raise Refused(f"cannot listen: {error.strerror or error}", exit_code=1) from None
    return 0
