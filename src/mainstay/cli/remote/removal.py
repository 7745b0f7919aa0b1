"""Asks before something is removed, and removes it. Prints lists and outcomes, as text or JSON."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from mainstay.agent.client import Client
from mainstay.cli.main import CommandRefused, add_switch, print_json
from mainstay.cli.remote.connection import find_named, word_of
from mainstay.cli.verbs import Verb
from mainstay.cli.views.run_display import printable
from mainstay.cli.views.tables import Cell, print_table


def add_yes_option(parser: argparse.ArgumentParser) -> None:
    add_switch(parser, "--yes", "do not ask for a confirmation")


def confirm(arguments: argparse.Namespace, question: str) -> None:
    """Raises `CommandRefused` unless the user agrees. Without a terminal only --yes agrees."""
    if arguments.yes:
        return
    if not sys.stdin.isatty():
        raise CommandRefused(f"{question}\nThere is no terminal to ask on: repeat the command with --yes to confirm.")
    print(f"{printable(question, keep_newlines=True)} [y/N] ", end="", file=sys.stderr, flush=True)
    if sys.stdin.readline().strip().lower() not in ("y", "yes"):
        raise CommandRefused("nothing was changed", exit_code=1)


def confirm_by_name(arguments: argparse.Namespace, warning: str, name: str, intent: str, done: str) -> None:
    """As `confirm`, for what cannot be undone: the user types the name."""
    if arguments.yes:
        return
    if not sys.stdin.isatty():
        raise CommandRefused(f"{printable(warning)}\nTo {intent} without a terminal, use --yes.")
    print(printable(warning))
    if input(f"Type {printable(name)} to {intent}: ").strip() != name:
        raise CommandRefused(f"nothing was {done}: the name does not match")


def remove(
    client: Client, arguments: argparse.Namespace, path: str, record: Mapping[str, Any], note: str = ""
) -> int:
    """Deletes the record at `path` after a confirmation. `note` says what goes with it."""
    noun, name = word_of(path), str(record.get("name") or record["id"])
    confirm(arguments, f"Remove {noun} {name} ({record['id']})?{f' {note}' if note else ''}")
    client.call("DELETE", f"{path}/{record['id']}")
    return print_outcome(arguments, record, f"Removed {noun} {name}.")


def removal_verb(path: str, metavar: str, summary: str, note: str = "", *, name: str = "remove") -> Verb:
    """A verb that removes one record of the list at `path`."""

    def act(client: Client, arguments: argparse.Namespace) -> int:
        return remove(client, arguments, path, find_named(client, path, arguments.name), note)

    return Verb(name, summary, act, add_yes_option, of=metavar)


def print_list(
    arguments: argparse.Namespace,
    found: Sequence[Any],
    headers: Sequence[str],
    rows: Iterable[Sequence[Cell]],
    empty: str,
) -> int:
    """The documents with --json, else a table. `rows` may be a generator, which reads what only the table needs."""
    if arguments.json:
        print_json(found)
    elif found:
        print_table(headers, list(rows))
    else:
        print(empty)
    return 0


def print_outcome(arguments: argparse.Namespace, document: object, text: str) -> int:
    """The document with --json, else the text."""
    if arguments.json:
        print_json(document)
    else:
        print(printable(text, keep_newlines=True))
    return 0
