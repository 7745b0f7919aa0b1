"""Prints the facts of this host, all or one part.

mainstay facts os.family"""

from __future__ import annotations

import argparse

from mainstay.cli.local_run import EXIT_FAILED, add_fact_options, exit_on_faults, facts_layers
from mainstay.cli.main import CommandRefused, add_argument, add_switch, print_json
from mainstay.cli.views.run_display import printable
from mainstay.converge.manifest.scope import TemplateScope, Unresolved
from mainstay.converge.run import RunRequest, Session

SUMMARY = "print the facts of this host"
GROUP = "this host"


def configure(parser: argparse.ArgumentParser) -> None:
    add_argument(parser, "path", "PATH", "dotted path, such as network.default_ipv4", nargs="?", default="")
    add_switch(parser, "--json", "print a single value as JSON too")
    add_fact_options(parser)


def run(arguments: argparse.Namespace) -> int:
    with exit_on_faults(as_json=arguments.json):
        session = Session(RunRequest(facts_layers=facts_layers(arguments)))
        path = arguments.path.removeprefix("facts.")
        try:
            value = TemplateScope({"facts": session.facts}).lookup(f"facts.{path}" if path else "facts")
        except Unresolved as error:
            raise CommandRefused(str(error), exit_code=EXIT_FAILED) from None
    if arguments.json or isinstance(value, (dict, list)):
        print_json(value)
    elif value is not None:
        print(str(value).lower() if isinstance(value, bool) else printable(str(value), keep_newlines=True))
    return 0
