"""Runs the control plane. `mainstay server` needs no configuration.

`server migrate` only migrates the database; `server backup FILE` writes a backup while the server runs, and replaces an
existing file only with --force; `server restore FILE` loads it into a new database, SQLite or PostgreSQL. A backup does
not contain the vault key, which is needed to decrypt its secrets. `server admin-token` creates an admin token in the
database and writes it to admin.token of the data directory, if none is left; the server may run, and an event records it.
`server install` (as root) runs the server as a sandboxed systemd unit with a user of its own, and data in
/var/lib/mainstay-server; settings with secrets go into --config or /etc/mainstay/server.env. Settings come from flags,
MAINSTAY_… variables or --config."""

from __future__ import annotations

import argparse
import os

from mainstay.cli.main import CommandRefused, add_argument, add_switch
from mainstay.cli.server_options import METAVARS, add_setting_options, database_errors, read_settings

TYPE_CHECKING = False
if TYPE_CHECKING:
    from mainstay.control.settings import ServerSettings

SUMMARY = "run the control plane"
GROUP = "operate"
VERBS = ("run", "migrate", "backup", "restore", "admin-token", "install")


def configure(parser: argparse.ArgumentParser) -> None:
    add_argument(
        parser,
        "verb",
        "migrate|backup|restore|admin-token|install",
        "run this instead of the server",
        nargs="?",
        choices=VERBS,
        default="run",
    )
    add_argument(parser, "file", "FILE", "backup file", nargs="?")
    add_switch(parser, "--force", "let `backup` or `admin-token` replace an existing file")
    add_switch(parser, "--uninstall", "install: stop and remove the unit; keeps the data")
    add_switch(parser, "--noop", "install: only show what would change")
    add_setting_options(parser, METAVARS)


def run(arguments: argparse.Namespace) -> int:
    import asyncio

    from mainstay.control.serve import migrate, run_server

    if (arguments.file is None) == (arguments.verb in ("backup", "restore")):
        raise CommandRefused("use `mainstay server backup FILE` or `mainstay server restore FILE`")
    if arguments.force and arguments.verb not in ("backup", "admin-token"):
        raise CommandRefused(
            "--force is an option of `mainstay server backup FILE` and `mainstay server admin-token`"
        )
    if arguments.verb == "backup" and os.path.lexists(arguments.file) and not arguments.force:
        raise CommandRefused(f"{arguments.file} exists; choose another file, or replace it with --force")
    if arguments.verb == "install":
        from mainstay.cli.server_unit import install

        return install(arguments)
    if arguments.uninstall or arguments.noop:
        raise CommandRefused("--uninstall and --noop belong to `mainstay server install`")
    with database_errors():
        settings = read_settings(arguments, METAVARS)
        if arguments.verb == "migrate":
            done = asyncio.run(migrate(settings))
            print("\n".join(f"applied {name}" for name in done) or "The database is up to date.")
        elif arguments.verb == "admin-token":
            _write_admin_token(settings, replace=arguments.force)
        elif arguments.verb in ("backup", "restore"):
            _back_up_or_restore(arguments.verb, settings, arguments.file)
        else:
            run_server(settings, os.environ)
    return 0


def _write_admin_token(settings: ServerSettings, *, replace: bool) -> None:
    import asyncio

    from mainstay.control.maintenance import write_admin_token

    path = asyncio.run(write_admin_token(settings, replace=replace))
    print(f"wrote a new admin token to {path}; log in with `mainstay login URL --data-dir {path.parent}`")


def _back_up_or_restore(verb: str, settings: ServerSettings, file: str) -> None:
    import asyncio
    from pathlib import Path

    from mainstay.control.maintenance import back_up, restore

    if verb == "backup":
        asyncio.run(back_up(settings, Path(file)))
        print(f"wrote {file}; store the vault key separately")
    else:
        print(f"restored {asyncio.run(restore(settings, Path(file)))} rows")
