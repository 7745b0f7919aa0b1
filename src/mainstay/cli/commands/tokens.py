"""Lists tokens: name, owner, role, expiry and last use, never their values. A participant sees its own and those of its
agents, an admin sees all.

`tokens create NAME` creates a token for you, or for another owner with --for (a participant) or --agent. The value is shown
once; --output writes it to a file instead. Without --days it ends after a day. `tokens revoke` ends a token at once,
`tokens renew` gives it a new value; enrollment codes that it made end as well."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from datetime import datetime, timezone
from typing import Any

from mainstay.agent.client import Client
from mainstay.cli.main import CommandRefused, add_argument, add_switch, print_json
from mainstay.cli.remote.connection import find_agent, find_named, find_participant_id, list_items, name_of, short_id
from mainstay.cli.remote.new_tokens import add_token_file_option, add_token_options, show_token, token_body
from mainstay.cli.remote.removal import add_yes_option, confirm, print_outcome
from mainstay.cli.verbs import Verb, add_verbs, run_verb
from mainstay.cli.views.tables import BAD, Cell, age, local_time, print_table

SUMMARY = "list, create, renew or revoke tokens"
GROUP = "operate"
PATH = "/tokens"
OUTPUT = "--output"


def configure(parser: argparse.ArgumentParser) -> None:
    add_verbs(
        parser,
        _list_tokens,
        Verb("create", "create a token", _create, _configure_create),
        Verb("renew", "give a token a new value; the old value becomes invalid", _renew, _configure_renew, "TOKEN"),
        Verb("revoke", "end a token at once", _revoke, add_yes_option, "TOKEN"),
    )


run = run_verb


def _configure_create(parser: argparse.ArgumentParser) -> None:
    add_argument(parser, "name", "NAME", "name of the token")
    owner = parser.add_mutually_exclusive_group()
    add_argument(owner, "--for", "PARTICIPANT", "participant that the token belongs to", dest="owner")
    add_argument(owner, "--agent", "AGENT", "agent that the token belongs to")
    add_switch(owner, "--admin", "create an admin token")
    add_token_options(parser, OUTPUT, None)


def _configure_renew(parser: argparse.ArgumentParser) -> None:
    add_token_file_option(parser, OUTPUT)
    add_yes_option(parser)


def _list_tokens(client: Client, arguments: argparse.Namespace) -> int:
    found = list_items(client, PATH, {"sort": "name"})
    if arguments.json:
        print_json(found)
        return 0
    print_table(("TOKEN", "ROLE", "OWNER", "EXPIRES", "LAST USED", "AGE", "ID"), [_row(each) for each in found])
    return 0


def _row(token: Mapping[str, Any]) -> list[Cell]:
    last_used = token.get("lastUsedAt")
    return [
        token["name"],
        f"{token['role']}, read-only" if token.get("readOnly") else token["role"],
        _owner(token),
        _expiry_cell(token.get("expireAt")),
        f"{age(last_used)} ago" if last_used else "never",
        age(token["createdAt"]),
        short_id(token["id"]),
    ]


def _owner(token: Mapping[str, Any]) -> str:
    agent = name_of(token, "agent")
    return f"agent {agent}" if agent else name_of(token, "participant")


def _of_owner(token: Mapping[str, Any]) -> str:
    owner = _owner(token)
    return f" of {owner}" if owner else ""


def _expiry_cell(expire_at: str | None) -> Cell:
    if expire_at is None:
        return "never"
    expired = datetime.fromisoformat(expire_at) <= datetime.now(timezone.utc)
    return ("expired", BAD) if expired else local_time(expire_at)


def _create(client: Client, arguments: argparse.Namespace) -> int:
    body = {"name": arguments.name, **_scope(client, arguments), **token_body(arguments)}
    return _print_token(client, arguments, client.post(PATH, body))


def _scope(client: Client, arguments: argparse.Namespace) -> dict[str, Any]:
    if arguments.admin:
        return {"role": "admin"}
    if arguments.agent:
        return {"role": "agent", "scopeId": find_agent(client, arguments.agent)["id"]}
    if arguments.owner:
        return {"role": "participant", "scopeId": find_participant_id(client, arguments.owner)}
    me = client.get("/tokens/me")
    if me["participantId"] is None:
        raise CommandRefused("as an admin you must name the owner: --for PARTICIPANT, --agent AGENT or --admin")
    return {"role": "participant", "scopeId": me["participantId"]}


def _renew(client: Client, arguments: argparse.Namespace) -> int:
    token = find_named(client, PATH, arguments.name)
    confirm(
        arguments, f"Give token {token['name']} ({token['id']}) a new value? Its present value stops working at once."
    )
    return _print_token(client, arguments, client.post(f"{PATH}/{token['id']}/regenerate"))


def _print_token(client: Client, arguments: argparse.Namespace, token: dict[str, Any]) -> int:
    return show_token(arguments, client.url, f"Token {token['name']}{_of_owner(token)}", token)


def _revoke(client: Client, arguments: argparse.Namespace) -> int:
    token = find_named(client, PATH, arguments.name)
    whose = _of_owner(token)
    confirm(arguments, f"Revoke token {token['name']}{whose} ({token['id']})? Its users are refused at once.")
    ended = client.call("DELETE", f"{PATH}/{token['id']}") or {"enrolmentCodes": [], "agentIds": []}
    lines = [f"Revoked token {token['name']}{whose}."]
    lines += [
        f"Enrollment code {short_id(code['id'])}, which it made, ended with {code['usesLeft']} of {code['count']} places left."
        for code in ended["enrolmentCodes"]
    ]
    lines += [f"Its enrollment code of agent {short_id(each)} ended." for each in ended["agentIds"]]
    return print_outcome(arguments, {**token, "ended": ended}, "\n".join(lines))
