"""Options of commands that open the server's database: server settings as flags, and --config."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterable

# Settings that are flags of `mainstay server`.
METAVARS = {"host": "ADDRESS", "port": "N", "data_dir": "DIR", "database_url": "URL"}
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
        kind = int if name == "port" else str
        flag = f"--{name.replace('_', '-')}"
        parser.add_argument(flag, metavar=METAVARS[name], type=kind, help=helps.get(name))
    parser.add_argument("--config", metavar="FILE", help="TOML file with server settings")
