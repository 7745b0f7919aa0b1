"""`agents install-command`: the command that installs an agent of another program, with its one-time token."""

from __future__ import annotations

import argparse
from pathlib import Path

from mainstay.agent.client import Client, ServerRefusal
from mainstay.cli.main import CommandRefused, add_argument, add_switch, print_json
from mainstay.cli.remote.connection import error_text, find_named, write_private
from mainstay.cli.remote.removal import add_yes_option, confirm, print_outcome
from mainstay.cli.views.run_display import printable
from mainstay.cli.views.tables import local_time


def configure_install_command(parser: argparse.ArgumentParser) -> None:
    add_argument(parser, "name", "AGENT", "name or id")
    mode = parser.add_mutually_exclusive_group()
    add_switch(mode, "--renew", "replace the existing command by a new one")
    add_switch(mode, "--status", "only show when the existing command expires")
    add_switch(mode, "--remove", "remove the existing command; it stops working")
    add_argument(parser, "--output", "FILE", "write the command to this file (mode 0600) instead of printing it")
    add_yes_option(parser)


def install_command(client: Client, arguments: argparse.Namespace) -> int:
    agent = find_named(client, "/agents", arguments.name)
    path = f"/agents/{agent['id']}/install-command"
    if arguments.remove:
        confirm(arguments, f"Remove the install command of agent {agent['name']} ({agent['id']})?")
        client.call("DELETE", path)
        return print_outcome(arguments, agent, f"Removed the install command of agent {agent['name']}.")
    if arguments.status:
        found = client.get(path)
        return print_outcome(
            arguments, found, f"The install command of {agent['name']} expires at {local_time(found['expiresAt'])}."
        )
    try:
        created = client.post(f"{path}/regenerate" if arguments.renew else path)
    except ServerRefusal as refusal:
        if refusal.status != 409 or arguments.renew:
            raise
        raise CommandRefused(
            f"{error_text(refusal, client.url)}\nReplace it with --renew, or show when it expires with --status."
        ) from refusal
    return _show(arguments, created, agent["name"])


def _show(arguments: argparse.Namespace, created: dict[str, str], name: str) -> int:
    if arguments.output:
        write_private(Path(arguments.output), created.pop("installCommand") + "\n")
    if arguments.json:
        print_json(created)
        return 0
    until = local_time(created["expiresAt"])
    if arguments.output:
        print(printable(f"The install command of {name}, valid until {until}, is saved to {arguments.output}."))
    else:
        print(f"Run this on the host of {printable(name)} before {until}. It contains a token and is shown once:\n")
        print(f"  {printable(created['installCommand'], keep_newlines=True)}\n")
    return 0
