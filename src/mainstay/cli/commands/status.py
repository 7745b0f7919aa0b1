"""Shows the actual state of resources on this host.

mainstay status file /etc/hosts
mainstay status service nginx redis

Exit code: 0 success, 1 at least one state could not be read; the others are shown."""

from __future__ import annotations

from mainstay.cli.local_run import EXIT_FAILED, print_json
from mainstay.cli.main import CommandRefused, print_error

TYPE_CHECKING = False
if TYPE_CHECKING:
    import argparse
    from typing import Any

SUMMARY = "show the actual state of resources"


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("type", metavar="TYPE", help="file, exec, …")
    parser.add_argument("names", metavar="NAME", nargs="+", help="one or more names")
    parser.add_argument("--provider", metavar="PROVIDER", help="use this provider")
    parser.add_argument("--json", action="store_true", help="print one JSON document; a list for several names")


def run(arguments: argparse.Namespace) -> int:
    states: list[dict[str, Any]] = []
    for name in arguments.names:
        try:
            states.append(_read(arguments.type, name, arguments.provider))
        except CommandRefused as refusal:
            if len(arguments.names) == 1:
                raise
            states.append({"resource": f"{arguments.type}#{name}", "error": str(refusal)})
    if arguments.json:
        print_json(states if len(states) > 1 else states[0])
    else:
        for index, state in enumerate(states):
            _show(state, after_another=any("error" not in each for each in states[:index]))
    return EXIT_FAILED if any("error" in state for state in states) else 0


def _read(type_name: str, name: str, provider: str | None) -> dict[str, Any]:
    from mainstay.converge.contract import Failure
    from mainstay.converge.run import read_state

    try:
        return read_state(type_name, name, provider)
    except Failure as failure:
        raise CommandRefused(str(failure), exit_code=EXIT_FAILED) from None
    except OSError as error:
        raise CommandRefused(f"{error.strerror}: {name}", exit_code=EXIT_FAILED) from None


def _show(state: dict[str, Any], *, after_another: bool) -> None:
    from mainstay.cli.views.run_display import printable

    if "error" in state:
        print_error(f"{state['resource']}: {state['error'].removeprefix(state['resource'] + ': ')}")
        return
    if after_another:
        print()
    width = max(len(key) for key in state)
    for key, value in state.items():
        if value is not None:
            text = str(value).lower() if isinstance(value, bool) else str(value)
            print(f"{key:<{width}}  {printable(text)}")
