"""Follows a service until no job is active: its state, and the progress of the active job.

On a terminal the line is updated in place; in a pipe each change is a line.
Exit code: 0 the last job completed, 1 it failed or was cancelled, 124 it did not finish within --timeout."""

from __future__ import annotations

from mainstay.cli.remote.connection import connected, find_service
from mainstay.cli.remote.connection_options import add_connection_options
from mainstay.cli.remote.job_progress import add_timeout_option, follow

TYPE_CHECKING = False
if TYPE_CHECKING:
    import argparse

SUMMARY = "follow a service live"
GROUP = "order"


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("service", metavar="SERVICE", help="name, id or id prefix")
    parser.add_argument("--follow", action="store_true", help="continue until Ctrl-C")
    add_timeout_option(parser)
    add_connection_options(parser)


def run(arguments: argparse.Namespace) -> int:
    with connected(arguments) as client:
        service = find_service(client, arguments.service)
        return follow(client, service["id"], forever=arguments.follow, timeout_seconds=arguments.timeout).exit_code
