"""Logs in to a control plane: checks a token and saves it for the other commands, readable only by you.

On a terminal, prompts for the token without echo; otherwise reads standard input. A token is never an argument.
--data-dir takes the admin token of a server on this machine. Without arguments, shows the account in use.
The environment variables MAINSTAY_URL and MAINSTAY_TOKEN take precedence over the saved login.
--ca-file and --insecure are saved with the login."""

from __future__ import annotations

import argparse
import os
from pathlib import Path

from mainstay.agent.client import Client
from mainstay.cli.documents import prompt_secret, read_text, without_last_newline
from mainstay.cli.main import CommandRefused, add_argument, add_switch
from mainstay.cli.remote.connection import (
    CA_FILE_VARIABLE,
    Login,
    forget_login,
    read_login,
    read_url,
    save_login,
    translated_errors,
)
from mainstay.cli.remote.connection_options import add_connection_options
from mainstay.cli.views.run_display import printable
from mainstay.cli.views.tables import local_time

SUMMARY = "log in to a control plane"
GROUP = "order"
DEFAULT_URL = "http://127.0.0.1:8420"


def configure(parser: argparse.ArgumentParser) -> None:
    add_argument(parser, "url", "URL", "server address, such as https://plane.example", nargs="?")
    add_argument(parser, "--token-file", "FILE", "read the token from this file")
    add_argument(parser, "--data-dir", "DIR", "use the admin token in this data directory of a server")
    add_switch(parser, "--logout", "delete the saved login")
    add_connection_options(parser)


def run(arguments: argparse.Namespace) -> int:
    if arguments.logout:
        print("Logged out." if forget_login() else "You were not logged in.")
        return 0
    if arguments.url is None and arguments.data_dir is None:
        return _print_account(read_login(arguments).client())
    url = read_url(arguments.url or DEFAULT_URL)
    ca_file = arguments.ca_file or os.environ.get(CA_FILE_VARIABLE)
    # Checks the address before it prompts.
    Login(url, "none yet", ca_file, insecure=arguments.insecure).client()
    login = Login(url, _read_token(arguments, url), ca_file, insecure=arguments.insecure)
    code = _print_account(login.client())
    print(f"Login saved to {save_login(login)}.")
    return code


def _read_token(arguments: argparse.Namespace, url: str) -> str:
    if arguments.data_dir is not None:
        text = read_text(str(Path(arguments.data_dir) / "admin.token"))
    elif arguments.token_file is not None:
        text = read_text(arguments.token_file)
    else:
        text = prompt_secret(f"Token for {url}")
    token = without_last_newline(text).strip()
    if not token or not token.isascii() or not token.isprintable() or " " in token:
        raise CommandRefused("this is not a token; an admin creates tokens with `mainstay participants add NAME`")
    return token


def _print_account(client: Client) -> int:
    with translated_errors(client):
        me = client.get("/tokens/me")
        if not isinstance(me, dict) or "role" not in me:
            raise CommandRefused(f"{client.url} is not a control plane: unexpected response")
        account = me["role"]
        if me.get("participantId") and me["role"] == "participant":
            account += " " + client.get(f"/participants/{me['participantId']}")["name"]
    limits = ", read-only" if me.get("readOnly") else ""
    limits += f", until {local_time(me['expireAt'])}" if me.get("expireAt") else ""
    print(f"Logged in to {printable(client.url)} as {printable(account)}{limits}.")
    return 0
