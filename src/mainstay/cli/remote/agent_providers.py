"""The provider of new agents: the caller, the participant that an option names, or for an admin a default one. And
whom the agents of the provider serve."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from typing import Any

from mainstay.agent.client import Client
from mainstay.cli.main import CommandRefused
from mainstay.cli.remote.connection import find_named, find_participant_id, is_id, list_items
from mainstay.cli.views.run_display import printable

# Of agents that an admin adds.
DEFAULT_PROVIDER = "operator"


def find_provider(client: Client, arguments: argparse.Namespace) -> str:
    """Returns the id of the provider. Creates the participant if an admin names none or a new one."""
    me = client.get("/tokens/me")
    if me["participantId"] and not arguments.provider:
        return str(me["participantId"])
    name = arguments.provider or DEFAULT_PROVIDER
    if is_id(name):
        return find_participant_id(client, name)
    if any(each["name"] == name for each in list_items(client, "/participants", {"name": name})):
        found = find_named(client, "/participants", name)
        if not arguments.provider:
            _refuse_renamed(client, found)
        return str(found["id"])
    created = client.post("/participants", {"name": name})
    print_note(arguments, f"Created participant {name}.")
    return str(created["id"])


def _refuse_renamed(client: Client, found: Mapping[str, Any]) -> None:
    """A participant can take the default name to get the agents of an admin; that needs a token of its own."""
    if list_items(client, "/tokens", {"participantId": found["id"], "role": "participant"}, limit=1):
        raise CommandRefused(
            f"participant {found['name']} ({found['id']}) has a token of its own; if it is the provider,"
            f" repeat the command with --provider {found['id']}"
        )


def announce_grant(
    client: Client,
    arguments: argparse.Namespace,
    agent_type: Mapping[str, Any],
    provider_id: str,
    otherwise: str = "",
) -> dict[str, Any]:
    """Reports whom new agents will serve, before they exist; `otherwise` if it is only their own participant. Returns
    the members that the request needs."""
    if provider_id in agent_type["providerIds"]:
        return {}
    is_admin = client.get("/tokens/me")["role"] == "admin"
    if is_admin and not arguments.no_grant:
        name = client.get(f"/participants/{provider_id}")["name"]
        print_note(
            arguments,
            f"Agents of {name} with agent type {agent_type['name']} may now serve all participants;"
            " --no-grant keeps them to their own.",
        )
        return {}
    if otherwise:
        print_note(arguments, otherwise)
    return {"grant": False} if is_admin else {}


def print_note(arguments: argparse.Namespace, text: str) -> None:
    if not arguments.json and not arguments.quiet:
        print(printable(text))
