"""Options of every command that sends a token or code to a server."""

from __future__ import annotations

import argparse
import os

from mainstay.cli.main import CommandRefused, add_argument, add_switch


def add_connection_options(parser: argparse.ArgumentParser) -> None:
    add_argument(parser, "--ca-file", "FILE", "trust these CA certificates instead of the system's")
    add_switch(parser, "--insecure", "allow plain HTTP to another host")


def add_remote_options(parser: argparse.ArgumentParser) -> None:
    """The options of every command that prints what a server answers."""
    add_connection_options(parser)
    add_switch(parser, "--json", "print one JSON document")


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
