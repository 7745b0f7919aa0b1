"""Logs in to a control plane: asks for a token, tries it, and keeps it for the other commands (readable by you only).

The token is asked for without echo on a terminal, and read from standard input otherwise; it is never an argument.
With --data-dir it is taken from the files of a server on this machine. Without anything, tells who is logged in.
MAINSTAY_URL and MAINSTAY_TOKEN in the environment win over what is kept."""

from __future__ import annotations

from pathlib import Path

from mainstay.agent.client import Client
from mainstay.cli.documents import read_text
from mainstay.cli.main import CommandRefused
from mainstay.cli.remote.addresses import is_open, read_url
from mainstay.cli.remote.connection import forget_login, open_client, print_warning, save_login, speaking
from mainstay.cli.secret_input import ask_secret, without_last_newline
from mainstay.cli.views.run_display import printable
from mainstay.cli.views.tables import clock

TYPE_CHECKING = False
if TYPE_CHECKING:
    import argparse

SUMMARY = "log in to a control plane"
LOCAL = "http://127.0.0.1:8420"


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("url", metavar="URL", nargs="?", help="address of the server, such as https://plane.example")
    parser.add_argument("--token-file", metavar="FILE", help="read the token from this file")
    parser.add_argument("--data-dir", metavar="DIR", help="take the admin token of a server on this machine")
    parser.add_argument("--logout", action="store_true", help="forget the login")


def run(arguments: argparse.Namespace) -> int:
    if arguments.logout:
        print("Logged out." if forget_login() else "There was no login.")
        return 0
    if arguments.url is None and arguments.data_dir is None:
        return _tell(open_client())
    url = read_url(arguments.url or LOCAL)
    if is_open(url):
        print_warning(f"{url} is not encrypted: everybody on the way can read the token; use https")
    token = _read_token(arguments, url)
    code = _tell(Client(url, token))
    print(f"Kept in {save_login(url, token)}.")
    return code


def _read_token(arguments: argparse.Namespace, url: str) -> str:
    if arguments.data_dir is not None:
        text = read_text(str(Path(arguments.data_dir) / "admin.token"))
    elif arguments.token_file is not None:
        text = read_text(arguments.token_file)
    else:
        text = ask_secret(f"Token for {url}")
    token = without_last_newline(text).strip()
    if not token or not token.isascii() or not token.isprintable() or " " in token:
        raise CommandRefused("that is no token; an admin makes one with `mainstay participants add NAME`")
    return token


def _tell(client: Client) -> int:
    with speaking(client):
        me = client.get("/tokens/me")
        if not isinstance(me, dict) or "role" not in me:
            raise CommandRefused(f"{client.url} is no control plane: it answers something else")
        who = me["role"]
        if me.get("participantId") and me["role"] == "participant":
            who += " " + client.get(f"/participants/{me['participantId']}")["name"]
    until = f", until {clock(me['expireAt'])}" if me.get("expireAt") else ""
    print(f"Logged in to {printable(client.url)} as {printable(who)}{until}.")
    return 0
