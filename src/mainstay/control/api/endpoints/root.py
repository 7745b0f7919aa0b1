"""Endpoints at the root, without a token: health, readiness, metrics and the API description."""

from __future__ import annotations

from typing import Literal

import msgspec

from mainstay.control.access import Role
from mainstay.control.api.authentication import authenticate
from mainstay.control.api.contract import Answer, Call, Endpoint
from mainstay.control.api.errors import HttpRefusal
from mainstay.control.store.engine.contract import Unavailable, ping


class Health(msgspec.Struct, frozen=True):
    status: Literal["UP", "DOWN"]


async def _is_alive(_call: Call) -> Answer:
    return Answer(Health("UP"))


async def _is_ready(call: Call) -> Answer:
    dependencies = call.dependencies
    if dependencies.readiness.stopping.is_set():
        return Answer(Health("DOWN"), status=503)
    try:
        async with call.reading() as work:
            await ping(work.tx)
        if not await dependencies.readiness.can_write(dependencies.store):
            return Answer(Health("DOWN"), status=503)
    except Unavailable:
        return Answer(Health("DOWN"), status=503)
    return Answer(Health("UP"))


async def _show_metrics(call: Call) -> Answer:
    """The figures of the plane contain names of several tenants, so not everybody sees them."""
    dependencies = call.dependencies
    measures, store, tools = dependencies.measures, dependencies.store, dependencies.tools
    measures.measure(store, tools)
    if not await _may_see_plane(call):
        return Answer(measures.render_server(), media_type=measures.media_type)
    figures = await dependencies.figures.read(store, tools, dependencies.clock)
    return Answer(measures.render_server() + measures.render_plane(figures), media_type=measures.media_type)


async def _may_see_plane(call: Call) -> bool:
    dependencies = call.dependencies
    if dependencies.is_health_port or dependencies.settings.metrics_access == "open":
        return True
    header = call.headers.get("authorization")
    if header is None:
        return False
    caller = await authenticate(dependencies, header)
    if caller.role is not Role.ADMIN:
        raise HttpRefusal(403, "forbidden", "only admins see the figures of the plane; send no token for the others")
    return True


async def _describe(_call: Call) -> Answer:
    from mainstay.control.api.openapi import describe_api

    return Answer(describe_api())


async def _show_docs(_call: Call) -> Answer:
    from mainstay.control.api.docs_page import docs_page
    from mainstay.control.api.openapi import describe_api

    policy = "default-src 'none'; style-src 'unsafe-inline'"
    page = docs_page(describe_api()).encode()
    return Answer(page, media_type="text/html; charset=utf-8", headers={"Content-Security-Policy": policy})


def _open(path: str, act: object, summary: str, answer: object, media_type: str = "application/json") -> Endpoint:
    return Endpoint(
        method="GET",
        path=path,
        act=act,  # type: ignore[arg-type]
        access=None,
        summary=summary,
        answer=answer,
        media_type=media_type,
        refusals={"/ready": (503,), "/metrics": (401, 403)}.get(path, ()),
    )


ENDPOINTS = (
    _open("/healthz", _is_alive, "Whether the process is alive", Health),
    _open("/ready", _is_ready, "Whether the server accepts requests", Health),
    _open(
        "/metrics",
        _show_metrics,
        "Metrics, for Prometheus; those of the plane need an admin token",
        str,
        "text/plain",
    ),
    _open("/openapi.json", _describe, "The OpenAPI description", dict[str, object]),
    _open("/docs", _show_docs, "The API description as a page", str, "text/html"),
)
HEALTH_PATHS = ("/healthz", "/ready", "/metrics")
