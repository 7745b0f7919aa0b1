"""Calls of API endpoints in process: pages follow the access table, the bodies and the refusals of the API."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cache
from urllib.parse import unquote

import msgspec

from mainstay.control.api.admission import refuse_role
from mainstay.control.api.contract import Answer, Call, Endpoint
from mainstay.control.api.endpoints import all_endpoints


async def call_endpoint(
    call: Call,
    method: str,
    path: str,
    body: object,
    query: Sequence[tuple[str, str]],
    headers: Mapping[str, str],
) -> Answer:
    endpoint, parameters = _endpoint_of(method, path)
    refuse_role(call.required_caller, endpoint)
    inner = replace(
        call,
        path=parameters,
        query=query,
        headers=headers,
        raw_body=b"" if body is None else msgspec.json.encode(body),
    )
    return await endpoint.act(inner)


def _endpoint_of(method: str, path: str) -> tuple[Endpoint, dict[str, str]]:
    for endpoint, pattern in _patterns(method):
        found = pattern.fullmatch(path)
        if found is not None:
            return endpoint, {name: unquote(value) for name, value in found.groupdict().items()}
    raise LookupError(f"there is no endpoint {method} {path}")


@cache
def _patterns(method: str) -> tuple[tuple[Endpoint, re.Pattern[str]], ...]:
    """Paths with fewer parameters first: `/services/validate` before `/services/{id}`."""
    found = sorted((each for each in all_endpoints() if each.method == method), key=lambda each: each.path.count("{"))
    return tuple((each, re.compile(re.sub(r"\{(\w+)\}", r"(?P<\1>[^/]+)", each.path))) for each in found)
