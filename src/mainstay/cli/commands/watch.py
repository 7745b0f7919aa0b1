"""Follows a service until no job is active: its state, and the progress of the active job.

On a terminal the line is updated in place; in a pipe each change is a line.
Exit code: 0 the last job completed, 1 it failed or was cancelled, 4 it did not finish within --timeout."""

from __future__ import annotations

import argparse
from math import inf

from mainstay.cli.main import add_argument, add_switch
from mainstay.cli.remote.connection import connected, find_service
from mainstay.cli.remote.connection_options import add_connection_options
from mainstay.cli.remote.job_progress import add_timeout_option, default_timeout_seconds, follow

SUMMARY = "follow a service live"
GROUP = "order"


def configure(parser: argparse.ArgumentParser) -> None:
    add_argument(parser, "service", "SERVICE", "name, id or id prefix")
    add_switch(parser, "--follow", "continue until Ctrl-C, or for the --timeout that is given")
    add_timeout_option(parser, default=None)
    add_connection_options(parser)


def run(arguments: argparse.Namespace) -> int:
    timeout = arguments.timeout
    if timeout is None:
        timeout = inf if arguments.follow else default_timeout_seconds()
    with connected(arguments) as client:
        service = find_service(client, arguments.service)
        return follow(client, service["id"], timeout, forever=arguments.follow).exit_code
