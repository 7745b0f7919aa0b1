"""Follows a service until nothing is active any more: its state, and how far the active job is.

On a terminal the line is painted in place; in a pipe there is a line per change.
Exit code: 0 the last job is done, 1 it failed or was cancelled."""

from __future__ import annotations

from mainstay.cli.remote.connection import connected, find_service
from mainstay.cli.remote.job_progress import follow

TYPE_CHECKING = False
if TYPE_CHECKING:
    import argparse

SUMMARY = "follow a service live"


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("service", metavar="SERVICE", help="name, id or the beginning of an id")
    parser.add_argument("--follow", action="store_true", help="go on when nothing is active, until Ctrl-C")


def run(arguments: argparse.Namespace) -> int:
    with connected(arguments) as client:
        service = find_service(client, arguments.service)
        return follow(client, service["id"], forever=arguments.follow).exit_code
