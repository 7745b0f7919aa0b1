"""Orders a service and waits until it is created: `mainstay order web-app shop -p cpu=4 -p db.port=5432`.

The service type determines how values are read; lists and objects are JSON or YAML, a reference accepts the name of a
service. All faults are reported at once. An admin names the customer with --for.
A name that a living service of the customer has is refused: --another orders a second service with the name.
Exit code: 0 success, 1 the job failed, 2 the request was refused, 4 the job did not finish within --timeout."""

from __future__ import annotations

import argparse
import time
from collections.abc import Mapping
from typing import Any
from uuid import uuid4

from mainstay.agent.client import Client, ServerRefusal, Unreachable
from mainstay.cli.main import CommandRefused, add_argument, add_list_option, add_switch
from mainstay.cli.remote.connection import (
    EXIT_FAILED,
    INVALID_PROPERTIES,
    connected,
    error_text,
    find_agent,
    find_offering_provider,
    find_owner,
    find_participant_id,
    find_type,
    list_items,
    not_terminal,
    print_warning,
    short_id,
)
from mainstay.cli.remote.plan_options import add_order_options, finish_order, is_forecast, send_order
from mainstay.cli.remote.property_options import add_property_options, read_properties
from mainstay.cli.remote.service_types import members_of

SUMMARY = "order a service"
GROUP = "order"
DEFAULT_GROUP = "default"
CUSTOMER_MISSING = "as an admin you must name the customer: --for PARTICIPANT; `mainstay participants` lists them"
RETRY_DELAYS_SECONDS = (0.5, 1.0, 2.0, 4.0)


def configure(parser: argparse.ArgumentParser) -> None:
    add_argument(parser, "type", "TYPE", "service type")
    add_argument(parser, "name", "NAME", "name of the service")
    add_property_options(parser)
    add_argument(parser, "--agent", "AGENT", "agent that runs the service (default: chosen by the server)")
    add_argument(
        parser, "--provider", "PARTICIPANT", "provider of the service; required if several providers offer it"
    )
    add_list_option(parser, "--tag", "TAG", "choose among agents with this tag")
    add_argument(parser, "--group", "GROUP", f"service group (default: {DEFAULT_GROUP!r})")
    add_argument(parser, "--for", "PARTICIPANT", "customer; required for an admin", dest="consumer")
    add_switch(parser, "--another", "order even if a service with this name exists")
    add_argument(
        parser, "--idempotency-key", "KEY", "repeat an order whose response was lost, without ordering twice"
    )
    add_order_options(parser)


def run(arguments: argparse.Namespace) -> int:
    with connected(arguments) as client:
        service_type = find_type(client, arguments.type)
        members = members_of(service_type)
        body: dict[str, Any] = {
            "serviceTypeId": service_type["id"],
            "name": arguments.name,
            "properties": read_properties(client, arguments, members),
            **_placement(client, arguments, service_type),
        }
        _refuse_known_name(client, arguments, body)
        if arguments.plan_digest:
            body["planDigest"] = arguments.plan_digest
        try:
            answer = _send(client, arguments, body)
        except ServerRefusal as refusal:
            raise CommandRefused(_refusal_text(client, refusal, arguments, service_type)) from refusal
        agent = _agent_name(client, body) if is_forecast(arguments) else ""
        return finish_order(client, arguments, answer, "create", members, agent=agent)


def _refusal_text(
    client: Client, refusal: ServerRefusal, arguments: argparse.Namespace, service_type: Mapping[str, Any]
) -> str:
    name, text = service_type["name"], error_text(refusal, client.url, members_of(service_type))
    if refusal.code == "choose_customer":
        return CUSTOMER_MISSING
    if refusal.code == "choose_provider":
        offered = ", ".join(str(each["name"]) for each in refusal.document["providers"])
        return f"choose a provider of {name} with --provider, or an agent with --agent; it is offered by {offered}"
    if refusal.code == "agent_not_available":
        return f"{_why_not(client, arguments.agent)}; `mainstay types {name}` lists the agents that serve it"
    if refusal.code == "no_agent":
        return (
            f"{text}\n`mainstay types {name}` lists the agents that serve it; `mainstay agents add` adds an agent,"
            " and `mainstay agents grant` lets the agents of a provider serve others."
        )
    return f"{text}\n`mainstay types {name}` lists its properties." if refusal.code == INVALID_PROPERTIES else text


def _why_not(client: Client, named: str) -> str:
    """Why an agent takes no order of this customer, as far as the caller may know."""
    agent = find_agent(client, named)
    if agent.get("status") == "Disabled":
        return f"agent {agent['name']} is disabled: `mainstay agents enable {agent['name']}`"
    return f"agent {agent['name']} does not serve this type, or not this customer"


def _agent_name(client: Client, body: Mapping[str, Any]) -> str:
    """Empty if the server chooses the agent: a forecast does not name it."""
    return str(find_agent(client, body["agentId"])["name"]) if "agentId" in body else ""


def _placement(client: Client, arguments: argparse.Namespace, service_type: Mapping[str, Any]) -> dict[str, Any]:
    """The agent and group of the service. The server chooses what the arguments omit."""
    chosen: dict[str, Any] = {}
    if arguments.agent:
        chosen["agentId"] = find_agent(client, arguments.agent)["id"]
    if arguments.tag:
        chosen["agentTags"] = arguments.tag
    if arguments.group:
        chosen["groupId"] = _find_group(
            client, arguments.consumer, arguments.group, create=not is_forecast(arguments)
        )
    elif arguments.consumer:
        chosen["consumerId"] = find_participant_id(client, arguments.consumer)
    if arguments.provider:
        chosen["providerId"] = find_offering_provider(
            client, arguments.provider, service_type, chosen.get("consumerId") or _consumer_of(client, chosen)
        )
    return chosen


def _refuse_known_name(client: Client, arguments: argparse.Namespace, body: dict[str, Any]) -> None:
    """The same command twice is more often a mistake than a wish. A repeated idempotency key orders only once."""
    if arguments.another or arguments.idempotency_key:
        return
    consumer = body.get("consumerId") or _consumer_of(client, body)
    if consumer is None:
        return
    query = {"name": arguments.name, "consumerId": consumer, "sort": "-createdAt"}
    same = [each for each in list_items(client, "/services", query) if each["name"] == arguments.name]
    living = not_terminal(client, same)
    if living:
        found = living[0]
        raise CommandRefused(
            f"service {arguments.name} exists already: {found['serviceType']['name']}, {found['status']}"
            f" ({short_id(found['id'])}); change it with `mainstay do`, or order a second one with --another"
        )


def _consumer_of(client: Client, body: dict[str, Any]) -> str | None:
    owner = client.get(f"/service-groups/{body['groupId']}" if "groupId" in body else "/tokens/me")
    found: str | None = owner.get("consumerId") or owner.get("participantId")
    return found


def _find_group(client: Client, consumer: str | None, name: str, *, create: bool) -> str:
    """Finds the customer's group, or creates it if `create`."""
    consumer_id = find_owner(client, consumer, "customer", "--for")
    for group in list_items(client, "/service-groups", {"name": name, "consumerId": consumer_id}):
        if group["name"] == name:
            return str(group["id"])
    if not create:
        raise CommandRefused(f"there is no group {name}; the order creates it, but a dry run or plan cannot")
    created = client.post("/service-groups", {"name": name, "consumerId": consumer_id})
    print_warning(f"created group {name}")
    return str(created["id"])


def _send(client: Client, arguments: argparse.Namespace, body: dict[str, Any]) -> Any:
    """Retries with the same idempotency key if the response is lost, so that nothing is ordered twice."""
    if is_forecast(arguments):
        return send_order(client, arguments, "POST", "/services", body)
    key = arguments.idempotency_key or str(uuid4())
    for pause in (*RETRY_DELAYS_SECONDS, None):
        try:
            return client.post("/services", body, headers={"Idempotency-Key": key})
        except Unreachable as error:
            if pause is None:
                raise CommandRefused(
                    f"{error}\nThe order may have arrived. Repeat the same command with --idempotency-key {key} "
                    "to avoid ordering twice.",
                    exit_code=EXIT_FAILED,
                ) from None
            time.sleep(error.retry_after_seconds or pause)
    raise AssertionError("the last pause ends the loop")
