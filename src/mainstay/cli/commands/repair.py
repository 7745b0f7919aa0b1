"""Repairs a service on its host at once: mainstay repair shop

The agent compares the host with the order and applies what differs, whatever the blueprint says about drift. There is no
job; the condition InSync of the service has the result (`mainstay show`). For admins and the provider."""

from __future__ import annotations

import argparse

from mainstay.cli.main import add_argument, print_json
from mainstay.cli.remote.connection import connected, find_service
from mainstay.cli.remote.connection_options import add_remote_options
from mainstay.cli.views.run_display import printable

SUMMARY = "repair a service on its host now"
GROUP = "operate"


def configure(parser: argparse.ArgumentParser) -> None:
    add_argument(parser, "service", "SERVICE", "name, id or id prefix")
    add_remote_options(parser)


def run(arguments: argparse.Namespace) -> int:
    with connected(arguments) as client:
        service = find_service(client, arguments.service)
        service = client.call("PUT", f"/services/{service['id']}/repair")
    if arguments.json:
        print_json(service)
        return 0
    name, agent = printable(service["name"]), service["agent"]
    when = "now" if agent["status"] == "Connected" else f"when it is back; it is {agent['status']}"
    print(f"Agent {printable(agent['name'])} repairs {name} {when}. `mainstay show {name}` shows the result.")
    return 0
