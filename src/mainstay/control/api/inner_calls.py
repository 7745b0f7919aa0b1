"""Finds the endpoint of a request that another request contains: of a page, or of a batch."""

from __future__ import annotations

import re
from functools import cache
from urllib.parse import unquote

from mainstay.control.api.contract import Endpoint
from mainstay.control.api.endpoints import all_endpoints


def find_endpoint(method: str, path: str) -> tuple[Endpoint, dict[str, str]] | None:
    """The endpoint and the parameters in the path. None: there is none."""
    for endpoint, pattern in _patterns(method):
        found = pattern.fullmatch(path)
        if found is not None:
            return endpoint, {name: unquote(value) for name, value in found.groupdict().items()}
    return None


@cache
def _patterns(method: str) -> tuple[tuple[Endpoint, re.Pattern[str]], ...]:
    """Paths with fewer parameters first: `/services/validate` before `/services/{id}`."""
    found = sorted((each for each in all_endpoints() if each.method == method), key=lambda each: each.path.count("{"))
    return tuple((each, re.compile(re.sub(r"\{(\w+)\}", r"(?P<\1>[^/]+)", each.path))) for each in found)
