"""Shows what is known about this host, whole or one part of it.

mainstay facts os.family"""

from __future__ import annotations

from mainstay.cli.local_run import EXIT_FAILED, assignment, print_json
from mainstay.cli.main import CommandRefused

TYPE_CHECKING = False
if TYPE_CHECKING:
    import argparse

SUMMARY = "show what is known about this host"


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "path", metavar="PATH", nargs="?", default="", help="a dotted path, such as network.default_ipv4"
    )
    parser.add_argument("--json", action="store_true", help="print JSON also for a single value")
    parser.add_argument("--facts", metavar="FILE", action="append", default=[], help="facts over the host's own")
    parser.add_argument("--fact", metavar="KEY=VALUE", action="append", default=[], help="one fact over all others")


def run(arguments: argparse.Namespace) -> int:
    from mainstay.cli.local_run import or_exit
    from mainstay.converge.manifest.expressions import TemplateScope, Unresolved
    from mainstay.converge.run import RunRequest, Session, read_values

    with or_exit(as_json=arguments.json):
        layers = [read_values(path) for path in arguments.facts]
        layers += [assignment(text, "--fact") for text in arguments.fact]
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
