"""Options of every command that sends a token or code to a server."""

from __future__ import annotations

import argparse
import os

from mainstay.cli.main import CommandRefused


def add_connection_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--ca-file", metavar="FILE", help="trust these CA certificates instead of the system's")
    parser.add_argument("--insecure", action="store_true", help="allow plain HTTP to another host")


def add_remote_options(parser: argparse.ArgumentParser) -> None:
    """The options of every command that prints what a server answers."""
    add_connection_options(parser)
    parser.add_argument("--json", action="store_true", help="print one JSON document")


def checked_ca_file(path: str | None) -> str | None:
    """The absolute path: a saved login or an agent uses the file from another directory."""
    if not path:
        return None
    import ssl

    try:
        ssl.create_default_context(cafile=path)
    except OSError as error:
        raise CommandRefused(f"cannot load CA certificates from {path}: {error.strerror or error}") from None
    return os.path.abspath(path)
