"""Lists clean-ups that agents owe: what a forced delete or a move left on a host and its agent has not removed yet.
`clean-ups show CLEAN-UP` prints the last error and report, `clean-ups forget CLEAN-UP` gives one up.

The agent runs the `delete` manifest of each within seconds, and after a failure with growing pauses. Until it confirms,
pool values, instance id and secrets of the service stay reserved."""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from typing import Any

from mainstay.agent.client import Client
from mainstay.cli.main import CommandRefused, add_argument, add_switch, print_json
from mainstay.cli.remote.connection import connected, find_orphan, get_if_exists, list_items, short_id
from mainstay.cli.remote.connection_options import add_remote_options
from mainstay.cli.remote.removal import confirm_by_name, print_list, print_outcome
from mainstay.cli.views.reports import print_host_report
from mainstay.cli.views.tables import BAD, Cell, age, local_time, print_fields

SUMMARY = "list what forced deletes and moves left on hosts, show or forget one"
GROUP = "operate"


def configure(parser: argparse.ArgumentParser) -> None:
    add_argument(parser, "verb", "show|forget", "show or forget one clean-up", nargs="?", choices=("show", "forget"))
    add_argument(parser, "orphan", "CLEAN-UP", "id, id prefix or name of the service", nargs="?")
    add_switch(parser, "--yes", "forget: do not ask for a confirmation")
    add_switch(parser, "-v", "--verbose", "show: also show stable resources")
    add_remote_options(parser)


def run(arguments: argparse.Namespace) -> int:
    if arguments.verb and not arguments.orphan:
        raise CommandRefused(f"name the clean-up: mainstay clean-ups {arguments.verb} CLEAN-UP")
    with connected(arguments) as client:
        return {"show": _show, "forget": _forget, None: _list_orphans}[arguments.verb](client, arguments)


def _list_orphans(client: Client, arguments: argparse.Namespace) -> int:
    found = list_items(client, "/orphans")
    headers = ("CLEAN-UP", "SERVICE", "AGENT", "AGE", "FAILED", "MESSAGE")
    empty = "No clean-up is owed. Only admins and the provider of an agent see its clean-ups."
    return print_list(arguments, found, headers, _rows(client, found), empty)


def _agent_names(client: Client) -> dict[str, str]:
    return {each["id"]: f"{each['name']} ({each['status']})" for each in list_items(client, "/agents")}


def _rows(client: Client, orphans: Sequence[Any]) -> Iterator[list[Cell]]:
    agents = _agent_names(client)
    for orphan in orphans:
        message = str(orphan.get("lastError") or "").split("\n")[0]
        yield [
            short_id(orphan["id"]),
            orphan["serviceName"],
            agents.get(orphan["agentId"], orphan["agentId"]),
            age(orphan["createdAt"]),
            str(orphan["attempts"]),
            (message, BAD) if message else "",
        ]


def _show(client: Client, arguments: argparse.Namespace) -> int:
    orphan = find_orphan(client, arguments.orphan)
    report = get_if_exists(client, f"/orphans/{orphan['id']}/report")
    if arguments.json:
        print_json({**orphan, "report": report})
        return 0
    print_fields(
        [
            ("clean-up", orphan["id"]),
            ("service", f"{orphan['serviceName']} ({orphan['serviceId']})"),
            ("agent", _agent_names(client).get(orphan["agentId"], orphan["agentId"])),
            ("since", local_time(orphan["createdAt"])),
            ("reason", orphan["reason"].replace("_", " ")),
            ("failed", "once" if orphan["attempts"] == 1 else f"{orphan['attempts']} times"),
            ("message", orphan.get("lastError") or ""),
        ]
    )
    print_host_report(report, verbose=arguments.verbose)
    return 0


def _forget(client: Client, arguments: argparse.Namespace) -> int:
    orphan = find_orphan(client, arguments.orphan)
    name = orphan["serviceName"]
    warning = (
        f"Forgetting {name} removes nothing from the host. Its pool values go to the next order, which fails if the "
        "unit still uses them. Make sure that the host is clean."
    )
    confirm_by_name(arguments, warning, name, "forget it", "forgotten")
    client.post(f"/orphans/{orphan['id']}/forget")
    return print_outcome(
        arguments,
        orphan,
        f"Forgot {orphan['serviceName']}: its pool values, instance id and secrets are released. What is left on the host"
        " is not removed.",
    )
