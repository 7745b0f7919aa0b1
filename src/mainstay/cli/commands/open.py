"""Opens the pages of the server, or of one service, in a browser.

mainstay open
mainstay open shop
mainstay open --print"""

from __future__ import annotations

import argparse

from mainstay.cli.main import CommandRefused, add_argument, add_switch, print_error
from mainstay.cli.remote.connection import URL_VARIABLE, connected, find_service, read_login
from mainstay.cli.remote.connection_options import add_connection_options

SUMMARY = "open the pages in a browser"
GROUP = "order"


def configure(parser: argparse.ArgumentParser) -> None:
    add_argument(parser, "service", "SERVICE", "name, id or id prefix", nargs="?")
    add_switch(parser, "--print", "only print the address")
    add_connection_options(parser)


def run(arguments: argparse.Namespace) -> int:
    address = _address(arguments)
    print(address, flush=True)
    if not arguments.print:
        import webbrowser

        if not webbrowser.open(address):
            print_error("no browser was found; open the address yourself")
    return 0


def _address(arguments: argparse.Namespace) -> str:
    url = read_login(arguments).url
    if url is None:
        raise CommandRefused(f"not logged in: run `mainstay login URL`, or set {URL_VARIABLE}")
    if arguments.service is None:
        return f"{url}/"
    with connected(arguments) as client:
        return f"{url}/services/{find_service(client, arguments.service)['id']}"
