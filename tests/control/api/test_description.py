"""Requests generated from the OpenAPI description: no 500, and only documented statuses and schemas."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, settings
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import response_schema_conformance, status_code_conformance

from control_plane import Client, Server, running
from mainstay.control.api.endpoints import all_endpoints
from mainstay.control.api.openapi import describe_api
from sample_rows import SampleRows
from torture import DATABASES_OF_LONG_TESTS, count_of

# Bodies of other media types are arbitrary bytes.
schemathesis.serializer.alias("application/gzip", "application/octet-stream")


def without_prefix_items(document: Any) -> Any:
    """Replaces `prefixItems`, which schemathesis does not support, by `items` with any of the schemas."""
    if isinstance(document, list):
        return [without_prefix_items(child) for child in document]
    if not isinstance(document, dict):
        return document
    found = {name: without_prefix_items(child) for name, child in document.items()}
    if "prefixItems" in found:
        found["items"] = {"anyOf": found.pop("prefixItems")}
    return found


# Its requests are generated when it is collected, in every worker.
pytestmark = pytest.mark.test_all
UNLIMITED = {"MAINSTAY_RATE_LIMIT": "0"}
# A stream does not end.
schema = schemathesis.openapi.from_dict(without_prefix_items(describe_api())).exclude(path="/api/v1/events/stream")
CHECKS = [not_a_server_error, status_code_conformance, response_schema_conformance]
ENDPOINTS = {endpoint.path: endpoint for endpoint in all_endpoints()}
# No admin: it could delete the rows that the next requests need.
ROLES = itertools.cycle(("consumer", "agent", "provider"))


@pytest.fixture(scope="module", params=DATABASES_OF_LONG_TESTS)
def server(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    url = request.getfixturevalue("postgresql").new_database() if request.param == "postgresql" else None
    with running(tmp_path_factory.mktemp("description") / "data", database_url=url, environment=UNLIMITED) as found:
        yield found


@pytest.fixture(scope="module")
def rows(server: Server) -> SampleRows:
    return SampleRows(server.admin)


def check(case: Any, server: Server, client: Client) -> None:
    token = {"Authorization": f"Bearer {client.token}"}
    case.call_and_validate(base_url=server.url, headers=token, checks=CHECKS)


@schema.parametrize()
@settings(
    max_examples=count_of(20), deadline=None, derandomize=True, database=None, suppress_health_check=list(HealthCheck)
)
def test_generated_requests_get_documented_responses(case: Any, server: Server, rows: SampleRows) -> None:
    """First as generated, by an admin; then with ids of existing rows, by the other roles in turn."""
    check(case, server, rows.clients["admin"])
    use_existing_rows(case, rows)
    check(case, server, rows.clients[next(ROLES)])


def use_existing_rows(case: Any, rows: SampleRows) -> None:
    """Replaces generated ids by ids of existing rows, and drops `status`, so that no row is disabled."""
    if case.path_parameters:
        found = rows.values(ENDPOINTS[case.path])
        case.path_parameters = {name: found[name] for name in case.path_parameters}
    if isinstance(case.body, dict):
        kept = {name: value for name, value in case.body.items() if name != "status"}
        case.body = {name: rows.named.get(name, value) for name, value in kept.items()}
    if isinstance(case.query, dict):
        # Without long polls and plans: no agent runs here, so a plan would end with 504 after a minute.
        known = {**rows.named, "wait": 0, "plan": "false"}
        case.query = {name: known.get(name, value) for name, value in case.query.items()}
