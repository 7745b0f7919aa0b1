"""Options of commands that open the server's database: server settings as flags, and --config."""

from __future__ import annotations

import argparse
import os
from contextlib import contextmanager

from mainstay.cli.main import CommandRefused, add_argument, print_error

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from mainstay.control.settings import ServerSettings

# Settings that are flags of `mainstay server`.
METAVARS = {"host": "ADDRESS", "port": "N", "workers": "N", "data_dir": "DIR", "database_url": "URL"}
DATABASE_SETTINGS = ("data_dir", "database_url")


def add_setting_options(parser: argparse.ArgumentParser, names: Iterable[str]) -> None:
    try:
        from mainstay.control.settings import describe_settings
    except ModuleNotFoundError:
        # Without the server packages the command cannot run, but completion still lists its options.
        helps = {}
    else:
        helps = {name: setting.help for name, setting in describe_settings().items()}
    for name in names:
        kind = int if name in ("port", "workers") else str
        flag = f"--{name.replace('_', '-')}"
        add_argument(parser, flag, METAVARS[name], helps.get(name), type=kind)
    add_argument(parser, "--config", "FILE", "TOML file with server settings")


def read_settings(arguments: argparse.Namespace, names: Iterable[str]) -> ServerSettings:
    """The settings from flags, environment and --config. Raises `BadSettings`."""
    from mainstay.control.settings import load_settings

    if _has_password(getattr(arguments, "database_url", None) or ""):
        print_error(
            "warning: other users can read the password of --database-url in the list of processes;"
            " set MAINSTAY_DATABASE_URL, or database_url in the file of --config"
        )
    return load_settings({name: getattr(arguments, name) for name in names}, os.environ, arguments.config)


@contextmanager
def database_errors() -> Iterator[None]:
    """Refuses with a sentence if the settings are wrong, or the database cannot be used."""
    from mainstay.control.settings import BadSettings
    from mainstay.control.store.engine.backup import BadBackup
    from mainstay.control.store.engine.contract import Unavailable
    from mainstay.control.store.engine.migrations import ChangedMigration, NewerDatabase

    try:
        yield
    except (BadBackup, BadSettings, ChangedMigration, NewerDatabase) as error:
        raise CommandRefused(str(error)) from None
    except Unavailable as error:
        raise CommandRefused(f"the database is unreachable: {error}", exit_code=1) from None


def _has_password(url: str) -> bool:
    from urllib.parse import parse_qs, urlsplit

    try:
        parts = urlsplit(url)
        return bool(parts.password) or "password" in parse_qs(parts.query)
    except ValueError:
        return False
