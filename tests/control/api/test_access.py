"""The whole access table over HTTP: every endpoint, every role, own and foreign rows, generated from the endpoints."""

from __future__ import annotations

import re
from typing import Any

import pytest

import seed
from mainstay.control.access import ACCESS, Role
from mainstay.control.api.contract import Endpoint
from mainstay.control.api.endpoints import all_endpoints
from plane import Client, Server
from world import World, unique

SIMPLE: Any = seed.block("Example 1: Simple VM Lifecycle")
GUARDED = [endpoint for endpoint in all_endpoints() if endpoint.access is not None]
# A stream does not end by itself; its access row is the one of the list.
NOT_CALLED = {"/api/v1/events/stream"}


def named(endpoint: Endpoint) -> str:
    return f"{endpoint.method} {endpoint.path}"


class Rows:
    """One row of each noun, of a provider and a consumer, and everybody who could ask for it."""

    def __init__(self, admin: Client) -> None:
        world = World(admin)
        kind = world.service_type({"key": {"type": "string", "secret": {"type": "persistent"}}}, SIMPLE)
        service = world.order(kind, {"key": "k"})
        job = world.next_job(service)
        world.agent.post(f"/jobs/{job['id']}/complete", {"report": {"changed": 1}}, expect=204)
        pool_set = world.provider.post("/service-pool-sets", {"name": "s", "providerId": world.provider_id})
        pool = world.provider.post(
            "/service-pools",
            {
                "name": "p",
                "type": "t",
                "propertyType": "string",
                "generatorType": "list",
                "servicePoolSetId": pool_set["id"],
            },
        )
        value = world.provider.post("/service-pool-values", {"servicePoolId": pool["id"], "name": "v", "value": "v"})
        option_type = world.admin.post("/service-option-types", {"name": "o", "type": unique("o").replace("-", "_")})
        option = world.provider.post(
            "/service-options",
            {
                "providerId": world.provider_id,
                "serviceOptionTypeId": option_type["id"],
                "name": "o",
                "value": 1,
                "enabled": False,
            },
        )
        metric = world.admin.post("/metric-types", {"name": unique("m"), "entityType": "Service"})
        other = World(admin)
        self.clients = {
            "admin": admin,
            "provider": world.provider,
            "consumer": world.consumer,
            "agent": world.agent,
            "foreign participant": world.stranger,
            "foreign agent": other.agent,
        }
        self.ids = {
            "participants": world.consumer_id,
            "tokens": world.provider.get("/tokens")["items"][0]["id"],
            "agent-types": world.agent_type_id,
            "service-types": kind["id"],
            "agents": world.agent_id,
            "service-groups": world.group_id,
            "services": service["id"],
            "jobs": job["id"],
            "service-option-types": option_type["id"],
            "service-options": option["id"],
            "service-pool-sets": pool_set["id"],
            "service-pools": pool["id"],
            "service-pool-values": value["id"],
            "metric-types": metric["id"],
        }
        self.reference = service["properties"]["key"].removeprefix("vault://")

    def path(self, endpoint: Endpoint) -> str:
        noun = endpoint.path.split("/")[3]
        values = {
            "id": self.ids.get(noun, ""),
            "action": "fly",
            "reference": self.reference,
            "digest": "sha256:0",
            "planId": self.ids["services"],
            "serviceId": self.ids["services"],
            "resourceId": "r",
            "typeId": self.ids["metric-types"],
        }
        return re.sub(r"\{(\w+)\}", lambda match: values[match[1]], endpoint.path)


@pytest.fixture(scope="module")
def rows(server: Server) -> Rows:
    return Rows(server.admin)


# Which kinds of relation make a row of the fixture a caller's own.
OWN = {
    "provider": {
        "provider_id": {
            "agents",
            "services",
            "jobs",
            "service-options",
            "service-pool-sets",
            "service-pools",
            "service-pool-values",
        },
        "participant_id": {"tokens"},
        "id": set(),
    },
    "consumer": {"consumer_id": {"services", "jobs", "service-groups"}, "id": {"participants"}},
    "agent": {
        "agent_id": {"services", "jobs"},
        "provider_id": {"service-options", "service-pool-sets", "service-pools", "service-pool-values"},
    },
}
ROLES = {
    "admin": Role.ADMIN,
    "provider": Role.PARTICIPANT,
    "consumer": Role.PARTICIPANT,
    "foreign participant": Role.PARTICIPANT,
    "agent": Role.AGENT,
    "foreign agent": Role.AGENT,
}


def expected(endpoint: Endpoint, who: str) -> str:
    """`refused` by role (403), `hidden` (404), or `allowed` (anything else)."""
    assert endpoint.access is not None
    relation = ACCESS[endpoint.access].get(ROLES[who])
    if relation is None:
        return "refused"
    noun = endpoint.path.split("/")[3]
    if relation.everything or "{id}" not in endpoint.path:
        return "allowed"
    mine = OWN.get(who, {})
    owned = any(noun in mine.get(column, set()) for column, _ in relation.owners)
    return "allowed" if owned else "hidden"


@pytest.mark.parametrize("endpoint", GUARDED, ids=named)
def test_the_table_holds_over_http(rows: Rows, server: Server, endpoint: Endpoint) -> None:
    if endpoint.path in NOT_CALLED:
        return
    path = rows.path(endpoint)
    # A body that is never valid: whoever gets as far as the body changes nothing.
    raw = b"[" if endpoint.method in ("POST", "PATCH", "PUT") else b""
    assert Client(server.url).call(endpoint.method, path, raw=raw).status == 401
    for who, client in rows.clients.items():
        wanted = expected(endpoint, who)
        if wanted == "allowed" and (
            endpoint.method == "DELETE" or endpoint.path.endswith(("/regenerate", "/cancel"))
        ):
            continue
        reply = client.call(endpoint.method, path, raw=raw)
        found = {403: "refused", 404: "hidden"}.get(reply.status, "allowed")
        if "{" in endpoint.path and "{id}" not in endpoint.path and wanted == "allowed":
            # Secrets, series, bundles and plans are judged by what they belong to; here only the role is.
            assert reply.status != 401
            continue
        assert found == wanted, f"{who}: {reply.status} {reply.body!r}"


LISTS = [endpoint for endpoint in GUARDED if endpoint.lists is not None]


@pytest.mark.parametrize("endpoint", LISTS, ids=named)
def test_lists_never_show_a_foreign_row(rows: Rows, endpoint: Endpoint) -> None:
    """Under filters, orders and pages that would bring it up."""
    noun = endpoint.path.split("/")[3]
    if noun not in rows.ids:
        return
    foreign = rows.ids[noun]
    for who in ("foreign participant", "foreign agent"):
        relation = ACCESS[endpoint.access].get(ROLES[who])  # type: ignore[index]
        if relation is None or relation.everything:
            continue
        for query in (
            "",
            f"?id={foreign}",
            "?sort=-createdAt&pageSize=100",
            "?after=&sort=-updatedAt&pageSize=100",
            f"?id={foreign}&after=",
        ):
            reply = rows.clients[who].call("GET", f"{endpoint.path}{query}", expect=200)
            assert foreign not in [item["id"] for item in reply.body["items"]], (who, query)
