"""Logs in to a control plane: checks a token and saves it for the other commands, readable only by you.

On a terminal, prompts for the token without echo; otherwise reads standard input. A token is never an argument.
--data-dir takes the admin token of a server on this machine. Without arguments, shows the account in use.
The environment variables MAINSTAY_URL and MAINSTAY_TOKEN take precedence over the saved login."""

from __future__ import annotations

from pathlib import Path

from mainstay.agent.client import Client
from mainstay.cli.documents import read_text
from mainstay.cli.main import CommandRefused
from mainstay.cli.remote.addresses import is_unencrypted, read_url
from mainstay.cli.remote.connection import forget_login, open_client, print_warning, save_login, translated_errors
from mainstay.cli.secret_input import prompt_secret, without_last_newline
from mainstay.cli.views.run_display import printable
from mainstay.cli.views.tables import local_time

TYPE_CHECKING = False
if TYPE_CHECKING:
    import argparse

SUMMARY = "log in to a control plane"
DEFAULT_URL = "http://127.0.0.1:8420"


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("url", metavar="URL", nargs="?", help="server address, such as https://plane.example")
    parser.add_argument("--token-file", metavar="FILE", help="read the token from this file")
    parser.add_argument("--data-dir", metavar="DIR", help="use the admin token in this data directory of a server")
    parser.add_argument("--logout", action="store_true", help="delete the saved login")


def run(arguments: argparse.Namespace) -> int:
    if arguments.logout:
        print("Logged out." if forget_login() else "You were not logged in.")
        return 0
    if arguments.url is None and arguments.data_dir is None:
        return _print_account(open_client())
    url = read_url(arguments.url or DEFAULT_URL)
    if is_unencrypted(url):
        print_warning(f"{url} is not encrypted: the token can be read on the network; use https")
    token = _read_token(arguments, url)
    code = _print_account(Client(url, token))
    print(f"Login saved to {save_login(url, token)}.")
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
    until = f", until {local_time(me['expireAt'])}" if me.get("expireAt") else ""
    print(f"Logged in to {printable(client.url)} as {printable(account)}{until}.")
    return 0
