"""The access table over HTTP: every endpoint with every role, on own and foreign rows."""

from __future__ import annotations

from typing import Any

import pytest

import seed_text
from control_plane import Client, Server
from mainstay.control.access import ACCESS, Relation, Role
from mainstay.control.api.contract import Endpoint
from mainstay.control.api.endpoints import all_endpoints
from sample_rows import SampleRows

SIMPLE: Any = seed_text.block("Example 1: Simple VM Lifecycle")
GUARDED = [endpoint for endpoint in all_endpoints() if endpoint.access is not None]
# A stream does not end; it shares the access rule of the list.
NOT_CALLED = {"/api/v1/events/stream"}


def named(endpoint: Endpoint) -> str:
    return f"{endpoint.method} {endpoint.path}"


@pytest.fixture(scope="module")
def rows(server: Server) -> SampleRows:
    return SampleRows(server.admin)


# By caller and owner column: the nouns whose sample row belongs to the caller.
OWN = {
    "provider": {
        "provider_id": {
            "agents",
            "enrolment-codes",
            "services",
            "jobs",
            "service-options",
            "service-pool-sets",
            "service-pools",
            "service-pool-values",
            "orphans",
        },
        "participant_id": {"tokens", "config-pools", "config-pool-values"},
        "id": set(),
    },
    "consumer": {"consumer_id": {"services", "jobs", "service-groups"}, "id": {"participants"}},
    "agent": {
        "agent_id": {"services", "jobs", "orphans"},
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


def expected(endpoint: Endpoint, caller: str) -> str:
    """`refused` by role (403), `hidden` (404), or `allowed` (anything else)."""
    assert endpoint.access is not None
    relation = ACCESS[endpoint.access].get(ROLES[caller])
    if relation is None:
        return "refused"
    noun = endpoint.path.split("/")[3]
    if relation.everything or "{id}" not in endpoint.path:
        return "allowed"
    if holds(relation, noun, caller):
        return "allowed"
    if relation.shows_existence:
        return "refused"
    # A row that the caller may read is refused; any other is hidden.
    readable = ACCESS.get((endpoint.access[0], "read"), {}).get(ROLES[caller])
    return "refused" if readable is not None and holds(readable, noun, caller) else "hidden"


def holds(relation: Relation, noun: str, caller: str) -> bool:
    own = OWN.get(caller, {})
    return relation.everything or any(noun in own.get(column, set()) for column, _ in relation.owners)


@pytest.mark.parametrize("endpoint", GUARDED, ids=named)
def test_every_endpoint_applies_the_access_table(rows: SampleRows, server: Server, endpoint: Endpoint) -> None:
    if endpoint.path in NOT_CALLED:
        return
    path = rows.path(endpoint)
    # An invalid body, so that an allowed request changes nothing.
    raw = b"[" if endpoint.method in ("POST", "PATCH", "PUT") else b""
    assert Client(server.url).call(endpoint.method, path, raw=raw).status == 401
    for caller, client in rows.clients.items():
        wanted = expected(endpoint, caller)
        if wanted == "allowed" and (
            endpoint.method == "DELETE" or endpoint.path.endswith(("/regenerate", "/cancel"))
        ):
            continue
        reply = client.call(endpoint.method, path, raw=raw)
        found = {403: "refused", 404: "hidden"}.get(reply.status, "allowed")
        if "{" in endpoint.path and "{id}" not in endpoint.path and wanted == "allowed":
            # Access to secrets, series, bundles and plans depends on their owner; here only the role is checked.
            assert reply.status != 401
            continue
        assert found == wanted, f"{caller}: {reply.status} {reply.body!r}"


LISTS = [endpoint for endpoint in GUARDED if endpoint.lists is not None]


@pytest.mark.parametrize("endpoint", LISTS, ids=named)
def test_a_list_never_contains_a_foreign_row(rows: SampleRows, endpoint: Endpoint) -> None:
    """Not even with filters, sort orders and pages that select it."""
    noun = endpoint.path.split("/")[3]
    if noun not in rows.ids:
        return
    foreign = rows.ids[noun]
    for caller in ("foreign participant", "foreign agent"):
        relation = ACCESS[endpoint.access].get(ROLES[caller])  # type: ignore[index]
        if relation is None or relation.everything:
            continue
        for query in (
            "",
            f"?id={foreign}",
            "?sort=-createdAt&pageSize=100",
            "?after=&sort=-updatedAt&pageSize=100",
            f"?id={foreign}&after=",
        ):
            reply = rows.clients[caller].call("GET", f"{endpoint.path}{query}", expect=200)
            assert foreign not in [item["id"] for item in reply.body["items"]], (caller, query)
