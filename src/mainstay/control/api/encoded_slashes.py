"""Keeps `%2F` inside one segment of a path: an action of a service may have a slash in its name. ASGI servers decode the
whole path before it is split into segments."""

from __future__ import annotations

import re
from urllib.parse import unquote

from litestar.types import ASGIApp, Receive, Scope, Send

# The endpoints of one service. Other names in paths are ids, digests and types, which have no slash.
SERVICES = b"/api/v1/services/"
ENCODED = re.compile(r"%2F", re.IGNORECASE)
# No path contains it otherwise: percent-encoded bytes never decode to half a surrogate pair.
STAND_IN = "\udc2f"


def with_encoded_slashes(application: ASGIApp) -> ASGIApp:
    async def serve(scope: Scope, receive: Receive, send: Send) -> None:
        raw = scope["raw_path"]
        if raw.startswith(SERVICES) and b"%2f" in raw.lower():
            scope["path"] = unquote(ENCODED.sub(STAND_IN, raw.decode("ascii", "replace")))
        await application(scope, receive, send)

    return serve


def decoded(segment: str) -> str:
    return segment.replace(STAND_IN, "/")
