"""The verbs `drain` and `undrain` of `mainstay agents`."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from functools import partial
from typing import Any

from mainstay.agent.client import Client
from mainstay.cli.main import add_switch, print_json
from mainstay.cli.remote.connection import EXIT_FAILED, find_named
from mainstay.cli.remote.job_progress import (
    EXIT_TIMEOUT,
    ProgressOutput,
    Waiting,
    add_timeout_option,
    follow_until_ended,
)
from mainstay.cli.remote.removal import print_outcome
from mainstay.cli.views.run_display import printable
from mainstay.cli.views.tables import BAD, print_table


def configure_drain(parser: argparse.ArgumentParser) -> None:
    add_switch(parser, "--move", "move its services to other agents of its provider, one after another")
    add_switch(parser, "--wait", "wait until every service was tried; exit code 1 if one is left")
    add_timeout_option(parser)


def drain(client: Client, arguments: argparse.Namespace) -> int:
    """Repeated, it tries the services again that could not move."""
    agent = find_named(client, "/agents", arguments.name)
    path = f"/agents/{agent['id']}/drain"
    found, timed_out = client.call("PUT", path, {"move": arguments.move}), False
    if arguments.wait:
        command = f"mainstay agents drain {printable(agent['name'])}{' --move' if arguments.move else ''} --wait"
        found, timed_out = follow_until_ended(
            Waiting(arguments.timeout, "the drain continues", command, arguments.json),
            partial(client.get, path),
            lambda shown: not shown.get("moving"),
            _show_progress,
        )
    if arguments.json:
        print_json(found)
    else:
        _print_drain(agent["name"], found)
    if timed_out:
        return EXIT_TIMEOUT
    return EXIT_FAILED if arguments.wait and found["left"] else 0


def _show_progress(screen: ProgressOutput, found: Mapping[str, Any]) -> object:
    moving = found.get("moving")
    if moving:
        state = "moves" if moving.get("jobId") else "waits"
        screen.update(printable(f"{moving['serviceName']}: {state}"))
    return moving


def _print_drain(name: str, found: Mapping[str, Any]) -> None:
    moving, left = found.get("moving"), found["left"]
    print(printable(f"Agent {name} is draining: it takes no new services."))
    if moving:
        print(printable(f"Its services move one after another; {moving['serviceName']} is next."))
    elif not left:
        print("No service is left on it.")
    if left:
        print_table(("LEFT", "REASON"), [[each["serviceName"], (each["reason"], BAD)] for each in left])


def undrain(client: Client, arguments: argparse.Namespace) -> int:
    agent = find_named(client, "/agents", arguments.name)
    client.call("DELETE", f"/agents/{agent['id']}/drain")
    return print_outcome(arguments, agent, f"Agent {agent['name']} takes new services again.")
