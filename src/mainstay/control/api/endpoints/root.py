"""Endpoints at the root, without a token: health, readiness, metrics and the API description."""

from __future__ import annotations

from typing import Literal

import msgspec

from mainstay.control.api.contract import Answer, Call, Endpoint
from mainstay.control.store.engine.contract import Unavailable, ping


class Health(msgspec.Struct, frozen=True):
    status: Literal["UP", "DOWN"]


async def _is_alive(_call: Call) -> Answer:
    return Answer(Health("UP"))


async def _is_ready(call: Call) -> Answer:
    if call.dependencies.readiness.stopping.is_set():
        return Answer(Health("DOWN"), status=503)
    try:
        async with call.reading() as work:
            await ping(work.tx)
    except Unavailable:
        return Answer(Health("DOWN"), status=503)
    return Answer(Health("UP"))


async def _show_metrics(call: Call) -> Answer:
    return Answer(call.dependencies.measures.render(), media_type=call.dependencies.measures.media_type)


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
        refusals=(503,) if path == "/ready" else (),
    )


ENDPOINTS = (
    _open("/healthz", _is_alive, "Whether the process is alive", Health),
    _open("/ready", _is_ready, "Whether the server accepts requests", Health),
    _open("/metrics", _show_metrics, "Metrics of the server, for Prometheus", str, "text/plain"),
    _open("/openapi.json", _describe, "The OpenAPI description", dict[str, object]),
    _open("/docs", _show_docs, "The API description as a page", str, "text/html"),
)
HEALTH_PATHS = ("/healthz", "/ready", "/metrics")
