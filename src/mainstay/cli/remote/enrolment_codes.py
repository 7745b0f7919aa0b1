"""Enrollment codes: of an existing agent, and for many hosts, with a list and revocation."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from mainstay.agent.client import Client, is_loopback, is_unencrypted
from mainstay.cli.main import CommandRefused, add_argument, add_list_option, add_switch, parse_seconds
from mainstay.cli.remote.agent_providers import DEFAULT_PROVIDER, announce_grant, find_provider
from mainstay.cli.remote.connection import (
    find_by_id,
    find_named,
    find_participant_id,
    list_items,
    name_of,
    print_warning,
    short_id,
)
from mainstay.cli.remote.removal import add_yes_option, confirm, print_list, print_outcome
from mainstay.cli.views.run_display import counted, printable
from mainstay.cli.views.tables import BAD, DIM, GOOD, Cell, local_time

PATH, NOUN = "/enrolment-codes", "enrollment code"


def configure_code(parser: argparse.ArgumentParser) -> None:
    add_argument(parser, "name", "AGENT", "existing agent: name or id", nargs="?")
    add_argument(
        parser, "--type", "AGENT-TYPE", "instead of AGENT: enroll new hosts with this agent type", dest="agent_type"
    )
    add_argument(parser, "--count", "N", "with --type: number of hosts (default 1)", type=int)
    add_argument(
        parser, "--for", "DURATION", "with --type: lifetime of the code (default 1h, at most 168h)", dest="lifetime"
    )
    add_list_option(parser, "--tag", "TAG", "with --type: tag of the new agents")
    add_argument(
        parser,
        "--prefix",
        "TEXT",
        "with --type: text before the names of the agents, also before --name of `agent enroll`",
    )
    add_argument(
        parser,
        "--provider",
        "PARTICIPANT",
        f"with --type: provider of the new agents (default: you; for an admin {DEFAULT_PROVIDER})",
    )
    add_switch(
        parser, "--no-grant", "with --type, as an admin: do not let the provider's agents serve other participants"
    )
    add_switch(
        parser, "--outlives-token", "with --type, as an admin: the code does not end with the token that creates it"
    )
    add_switch(parser, "-q", "--quiet", "print only the code")


def configure_revocation(parser: argparse.ArgumentParser) -> None:
    add_argument(parser, "code_id", "CODE-ID", "id of the code, as `mainstay agents codes` shows it")
    add_yes_option(parser)


def create_code(client: Client, arguments: argparse.Namespace) -> int:
    """For an agent, or for many hosts with --type."""
    if arguments.agent_type is None:
        _refuse_options_of_types(arguments)
        return show_agent_code(client, arguments, find_named(client, "/agents", arguments.name))
    if arguments.name is not None:
        raise CommandRefused(
            f"give an agent or --type, not both: a code of agent {arguments.name} enrolls one host, a code of a type"
            " creates agents"
        )
    agent_type = _find_agent_type(client, arguments.agent_type)
    provider_id = (
        find_participant_id(client, arguments.provider) if arguments.provider else find_provider(client, arguments)
    )
    body = {
        "agentTypeId": agent_type["id"],
        "providerId": provider_id,
        "count": 1 if arguments.count is None else arguments.count,
        "tags": arguments.tag,
        **({"lifetimeSeconds": int(parse_seconds(arguments.lifetime, "--for"))} if arguments.lifetime else {}),
        **({"namePrefix": arguments.prefix} if arguments.prefix else {}),
        **({"outlivesToken": True} if arguments.outlives_token else {}),
        **announce_grant(client, arguments, agent_type, provider_id),
    }
    created = client.post(PATH, body)
    return _show_created(client, arguments, created)


def _find_agent_type(client: Client, name: str) -> Any:
    try:
        return find_named(client, "/agent-types", name)
    except CommandRefused as refusal:
        raise CommandRefused(
            f"{refusal}\nAn admin creates agent types: `mainstay agents add NAME --serves SERVICE-TYPE` creates the one of"
            " a first agent, named like the service type; `mainstay plane apply` creates others."
        ) from None


def _refuse_options_of_types(arguments: argparse.Namespace) -> None:
    options = {
        "--count": arguments.count is not None,
        "--for": arguments.lifetime,
        "--tag": arguments.tag,
        "--prefix": arguments.prefix,
        "--provider": arguments.provider,
        "--no-grant": arguments.no_grant,
        "--outlives-token": arguments.outlives_token,
    }
    given = [option for option, value in options.items() if value]
    if given:
        raise CommandRefused(f"{', '.join(given)}: only with --type, which enrolls new hosts")
    if arguments.name is None:
        raise CommandRefused(
            "name an agent, or the type of new ones: `mainstay agents code AGENT`, or"
            " `mainstay agents code --type AGENT-TYPE --count 50 --for 1h`"
        )


def _show_created(client: Client, arguments: argparse.Namespace, created: Mapping[str, Any]) -> int:
    if arguments.json:
        return print_outcome(arguments, {**created, "url": client.url}, "")
    if arguments.quiet:
        print(created["code"])
        return 0
    until = local_time(created["expiresAt"])
    print(f"Run this on {counted(created['count'], 'host')} before {until}, as the user of the agent:\n")
    _print_command(client, created["code"])
    prefix = created.get("namePrefix")
    names = f"the name {printable(prefix)}HOST" if prefix else "the name of the host"
    print(
        f"Each host becomes an agent with {names}; --name chooses another"
        f"{' HOST' if prefix else ''}. The code is shown only now.\n"
        f"`mainstay agents revoke-code {short_id(created['id'])}` revokes it."
    )
    return 0


def show_agent_code(client: Client, arguments: argparse.Namespace, agent: Mapping[str, Any]) -> int:
    code = client.post(f"/agents/{agent['id']}/enrolment-codes")
    if arguments.json:
        return print_outcome(arguments, {**agent, "enrolment": {**code, "url": client.url}}, "")
    if arguments.quiet:
        print(code["code"])
        return 0
    print("Run this on the host within 15 minutes, as the user of the agent:\n")
    _print_command(client, code["code"])
    return 0


def _print_command(client: Client, code: str) -> None:
    insecure = " --insecure" if is_unencrypted(client.url) else ""
    print(f"  mainstay agent enroll {client.url} {code}{insecure}\n")
    if is_loopback(client.url):
        print_warning(f"{client.url} is a loopback address; on another host use an address that reaches this server")


def list_codes(client: Client, arguments: argparse.Namespace) -> int:
    found = list_items(client, PATH, {"sort": "-createdAt"})
    return print_list(
        arguments,
        found,
        ("CODE", "STATE", "LEFT", "AGENT TYPE", "PROVIDER", "TAGS", "EXPIRES", "CREATED BY"),
        map(_row, found),
        "There is no code for many hosts; `mainstay agents code --type AGENT-TYPE --count N` creates one.",
    )


def _row(code: Mapping[str, Any]) -> list[Cell]:
    return [
        short_id(code["id"]),
        _state(code),
        f"{code['usesLeft']} of {code['count']}",
        name_of(code, "agentType"),
        name_of(code, "provider"),
        ", ".join(code["tags"]),
        local_time(code["expiresAt"]),
        _creator(code),
    ]


def _state(code: Mapping[str, Any]) -> Cell:
    if code["usesLeft"] == 0:
        return ("used up", DIM)
    expired = datetime.fromisoformat(code["expiresAt"]) <= datetime.now(UTC)
    return ("expired", BAD) if expired else ("valid", GOOD)


def _creator(code: Mapping[str, Any]) -> str:
    if code["initiatorRole"] == "participant":
        return name_of(code, "provider")
    name = name_of(code, "initiator")
    return f"admin {name}" if name else "an admin"


def revoke_code(client: Client, arguments: argparse.Namespace) -> int:
    code = find_by_id(client, PATH, arguments.code_id)
    left = f"{code['usesLeft']} of {code['count']} places"
    confirm(
        arguments,
        f"Revoke {NOUN} {code['id']} with {left} left? Hosts that it enrolled stay; further ones are refused.",
    )
    client.call("DELETE", f"{PATH}/{code['id']}")
    return print_outcome(arguments, code, f"Revoked {NOUN} {short_id(code['id'])}.")
