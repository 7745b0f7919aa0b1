"""Runs an action on a service: any action of its lifecycle, `update` with new properties, or `delete`.

mainstay do shop stop; mainstay do shop update -p cpu=8; mainstay do shop delete
`update` without options brings the service to the latest version of its blueprint; --to VERSION chooses the version.
SERVICE is a name, an id or an id prefix. Exit code: 0 success, 1 the job failed, 2 the request was refused, 4 the job
did not finish within --timeout."""

from __future__ import annotations

import argparse
from typing import Any
from urllib.parse import quote

from mainstay.agent.client import Client, ServerRefusal
from mainstay.cli.main import CommandRefused, add_argument, add_list_option, add_switch, print_json
from mainstay.cli.remote.connection import connected, error_text, find_service
from mainstay.cli.remote.plan_options import (
    PLAN_SECONDS,
    add_order_options,
    finish_order,
    forecast_query,
    is_forecast,
    send_order,
)
from mainstay.cli.remote.property_options import add_property_options, has_properties, read_properties, set_nested
from mainstay.cli.remote.service_types import members_of
from mainstay.cli.views.run_display import printable
from mainstay.foundation.suggestions import did_you_mean

SUMMARY = "run an action on a service"
GROUP = "order"
ACTION_ERRORS = ("unknown_action", "wrong_state", "terminal_state")


def configure(parser: argparse.ArgumentParser) -> None:
    add_argument(parser, "service", "SERVICE", "name, id or id prefix")
    add_argument(parser, "action", "ACTION", "start, stop, update, delete, …")
    add_property_options(parser)
    add_list_option(parser, "--unset", "NAME", "update: clear an optional property")
    add_argument(parser, "--to", "VERSION", "bring the service to this version of its blueprint, or to `latest`")
    add_argument(parser, "--rename", "NAME", "update: new name of the service")
    add_switch(parser, "--force", "delete: at once, without the agent, which owes the clean-up")
    add_order_options(parser)


def run(arguments: argparse.Namespace) -> int:
    _check_options(arguments)
    with connected(arguments) as client:
        service = find_service(client, arguments.service)
        members = members_of(client.get(f"/service-types/{service['serviceTypeId']}"))
        properties = read_properties(client, arguments, members)
        for name in arguments.unset:
            set_nested(properties, name.split("."), None)
        try:
            answer = _send(client, arguments, service, properties)
        except ServerRefusal as refusal:
            text = error_text(refusal, client.url, members)
            raise CommandRefused(text + _hint(refusal, service, arguments.action)) from refusal
        if arguments.force and not is_forecast(arguments):
            return _report_forced(answer, as_json=arguments.json)
        return finish_order(client, arguments, answer, arguments.action, members)


def _check_options(arguments: argparse.Namespace) -> None:
    if arguments.action != "update" and (arguments.unset or arguments.rename):
        raise CommandRefused("--unset and --rename are options of `update`")
    if arguments.action != "delete" and arguments.force:
        raise CommandRefused("--force is an option of `delete`")
    if arguments.action == "delete" and has_properties(arguments):
        raise CommandRefused("`delete` takes no properties")
    if arguments.action == "delete" and arguments.to:
        raise CommandRefused("`delete` runs the manifest of the version that the service is on; omit --to")
    if arguments.action == "update" and not (has_properties(arguments) or arguments.unset or arguments.rename):
        # Nothing else is requested, so the user wants what is new.
        arguments.to = arguments.to or "latest"


def _send(client: Client, arguments: argparse.Namespace, service: Any, properties: dict[str, Any]) -> Any:
    path = f"/services/{service['id']}"
    if arguments.action == "delete":
        query = forecast_query(arguments)
        if arguments.force:
            query["force"] = "true"
        if arguments.plan_digest:
            query["planDigest"] = arguments.plan_digest
        response = client.call("DELETE", path, query=query, timeout_seconds=PLAN_SECONDS)
        return response or _after_deletion(client, service["id"], forced=arguments.force)
    # Only an update has a new name.
    given = {"properties": properties, "blueprintVersion": arguments.to, "name": arguments.rename}
    body = {name: value for name, value in given.items() if value}
    if arguments.action == "update":
        return send_order(client, arguments, "PATCH", path, body)
    return send_order(client, arguments, "POST", f"{path}/{quote(arguments.action, safe='')}", body)


def _after_deletion(client: Client, service_id: str, *, forced: bool) -> Any:
    """The response to a DELETE is empty; the service comes from the delete job, which may already be finished."""
    if forced:
        return client.get(f"/services/{service_id}")
    query = {"serviceId": service_id, "action": "delete", "sort": "-createdAt", "pageSize": 1}
    (job,) = client.get("/jobs", query=query)["items"]
    return {**job["service"], "activeJob": job}


def _report_forced(service: Any, *, as_json: bool) -> int:
    """Never claims that the host is clean: only the agent can know."""
    if as_json:
        print_json({**service, "lastJob": None})
        return 0
    head = f"{service['name']}: {service['status']} in the control plane"
    if not service.get("orphan"):
        print(printable(f"{head}. No agent had claimed a job of it."))
        return 0
    agent = service["agent"]
    print(printable(f"{head}, not on its host: agent {agent['name']} ({agent['status']}) owes the clean-up."))
    print("Until then it may still run, and it keeps its pool values. `mainstay clean-ups` shows the progress.")
    return 0


def _hint(refusal: ServerRefusal, service: Any, action: str) -> str:
    if refusal.code not in ACTION_ERRORS and refusal.status != 404:
        return ""
    available = service["availableActions"]
    head = f"\n{service['name']} is {service['status']}"
    if not available:
        return f"{head}; no action is available."
    return f"{head}; available actions: {', '.join(available)}{did_you_mean(action, available)}"
