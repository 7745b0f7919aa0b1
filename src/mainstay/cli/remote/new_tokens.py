"""Creates tokens and shows their value once, or writes it to a file that only its owner can read."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

from mainstay.cli.main import add_argument, add_switch, print_json, whole_number
from mainstay.cli.remote.connection import write_private
from mainstay.cli.views.run_display import printable
from mainstay.cli.views.tables import local_time

MAX_DAYS = 36_500


def add_token_options(parser: argparse.ArgumentParser, file_option: str, default_days: int | None) -> None:
    """`default_days` None: the server decides."""
    shown = "1 day, or until your own token expires" if default_days is None else str(default_days)
    add_token_file_option(parser, file_option)
    add_argument(
        parser,
        "--days",
        "N",
        f"validity of the token in days (default {shown})",
        type=whole_number(1, MAX_DAYS, f"from 1 to {MAX_DAYS}"),
        default=default_days,
    )
    add_switch(parser, "--read-only", "the token may only read and validate")


def add_token_file_option(parser: argparse.ArgumentParser, option: str) -> None:
    add_argument(
        parser, option, "FILE", "write the token to this file (mode 0600) instead of printing it", dest="token_file"
    )


def token_body(arguments: argparse.Namespace) -> dict[str, Any]:
    """The members of a new token that the options set."""
    body: dict[str, Any] = {}
    if arguments.days is not None:
        body["expireAt"] = (datetime.now(timezone.utc) + timedelta(days=arguments.days)).isoformat()
    if arguments.read_only:
        body["readOnly"] = True
    return body


def show_token(
    arguments: argparse.Namespace,
    url: str,
    subject: str,
    token: dict[str, Any],
    participant: Mapping[str, Any] | None = None,
) -> int:
    """Prints the value, or writes it to the file of the options. `subject`: the token and its owner, as the sentence
    names them. A JSON document is that of the participant, if given, with its token."""
    value = str(token.pop("value"))
    if arguments.token_file:
        write_private(Path(arguments.token_file), value + "\n")
    if arguments.json:
        shown = token if arguments.token_file else {**token, "value": value}
        print_json(shown if participant is None else {**participant, "token": shown})
        return 0
    until = f"valid until {local_time(token['expireAt'])}" if token.get("expireAt") else "without expiry"
    limits = f"{'read-only, ' if token.get('readOnly') else ''}{until}"
    file = printable(arguments.token_file or "")
    place = f"saved to {file}." if file else f"shown only once:\n\n  {value}\n"
    print(f"{printable(subject)}, {limits}, {place}")
    _hint_at_days(arguments, token)
    if token["role"] != "agent":
        print(f"Log in with: mainstay login {url}{f' --token-file {file}' if file else ''}")
    return 0


def _hint_at_days(arguments: argparse.Namespace, token: Mapping[str, Any]) -> None:
    """A token that ends tomorrow surprises people, who expect one for months."""
    if token.get("expireAt") and "days" in arguments and arguments.days is None:
        print("This is the default validity; --days N gives another.")
