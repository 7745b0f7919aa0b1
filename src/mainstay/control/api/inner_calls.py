"""Finds the endpoint of a request that another request contains: of a page, or of a batch."""

from __future__ import annotations

from functools import cache
from urllib.parse import unquote

from mainstay.control.api.contract import Endpoint
from mainstay.control.api.endpoints import all_endpoints
from mainstay.control.api.routes import RouteTable, parameters_of


def find_endpoint(method: str, path: str) -> tuple[Endpoint, dict[str, str]] | None:
    """The endpoint and the parameters in the path. None: there is none."""
    segments = [unquote(segment) for segment in path.removeprefix("/").split("/")]
    endpoint = _endpoints().find(segments).get(method)
    return None if endpoint is None else (endpoint, parameters_of(endpoint.path, segments))


@cache
def _endpoints() -> RouteTable[Endpoint]:
    return RouteTable(all_endpoints())
