"""Requests made up from the description: no bug, no status and no shape that it does not name."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, settings
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import response_schema_conformance, status_code_conformance

from control_plane import Client, Server
from mainstay.control.api.endpoints import all_endpoints
from mainstay.control.api.openapi import describe_api
from sample_rows import SampleRows

# A body of its own kind is bytes, whatever they are.
schemathesis.serializer.alias("application/gzip", "application/octet-stream")


def without_places(document: Any) -> Any:
    """The description for a reader that knows no `prefixItems`: each item is one of those that may stand anywhere."""
    if isinstance(document, list):
        return [without_places(child) for child in document]
    if not isinstance(document, dict):
        return document
    found = {name: without_places(child) for name, child in document.items()}
    if "prefixItems" in found:
        found["items"] = {"anyOf": found.pop("prefixItems")}
    return found


# A stream does not end by itself.
schema = schemathesis.openapi.from_dict(without_places(describe_api())).exclude(path="/api/v1/events/stream")
CHECKS = [not_a_server_error, status_code_conformance, response_schema_conformance]
ENDPOINTS = {endpoint.path: endpoint for endpoint in all_endpoints()}
# An admin takes away nothing here: the next requests are about the same rows.
ROLES = itertools.cycle(("consumer", "agent", "provider"))


@pytest.fixture(scope="module")
def rows(server: Server) -> SampleRows:
    return SampleRows(server.admin)


def check(case: Any, server: Server, client: Client) -> None:
    token = {"Authorization": f"Bearer {client.token}"}
    case.call_and_validate(base_url=server.url, headers=token, checks=CHECKS)


@schema.parametrize()
@settings(max_examples=3, deadline=None, derandomize=True, database=None, suppress_health_check=list(HealthCheck))
def test_requests_made_up_from_the_description(case: Any, server: Server, rows: SampleRows) -> None:
    """As they are made up by an admin, and then about rows that exist by those who have to do with them, in turn."""
    check(case, server, rows.clients["admin"])
    point_at_rows(case, rows)
    check(case, server, rows.clients[next(ROLES)])


def point_at_rows(case: Any, rows: SampleRows) -> None:
    """Puts ids that exist where the description knows only that an id stands there; nobody is disabled on the way."""
    if case.path_parameters:
        found = rows.values(ENDPOINTS[case.path])
        case.path_parameters = {name: found[name] for name in case.path_parameters}
    if isinstance(case.body, dict):
        kept = {name: value for name, value in case.body.items() if name != "status"}
        case.body = {name: rows.named.get(name, value) for name, value in kept.items()}
    if isinstance(case.query, dict):
        # Nobody has a minute to wait for a job, or for a plan: no agent here makes one, so the right answer is 504.
        known = {**rows.named, "wait": 0, "plan": "false"}
        case.query = {name: known.get(name, value) for name, value in case.query.items()}
