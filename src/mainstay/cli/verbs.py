"""Verbs of a command: `mainstay agents` lists, `mainstay agents remove NAME` removes. Each verb has its own help.

A command with a `shown` verb also accepts a name in its place: `mainstay pools ports` is `mainstay pools show ports`."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import Any

from mainstay.agent.client import Client
from mainstay.cli.main import add_argument
from mainstay.cli.remote.connection import connected
from mainstay.cli.remote.connection_options import add_remote_options
from mainstay.foundation import Struct

Act = Callable[[Client, argparse.Namespace], int]


class Verb(Struct):
    """`act` runs the verb with a connected client. `of`: what it takes the name or id of, as help shows it.
    `configure` adds its other arguments."""

    name: str
    summary: str
    act: Act
    configure: Callable[[argparse.ArgumentParser], None] | None = None
    of: str | None = None


def add_verbs(parser: argparse.ArgumentParser, otherwise: Act, *verbs: Verb, shown: str | None = None) -> None:
    """Adds the verbs; they and the command itself have the options of every command that calls a server. Without a verb
    the command does `otherwise`."""
    add_remote_options(parser)
    parser.set_defaults(act=otherwise)
    names = [verb.name for verb in verbs]

    class VerbOrName(argparse._SubParsersAction):  # type: ignore[type-arg]  # generic only in type stubs
        """Takes a word that is no verb for the name that `shown` shows."""

        def __call__(self, parser: Any, namespace: Any, values: Any, option_string: str | None = None) -> None:
            words = values if shown is None or values[0] in names else [shown, *values]
            super().__call__(parser, namespace, words, option_string)

    listed = "|".join(names)
    children = parser.add_subparsers(
        dest="verb", metavar=listed if shown is None else f"NAME|{listed}", action=VerbOrName
    )
    if shown is not None:
        children.choices = _AnyWord(children.choices)
    inherited = {action.dest for action in parser._actions}
    for verb in verbs:
        child = children.add_parser(
            verb.name,
            help=verb.summary,
            description=verb.summary[:1].upper() + verb.summary[1:] + ".",
            formatter_class=parser.formatter_class,
            allow_abbrev=False,
        )
        if verb.of is not None:
            add_argument(child, "name", verb.of, "name or id")
        if verb.configure is not None:
            verb.configure(child)
        add_remote_options(child)
        for action in child._actions:
            if action.dest in inherited:
                # Otherwise the default of the verb overrides the option before the verb: `agents --json show …`.
                action.default = argparse.SUPPRESS
        child.set_defaults(act=verb.act)


class _AnyWord(dict):  # type: ignore[type-arg]  # a view of argparse's own map
    """The verbs, for help and completion; argparse accepts any other word too."""

    def __contains__(self, word: object) -> bool:
        return True


def run_verb(arguments: argparse.Namespace) -> int:
    """The `run` of a command with verbs."""
    with connected(arguments) as client:
        code: int = arguments.act(client, arguments)
        return code
