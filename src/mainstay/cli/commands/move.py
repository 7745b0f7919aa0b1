"""Moves a service to another agent: mainstay move shop --agent web2

The target runs the `create` manifest of the service's blueprint, then the one for its state. When both succeed, the
service changes its agent, and the old agent cleans up its host (`mainstay clean-ups`). Files of the old host are not
copied: the blueprint must say `movable: true`. Exit codes are those of `mainstay do`."""

from __future__ import annotations

import argparse

from mainstay.agent.client import ServerRefusal
from mainstay.cli.main import CommandRefused, add_argument
from mainstay.cli.remote.connection import connected, error_text, find_agent, find_service
from mainstay.cli.remote.plan_options import add_order_options, finish_order, is_forecast, send_order
from mainstay.cli.remote.service_types import members_of
from mainstay.cli.views.run_display import printable

SUMMARY = "move a service to another agent"
GROUP = "operate"


def configure(parser: argparse.ArgumentParser) -> None:
    add_argument(parser, "service", "SERVICE", "name, id or id prefix")
    add_argument(parser, "--agent", "AGENT", "name or id of the target", required=True)
    parser.add_argument(
        "--force", action="store_true", help="also to an agent that is not connected; the service waits for it"
    )
    add_order_options(parser)


def run(arguments: argparse.Namespace) -> int:
    with connected(arguments) as client:
        service = find_service(client, arguments.service)
        target = find_agent(client, arguments.agent)
        members = members_of(client.get(f"/service-types/{service['serviceTypeId']}"))
        # Servers of 0.1.0 do not know `force`.
        body = {"agentId": target["id"], **({"force": True} if arguments.force else {})}
        try:
            answer = send_order(client, arguments, "PUT", f"/services/{service['id']}/agent", body)
        except ServerRefusal as refusal:
            raise CommandRefused(error_text(refusal, client.url, members)) from refusal
        code = finish_order(client, arguments, answer, "create", members, agent=target["name"])
        if code == 0 and arguments.wait and not (arguments.json or is_forecast(arguments)):
            old, new = printable(service["agent"]["name"]), printable(target["name"])
            print(f"Moved from {old} to {new}. {old} cleans up its host; `mainstay clean-ups` shows the progress.")
        return code
