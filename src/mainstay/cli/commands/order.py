"""Orders a service and follows it until it is there: `mainstay order web-app shop -p cpu=4 -p db.port=5432`.

Values are read as the service type says: a string stays one, lists and objects are JSON or YAML; a reference takes a
service's name. Faults come all at once. An admin says for whom with --for.
Exit code: 0 done, 1 the run failed, 2 refused."""

from __future__ import annotations

import time
from uuid import uuid4

from mainstay.agent.client import ServerRefusal, Unreachable
from mainstay.cli.main import CommandRefused
from mainstay.cli.remote.connection import (
    EXIT_FAILED,
    connected,
    explain,
    find_agent,
    find_named,
    find_type,
    print_warning,
    some,
)
from mainstay.cli.remote.job_progress import finish
from mainstay.cli.remote.plan_options import (
    PLAN_SECONDS,
    add_forecast_options,
    forecast_query,
    is_forecast,
    show_forecast,
)
from mainstay.cli.remote.property_options import add_property_options, read_properties
from mainstay.cli.remote.service_types import members_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    import argparse
    from typing import Any

    from mainstay.agent.client import Client

SUMMARY = "order a service"
DEFAULT_GROUP = "default"
FOR_WHOM = "an admin says for whom: --for PARTICIPANT; `mainstay participants` lists them"
PAUSES_SECONDS = (0.5, 1.0, 2.0, 4.0)


def configure(parser: argparse.ArgumentParser) -> None:
    from argparse import BooleanOptionalAction

    parser.add_argument("type", metavar="TYPE", help="the service type")
    parser.add_argument("name", metavar="NAME", help="what the service is to be called")
    add_property_options(parser)
    parser.add_argument("--agent", metavar="AGENT", help="have this agent do it; otherwise one that can is chosen")
    parser.add_argument(
        "--tag", metavar="TAG", action="append", default=[], help="choose among agents that carry this tag"
    )
    parser.add_argument("--group", metavar="GROUP", help=f"the service group; {DEFAULT_GROUP} when not given")
    parser.add_argument("--for", dest="consumer", metavar="PARTICIPANT", help="for whom; an admin must say")
    add_forecast_options(parser)
    parser.add_argument(
        "--wait", action=BooleanOptionalAction, default=True, help="follow it until it is there (the default)"
    )
    parser.add_argument(
        "--idempotency-key", metavar="KEY", help="repeat an order whose answer was lost, without ordering twice"
    )
    parser.add_argument("-v", "--verbose", action="store_true", help="in a plan, also show what stays as it is")
    parser.add_argument("--json", action="store_true", help="print one JSON document and nothing else")


def run(arguments: argparse.Namespace) -> int:
    with connected(arguments) as client:
        service_type = find_type(client, arguments.type)
        members = members_of(service_type)
        body: dict[str, Any] = {
            "serviceTypeId": service_type["id"],
            "name": arguments.name,
            "properties": read_properties(client, arguments, members),
            **_place(client, arguments),
        }
        if arguments.plan_digest:
            body["planDigest"] = arguments.plan_digest
        try:
            answer = _send(client, arguments, body)
        except ServerRefusal as refusal:
            if "for whom" in str(refusal):
                raise CommandRefused(FOR_WHOM) from refusal
            raise CommandRefused(
                explain(refusal, client.url, members) + _way_out(refusal, service_type["name"])
            ) from refusal
        if is_forecast(arguments):
            return show_forecast(arguments, answer, members)
        return finish(client, answer, "create", wait=arguments.wait, as_json=arguments.json)


def _way_out(refusal: ServerRefusal, name: str) -> str:
    text = str(refusal)
    if "no agent found" in text:
        return f"\n`mainstay types {name}` tells who offers it; `mainstay agents add` brings an agent in."
    return f"\n`mainstay types {name}` tells what it takes." if refusal.faults else ""


def _place(client: Client, arguments: argparse.Namespace) -> dict[str, Any]:
    """Which group the service goes to, and which agent does it; what is not said, the server chooses."""
    chosen: dict[str, Any] = {}
    if arguments.agent:
        chosen["agentId"] = find_agent(client, arguments.agent)["id"]
    if arguments.tag:
        chosen["agentTags"] = arguments.tag
    if arguments.group:
        chosen["groupId"] = _find_group(client, arguments.consumer, arguments.group, make=not is_forecast(arguments))
    elif arguments.consumer:
        chosen["consumerId"] = _find_consumer(client, arguments.consumer)
    return chosen


def _find_consumer(client: Client, name: str) -> str:
    return str(find_named(client, "/participants", "participant", name)["id"])


def _find_group(client: Client, consumer: str | None, name: str, *, make: bool) -> str:
    """The consumer's group of this name; what only looks makes none."""
    consumer_id = (
        client.get("/tokens/me").get("participantId") if consumer is None else _find_consumer(client, consumer)
    )
    if consumer_id is None:
        raise CommandRefused(FOR_WHOM)
    for group in some(client, "/service-groups", {"name": name, "consumerId": consumer_id}):
        if group["name"] == name:
            return str(group["id"])
    if not make:
        raise CommandRefused(f"there is no group {name}; the order itself would make it, a forecast makes nothing")
    made = client.post("/service-groups", {"name": name, "consumerId": consumer_id})
    print_warning(f"there was no group {name}; it has been made")
    return str(made["id"])


def _send(client: Client, arguments: argparse.Namespace, body: dict[str, Any]) -> Any:
    """An answer that is lost is asked for again under the same key, so nothing is ordered twice."""
    query = forecast_query(arguments)
    if query:
        return client.post("/services", body, query=query, timeout_seconds=PLAN_SECONDS)
    key = arguments.idempotency_key or str(uuid4())
    for pause in (*PAUSES_SECONDS, None):
        try:
            return client.post("/services", body, headers={"Idempotency-Key": key})
        except Unreachable as error:
            if pause is None:
                raise CommandRefused(
                    f"{error}\nThe order may have arrived. The same command with --idempotency-key {key} "
                    "asks again without ordering twice.",
                    exit_code=EXIT_FAILED,
                ) from None
            time.sleep(error.retry_after_seconds or pause)
    raise AssertionError("the last pause ends the loop")
