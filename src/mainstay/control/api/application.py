"""The ASGI application. One pipeline for all endpoints: authentication, limits, metrics, logs, error responses."""

from __future__ import annotations

import asyncio
import re
import secrets
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import msgspec
import structlog

from mainstay.control.api.admission import refuse_role
from mainstay.control.api.asgi import (
    WITHOUT_BODY,
    HttpRequest,
    HttpResponse,
    Receive,
    Send,
    read_request,
    send_stream,
)
from mainstay.control.api.authentication import authenticate
from mainstay.control.api.bodies import PARSED_ON_LOOP_BYTES, DecodedBody
from mainstay.control.api.contract import Answer, Call, Dependencies, Endpoint
from mainstay.control.api.cross_origin import CrossOrigin, is_preflight, parse_origins
from mainstay.control.api.endpoints import all_endpoints
from mainstay.control.api.endpoints.root import HEALTH_PATHS
from mainstay.control.api.errors import HttpRefusal, bug_answer, refusal_answer
from mainstay.control.api.routes import Routed, RouteTable, parameters_of
from mainstay.control.settings import ServerSettings

# Limit without a token: such requests have small bodies.
OPEN_BODY_BYTES = 16 * 2**10
REQUEST_ID = re.compile(r"[A-Za-z0-9._-]{1,64}")
# A name or address, and a port (RFC 3986).
HOST = re.compile(r"(?:\[[0-9A-Fa-f:.]+\]|[0-9A-Za-z!$&'()*+,;=\-._~%]*)(?::[0-9]{0,5})?")
# Responses contain tokens, secrets and data of tenants: no cache keeps them, and no browser guesses their type.
SAFE_HEADERS = {"Cache-Control": "no-store", "X-Content-Type-Options": "nosniff"}

log = structlog.get_logger("mainstay.api")

# Returns None if the client does not ask for HTML.
ErrorPage = Callable[[HttpRequest, int, Mapping[str, object]], HttpResponse | None]


@dataclass(frozen=True, slots=True)
class HttpRoute:
    method: str
    # May contain parameters such as `{id}`.
    path: str
    serve: Callable[[HttpRequest], Awaitable[HttpResponse]]


@dataclass(frozen=True, slots=True)
class Application:
    routes: RouteTable[HttpRoute]
    # None: no other origin may call the API.
    cross_origin: CrossOrigin | None
    # Answers browsers that request an unknown path. None: they get JSON, too.
    error_page: ErrorPage | None

    async def __call__(self, scope: Mapping[str, Any], receive: Receive, send: Send) -> None:
        request = read_request(scope, receive)
        try:
            response = await self._respond(request)
            headers = self._headers(request, response)
        except Exception as error:  # noqa: BLE001 - a bug is logged with an id and answered with 500
            response = self._refuse(request, error)
            headers = self._headers(request, response)
        await send({"type": "http.response.start", "status": response.status, "headers": headers})
        if response.stream is None:
            await send({"type": "http.response.body", "body": response.body})
        else:
            await send_stream(response.stream, receive, send)

    def _headers(self, request: HttpRequest, response: HttpResponse) -> list[tuple[bytes, bytes]]:
        if self.cross_origin is not None:
            response.headers = {**response.headers, **self.cross_origin.headers(request)}
        return response.encoded_headers()

    async def _respond(self, request: HttpRequest) -> HttpResponse:
        if self.cross_origin is not None and is_preflight(request):
            return self.cross_origin.answer_preflight(request)
        if request.has_two_hosts or not HOST.fullmatch(request.headers.get("host", "")):
            raise HttpRefusal(400, "bad_request", "Invalid host header")
        by_method = self.routes.find(request.segments)
        route = by_method.get(request.method)
        if route is None and request.method == "HEAD" and request.url in HEALTH_PATHS:
            # Load balancers and monitoring send it. uvicorn leaves out the body.
            route = by_method.get("GET")
        if route is not None:
            request.parameters = parameters_of(route.path, request.segments)
            return await route.serve(request)
        if not by_method:
            raise HttpRefusal(404, "not_found", "no such path")
        allowed = {"Allow": ", ".join(sorted([*by_method, "OPTIONS"]))}
        if request.method == "OPTIONS":
            return HttpResponse(status=204, headers=allowed)
        raise HttpRefusal(405, "method_not_allowed", "Method Not Allowed", headers=allowed)

    def _refuse(self, request: HttpRequest, error: Exception) -> HttpResponse:
        """Answers errors that occur before an endpoint is called: an unknown path or method."""
        request_id = request_id_of(request)
        status, document, headers = refusal_or_bug(error, request_id)
        page = None if self.error_page is None else self.error_page(request, status, document)
        response = page or _json_response(status, document, headers)
        response.headers = {**response.headers, **SAFE_HEADERS, "X-Request-Id": request_id}
        return response


def make_application(
    dependencies: Dependencies,
    *,
    health_only: bool = False,
    pages: Sequence[HttpRoute] = (),
    error_page: ErrorPage | None = None,
) -> Application:
    """`pages` are served beside the endpoints."""
    served = [each for each in all_endpoints() if not health_only or each.path in HEALTH_PATHS]
    routes = RouteTable([*(_endpoint_route(dependencies, endpoint) for endpoint in served), *pages])
    return Application(routes, parse_origins(dependencies.settings.cors_origins), error_page)


def _endpoint_route(dependencies: Dependencies, endpoint: Endpoint) -> HttpRoute:
    async def serve(request: HttpRequest) -> HttpResponse:
        started = time.perf_counter()
        request_id = request_id_of(request)
        try:
            response = _response_of(endpoint, await _act(dependencies, endpoint, request))
        except Exception as error:  # noqa: BLE001 - a bug is logged with an id and answered with 500
            response = _json_response(*refusal_or_bug(error, request_id))
        response.headers = {**response.headers, **SAFE_HEADERS, "X-Request-Id": request_id}
        record_request(dependencies, request, request_id, endpoint, response.status, started)
        return response

    return HttpRoute(endpoint.method, endpoint.path, serve)


async def _act(dependencies: Dependencies, endpoint: Endpoint, request: HttpRequest) -> Answer:
    if endpoint.access is not None:
        request.caller = await authenticate(dependencies, request.headers.get("authorization"))
        dependencies.limits.admit(request.caller)
        refuse_role(request.caller, endpoint)
    call = await read_call(dependencies, request)
    if len(call.raw_body) > PARSED_ON_LOOP_BYTES and endpoint.raw_body is None:
        call = replace(call, raw_body=await asyncio.to_thread(DecodedBody.of, call.raw_body, call.caller))
    return await endpoint.act(call)


def _response_of(endpoint: Endpoint, answer: Answer) -> HttpResponse:
    status = answer.status or endpoint.status
    if answer.stream is not None:
        return HttpResponse(b"", status, answer.headers, answer.media_type, stream=answer.stream)
    if answer.body is None and status in WITHOUT_BODY:
        return HttpResponse(b"", status, answer.headers)
    body = answer.body if isinstance(answer.body, bytes) else msgspec.json.encode(answer.body)
    return HttpResponse(body, status, answer.headers, answer.media_type)


async def read_call(dependencies: Dependencies, request: HttpRequest) -> Call:
    """Reads the whole request. Without a caller only a small body is accepted."""
    query = request.query
    _refuse_zero_bytes(request.parameters, query)
    body = await _read_body(request, dependencies.settings)
    if request.caller is not None:
        dependencies.limits.admit_body(request.caller, len(body))
    return Call(
        dependencies,
        request.parameters,
        query,
        request.headers,
        body,
        request.caller,
        request.client,
        request.scheme,
    )


async def _read_body(request: HttpRequest, settings: ServerSettings) -> bytes:
    most = OPEN_BODY_BYTES if request.caller is None else settings.max_body_bytes
    too_large = HttpRefusal(413, "body_too_large", f"the body is larger than {most} bytes")
    if int(request.headers.get("content-length", "0")) > most:
        raise too_large
    body = bytearray()
    try:
        async with asyncio.timeout(settings.request_seconds):
            is_complete = False
            while not is_complete:
                message = await request.receive()
                if message["type"] == "http.disconnect":
                    # The response is not read.
                    raise HttpRefusal(400, "cut_off", "the body is truncated")
                body += message["body"]
                if len(body) > most:
                    raise too_large
                is_complete = not message["more_body"]
    except TimeoutError:
        text = f"the body did not arrive within {settings.request_seconds} s"
        raise HttpRefusal(408, "slow_body", text, headers={"Connection": "close"}) from None
    return bytes(body)


def record_request(
    dependencies: Dependencies, request: HttpRequest, request_id: str, route: Routed, status: int, started: float
) -> None:
    """Counts and logs a request that began at `started`, a value of `time.perf_counter`. The path of the route is a
    pattern: paths and queries may contain secrets."""
    seconds = time.perf_counter() - started
    dependencies.measures.count_request(route.method, route.path, status, seconds)
    caller = request.caller
    named = {} if caller is None else {"role": str(caller.role), "token": caller.token_id, "caller": caller.name}
    milliseconds = round(seconds * 1000, 1)
    log.info("request", id=request_id, method=route.method, route=route.path, status=status, ms=milliseconds, **named)


def refusal_or_bug(error: Exception, request_id: str) -> tuple[int, dict[str, object], dict[str, str]]:
    """Status, document and headers. A bug is logged with an id, which the document contains."""
    found = refusal_answer(error)
    if found is None:
        incident = secrets.token_hex(8)
        log.error("bug", id=request_id, incident=incident, exc_info=error)
        found = (500, bug_answer(incident), {})
    return found


def _json_response(status: int, document: Mapping[str, object], headers: dict[str, str]) -> HttpResponse:
    return HttpResponse(msgspec.json.encode(document), status, headers)


def request_id_of(request: HttpRequest) -> str:
    given = request.headers.get("x-request-id", "")
    return given if REQUEST_ID.fullmatch(given) else secrets.token_hex(8)


def _refuse_zero_bytes(path: Mapping[str, str], query: Sequence[tuple[str, str]]) -> None:
    """No stored text contains a zero byte, and PostgreSQL raises an error for a parameter with one."""
    if any("\0" in value for value in path.values()):
        raise HttpRefusal(404, "not_found", "no such path")
    if any("\0" in part for pair in query for part in pair):
        raise HttpRefusal(400, "bad_query", "the query contains a zero byte")
