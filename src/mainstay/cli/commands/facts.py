"""Prints the facts of this host, all or one part.

mainstay facts os.family"""

from __future__ import annotations

from mainstay.cli.local_run import EXIT_FAILED, parse_assignment
from mainstay.cli.main import CommandRefused, print_json

TYPE_CHECKING = False
if TYPE_CHECKING:
    import argparse

SUMMARY = "print the facts of this host"


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "path", metavar="PATH", nargs="?", default="", help="dotted path, such as network.default_ipv4"
    )
    parser.add_argument("--json", action="store_true", help="print a single value as JSON too")
    parser.add_argument(
        "--facts", metavar="FILE", action="append", default=[], help="facts that override the host's facts"
    )
    parser.add_argument(
        "--fact", metavar="KEY=VALUE", action="append", default=[], help="one fact that overrides all others"
    )


def run(arguments: argparse.Namespace) -> int:
    from mainstay.cli.local_run import exit_on_faults
    from mainstay.converge.manifest.expressions import TemplateScope, Unresolved
    from mainstay.converge.run import RunRequest, Session, read_values

    with exit_on_faults(as_json=arguments.json):
        layers = [read_values(path) for path in arguments.facts]
        layers += [parse_assignment(text, "--fact") for text in arguments.fact]
        session = Session(RunRequest(facts_layers=layers))
        path = arguments.path.removeprefix("facts.")
        try:
            value = TemplateScope({"facts": session.facts}).lookup(f"facts.{path}" if path else "facts")
        except Unresolved as error:
            raise CommandRefused(str(error), exit_code=EXIT_FAILED) from None
    if arguments.json or isinstance(value, (dict, list)):
        print_json(value)
    elif value is not None:
        from mainstay.cli.views.run_display import printable

        print(str(value).lower() if isinstance(value, bool) else printable(str(value), keep_newlines=True))
    return 0
