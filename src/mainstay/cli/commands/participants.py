"""Lists participants: the customers and providers of services. `participants add NAME` creates a participant and a
token; `participants token NAME` creates another token. A token is shown once; --token-file writes it to a file instead.
With --read-only the token only reads and validates: for dashboards and checks."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

from mainstay.cli.main import CommandRefused
from mainstay.cli.remote.connection import connected, find_named, list_items, short_id, write_private
from mainstay.cli.remote.connection_options import add_remote_options
from mainstay.cli.views.run_display import printable
from mainstay.cli.views.tables import BAD, GOOD, age, local_time, print_table

TYPE_CHECKING = False
if TYPE_CHECKING:
    import argparse
    from typing import Any

    from mainstay.agent.client import Client

SUMMARY = "list participants, or add one with its token"
DAYS = 365
MAX_DAYS = 36_500


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "verb", metavar="add|token", nargs="?", choices=("add", "token"), help="add a participant, or create a token"
    )
    parser.add_argument("name", metavar="PARTICIPANT", nargs="?", help="name of the participant")
    parser.add_argument(
        "--token-file", metavar="FILE", help="write the token to this file (mode 0600) instead of printing it"
    )
    parser.add_argument(
        "--days", metavar="N", type=_days_option, default=DAYS, help=f"validity of the token in days (default {DAYS})"
    )
    parser.add_argument("--read-only", action="store_true", help="the token may only read and validate")
    add_remote_options(parser)


def _days_option(text: str) -> int:
    from argparse import ArgumentTypeError

    from mainstay.foundation.numbers import parse_count

    days = parse_count(text, 1, MAX_DAYS)
    if days is None:
        raise ArgumentTypeError(f"must be a whole number from 1 to {MAX_DAYS}, not {text!r}")
    return days


def run(arguments: argparse.Namespace) -> int:
    if arguments.verb and not arguments.name:
        raise CommandRefused(f"name the participant: mainstay participants {arguments.verb} NAME")
    if arguments.verb is None and (arguments.token_file or arguments.read_only):
        option = "--token-file" if arguments.token_file else "--read-only"
        raise CommandRefused(f"{option} is an option of `add` and `token`")
    with connected(arguments) as client:
        if arguments.verb is None:
            return _list_participants(client, arguments)
        if arguments.verb == "token":
            participant = find_named(client, "/participants", "participant", arguments.name)
        else:
            participant = _add(client, arguments.name)
        until = datetime.now(UTC) + timedelta(days=arguments.days)
        body = {"role": "participant", "scopeId": participant["id"], "expireAt": until.isoformat()}
        if arguments.read_only:
            body["readOnly"] = True
        token = client.post("/tokens", {"name": participant["name"], **body})
        return _print_token(arguments, client.url, participant, token)


def _list_participants(client: Client, arguments: argparse.Namespace) -> int:
    found = list_items(client, "/participants", {"sort": "name"})
    if arguments.json:
        from mainstay.cli.local_run import print_json

        print_json(found)
    elif found:
        rows = [
            [
                each["name"],
                (each["status"], GOOD if each["status"] == "Enabled" else BAD),
                age(each["createdAt"]),
                short_id(each["id"]),
            ]
            for each in found
        ]
        print_table(("PARTICIPANT", "STATUS", "AGE", "ID"), rows)
    else:
        print("There is no participant yet; `mainstay participants add NAME` creates one.")
    return 0


def _add(client: Client, name: str) -> Any:
    if any(each["name"] == name for each in list_items(client, "/participants", {"name": name})):
        raise CommandRefused(
            f"participant {name!r} already exists; `mainstay participants token {name}` creates a token"
        )
    return client.post("/participants", {"name": name})


def _print_token(arguments: argparse.Namespace, url: str, participant: Any, token: Any) -> int:
    value = token.pop("value")
    if arguments.token_file:
        write_private(Path(arguments.token_file), value + "\n")
    if arguments.json:
        from mainstay.cli.local_run import print_json

        shown = {} if arguments.token_file else {"value": value}
        print_json({**participant, "token": {**token, **shown}})
        return 0
    limits = f"{'read-only, ' if token.get('readOnly') else ''}valid until {local_time(token['expireAt'])}"
    name = printable(participant["name"])
    if arguments.token_file:
        print(f"Token of {name}, {limits}, saved to {printable(arguments.token_file)}.")
        print(f"Log in with: mainstay login {url} --token-file {printable(arguments.token_file)}")
    else:
        print(f"Token of {name}, {limits}, shown only once:\n\n  {value}\n")
        print(f"Log in with: mainstay login {url}")
    return 0
