"""Shows the actual state of one thing on this host.

mainstay status file /etc/hosts"""

from __future__ import annotations

from mainstay.cli.local_run import EXIT_FAILED, print_json
from mainstay.cli.main import CommandRefused

TYPE_CHECKING = False
if TYPE_CHECKING:
    import argparse

SUMMARY = "show the actual state of one thing"


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("type", metavar="TYPE", help="file, exec, …")
    parser.add_argument("name", metavar="NAME")
    parser.add_argument("--provider", metavar="PROVIDER", help="ask this provider")
    parser.add_argument("--json", action="store_true", help="print one JSON document and nothing else")


def run(arguments: argparse.Namespace) -> int:
    from mainstay.converge.contract import Failure
    from mainstay.converge.run import read_state

    try:
        state = read_state(arguments.type, arguments.name, arguments.provider)
    except Failure as failure:
        raise CommandRefused(str(failure), exit_code=EXIT_FAILED) from None
    except OSError as error:
        raise CommandRefused(f"{error.strerror}: {arguments.name}", exit_code=EXIT_FAILED) from None
    if arguments.json:
        print_json(state)
        return 0
    from mainstay.cli.views.run_display import printable

    width = max(len(key) for key in state)
    for key, value in state.items():
        if value is not None:
            text = str(value).lower() if isinstance(value, bool) else str(value)
            print(f"{key:<{width}}  {printable(text)}")
    return 0
