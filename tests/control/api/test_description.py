"""Requests made up from the description: no bug, no status and no shape that it does not name."""

from __future__ import annotations

from typing import Any

import schemathesis
from hypothesis import HealthCheck, settings
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import response_schema_conformance, status_code_conformance

from mainstay.control.api.openapi import describe_api
from plane import Server

# A body of its own kind is bytes, whatever they are.
schemathesis.serializer.alias("application/gzip", "application/octet-stream")
# A stream does not end by itself.
schema = schemathesis.openapi.from_dict(describe_api()).exclude(path="/api/v1/events/stream")


@schema.parametrize()
@settings(max_examples=4, deadline=None, suppress_health_check=list(HealthCheck))
def test_requests_made_up_from_the_description(case: Any, embedded: Server) -> None:
    case.call_and_validate(
        base_url=embedded.url,
        headers={"Authorization": f"Bearer {embedded.admin.token}"},
        checks=[not_a_server_error, status_code_conformance, response_schema_conformance],
    )
