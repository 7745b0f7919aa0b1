"""Lists service groups: how a customer groups its services. An agent works on one service of a group at a time.

`groups add NAME` creates a group, `groups rename` renames it, `groups remove` removes a group without living services.
An order without a group goes to the group `default` of its customer, which the first such order creates."""

from __future__ import annotations

import argparse

from mainstay.agent.client import Client
from mainstay.cli.main import CommandRefused, add_argument
from mainstay.cli.remote.connection import find_named, list_items
from mainstay.cli.remote.noun_verbs import NounVerbs
from mainstay.cli.remote.removal import print_outcome
from mainstay.cli.verbs import Verb, add_verbs, run_verb
from mainstay.nouns.service_groups import NOUN

SUMMARY = "list, add, rename or remove service groups"
GROUP = "order"
PATH = NOUN.path
GROUPS = NounVerbs(
    NOUN, "GROUP", "There is no group yet; the first order creates the group `default`.", done="Created"
)


def configure(parser: argparse.ArgumentParser) -> None:
    add_verbs(
        parser,
        GROUPS.list_rows,
        Verb("add", "add a group", _add, GROUPS.configure_addition),
        Verb("rename", "rename a group", _rename, _configure_rename, of="GROUP"),
        *GROUPS.further_changes("change a group"),
        GROUPS.removal(
            "remove a group without living services", "Its deleted services are removed from the lists too."
        ),
    )


run = run_verb


def _configure_rename(parser: argparse.ArgumentParser) -> None:
    add_argument(parser, "new_name", "NAME", "new name")


def _add(client: Client, arguments: argparse.Namespace) -> int:
    body = GROUPS.new_body(client, arguments)
    known = list_items(client, PATH, {"name": body["name"], "consumerId": body["consumerId"]})
    if any(each["name"] == body["name"] for each in known):
        raise CommandRefused(f"group {body['name']!r} already exists")
    return GROUPS.add(client, arguments, body)


def _rename(client: Client, arguments: argparse.Namespace) -> int:
    group = find_named(client, PATH, arguments.name)
    changed = client.call("PATCH", f"{PATH}/{group['id']}", {"name": arguments.new_name})
    return print_outcome(arguments, changed, f"Renamed group {group['name']} to {changed['name']}.")
