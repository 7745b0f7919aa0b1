"""Requests that a page first plans and then executes, through the endpoints of the API."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from mainstay.control.web.contract import ApiRefusal, PageCall

# In seconds, less than the 60 of the API: a person waits for the page.
PLAN_WAIT = ("planWait", "30")
# Refusals after which the order can still be forecast without the agent.
WITHOUT_AGENT = frozenset({"agent_silent", "plan_failed"})


@dataclass(frozen=True, slots=True)
class PlannedRequest:
    method: str
    path: str
    # None: the endpoint has no body.
    body: Mapping[str, Any] | None = None
    headers: Mapping[str, str] = field(default_factory=dict)
    query: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class OrderForecast:
    """`without_agent`: why the forecast does not contain the changes on the host; empty if it does."""

    document: Mapping[str, Any]
    without_agent: str = ""


async def forecast(call: PageCall, request: PlannedRequest, *, offline: str = "") -> OrderForecast:
    """A plan, or a dry run if the agent does not answer. `offline`: why the agent is not asked at all."""
    if not offline:
        try:
            return OrderForecast(await _send(call, request, ("plan", "true"), PLAN_WAIT))
        except ApiRefusal as refusal:
            if refusal.code not in WITHOUT_AGENT:
                raise
            offline = str(refusal)
    return OrderForecast(await _send(call, request, ("dryRun", "true")), offline)


async def dry_run(call: PageCall, request: PlannedRequest) -> OrderForecast:
    """The forecast of the server alone."""
    return OrderForecast(await _send(call, request, ("dryRun", "true")))


async def execute(call: PageCall, request: PlannedRequest, digest: str) -> Any:
    """`digest` of a plan; empty: without a plan."""
    if not digest:
        return await _send(call, request)
    if request.body is None:
        return await _send(call, request, ("planDigest", digest), PLAN_WAIT)
    planned = replace(request, body={**request.body, "planDigest": digest})
    return await _send(call, planned, PLAN_WAIT)


async def _send(call: PageCall, request: PlannedRequest, *query: tuple[str, str]) -> Any:
    return await call.api(
        request.method, request.path, request.body, query=[*request.query, *query], headers=request.headers
    )
