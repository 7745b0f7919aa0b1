"""Calls of API endpoints in process: pages follow the access table, the bodies and the refusals of the API."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import msgspec

from mainstay.control.api.admission import refuse_role
from mainstay.control.api.contract import Answer, Call
from mainstay.control.api.inner_calls import find_endpoint


async def call_endpoint(
    call: Call,
    method: str,
    path: str,
    body: object,
    query: Sequence[tuple[str, str]],
    headers: Mapping[str, str],
) -> Answer:
    found = find_endpoint(method, path)
    if found is None:
        raise LookupError(f"there is no endpoint {method} {path}")
    endpoint, parameters = found
    refuse_role(call.required_caller, endpoint)
    inner = replace(
        call,
        path=parameters,
        query=query,
        headers=headers,
        raw_body=b"" if body is None else msgspec.json.encode(body),
    )
    return await endpoint.act(inner)
