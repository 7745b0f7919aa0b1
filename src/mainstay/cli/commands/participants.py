"""Lists participants: the customers and providers of services. `participants add NAME` creates a participant and a
token; `participants token NAME` creates another token. A token is shown once; --token-file writes it to a file instead.

A disabled participant and its agents are refused by the server (403) until it is enabled again; its services keep running.
`participants remove` removes a participant without living services, agents, options and pools."""

from __future__ import annotations

import argparse
from typing import Any

from mainstay.agent.client import Client
from mainstay.cli.main import CommandRefused, add_argument
from mainstay.cli.remote.connection import find_named, list_items
from mainstay.cli.remote.new_tokens import add_token_options, show_token, token_body
from mainstay.cli.remote.noun_verbs import NounVerbs
from mainstay.cli.remote.removal import print_outcome
from mainstay.cli.verbs import Verb, add_verbs, run_verb
from mainstay.nouns.participants import NOUN

SUMMARY = "list, add, change, disable or remove participants"
GROUP = "operate"
PATH = NOUN.path
PARTICIPANTS = NounVerbs(
    NOUN, "PARTICIPANT", "There is no participant yet; `mainstay participants add NAME` creates one."
)
DAYS = 365
# Verb: the new status, and what the verb reports.
STATUS_OF_VERB = {
    "disable": ("Disabled", "is disabled: the server refuses its tokens and agents; its services keep running"),
    "enable": ("Enabled", "is enabled"),
}


def configure(parser: argparse.ArgumentParser) -> None:
    add_verbs(
        parser,
        PARTICIPANTS.list_rows,
        Verb("add", "add a participant and create its first token", _add, _configure_addition),
        PARTICIPANTS.change("rename a participant or change what is known about it"),
        Verb("token", "create another token of a participant", _create_token, _configure_token),
        Verb("disable", "refuse all requests of a participant and its agents", _set_status, of="PARTICIPANT"),
        Verb("enable", "admit a disabled participant again", _set_status, of="PARTICIPANT"),
        PARTICIPANTS.removal(
            "remove a participant with its groups and tokens", "Its groups and tokens are removed too."
        ),
    )


run = run_verb


def _configure_addition(parser: argparse.ArgumentParser) -> None:
    PARTICIPANTS.configure_addition(parser)
    add_token_options(parser, "--token-file", DAYS)


def _configure_token(parser: argparse.ArgumentParser) -> None:
    add_argument(parser, "name", "PARTICIPANT", "name of the participant")
    add_token_options(parser, "--token-file", DAYS)


def _add(client: Client, arguments: argparse.Namespace) -> int:
    name = arguments.name
    if any(each["name"] == name for each in list_items(client, PATH, {"name": name})):
        raise CommandRefused(
            f"participant {name!r} already exists; `mainstay participants token {name}` creates a token"
        )
    return _print_token(client, arguments, client.post(PATH, PARTICIPANTS.new_body(client, arguments)))


def _create_token(client: Client, arguments: argparse.Namespace) -> int:
    return _print_token(client, arguments, find_named(client, PATH, arguments.name))


def _print_token(client: Client, arguments: argparse.Namespace, participant: Any) -> int:
    scope = {"name": participant["name"], "role": "participant", "scopeId": participant["id"]}
    token = client.post("/tokens", {**scope, **token_body(arguments)})
    return show_token(arguments, client.url, f"Token of {participant['name']}", token, participant)


def _set_status(client: Client, arguments: argparse.Namespace) -> int:
    status, outcome = STATUS_OF_VERB[arguments.verb]
    participant = find_named(client, PATH, arguments.name)
    changed = client.call("PATCH", f"{PATH}/{participant['id']}", {"status": status})
    return print_outcome(arguments, changed, f"Participant {participant['name']} {outcome}.")
