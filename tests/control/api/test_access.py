"""The whole access table over HTTP: every endpoint, every role, own and foreign rows, generated from the endpoints."""

from __future__ import annotations

from typing import Any

import pytest

import seed_text
from control_plane import Client, Server
from mainstay.control.access import ACCESS, Role
from mainstay.control.api.contract import Endpoint
from mainstay.control.api.endpoints import all_endpoints
from sample_rows import SampleRows

SIMPLE: Any = seed_text.block("Example 1: Simple VM Lifecycle")
GUARDED = [endpoint for endpoint in all_endpoints() if endpoint.access is not None]
# A stream does not end by itself; its access row is the one of the list.
NOT_CALLED = {"/api/v1/events/stream"}


def named(endpoint: Endpoint) -> str:
    return f"{endpoint.method} {endpoint.path}"


@pytest.fixture(scope="module")
def rows(server: Server) -> SampleRows:
    return SampleRows(server.admin)


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
def test_the_table_holds_over_http(rows: SampleRows, server: Server, endpoint: Endpoint) -> None:
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
def test_lists_never_show_a_foreign_row(rows: SampleRows, endpoint: Endpoint) -> None:
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
