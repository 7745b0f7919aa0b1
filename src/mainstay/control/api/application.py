"""The ASGI application. One pipeline for all endpoints: authentication, limits, metrics, logs, error responses."""

from __future__ import annotations

import asyncio
import re
import secrets
import time
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
import structlog
from litestar import Litestar, Request, Response
from litestar.config.cors import CORSConfig
from litestar.exceptions import HTTPException, InternalServerException
from litestar.handlers import HTTPRouteHandler
from litestar.response import Stream
from litestar.types import ControllerRouterHandler

from mainstay.control.access import relation_of
from mainstay.control.api.authentication import authenticate
from mainstay.control.api.contract import Answer, Call, Dependencies, Endpoint
from mainstay.control.api.endpoints import all_endpoints
from mainstay.control.api.endpoints.root import HEALTH_PATHS
from mainstay.control.api.errors import PHRASES, HttpRefusal, bug_answer, refusal_answer
from mainstay.control.api.limits import RequestLimits

BASE = "/api/v1"
# Limit without a token: such requests have small bodies.
OPEN_BODY_BYTES = 16 * 2**10
REQUEST_ID = re.compile(r"[A-Za-z0-9._-]{1,64}")
# Responses contain tokens, secrets and data of tenants: no cache keeps them, and no browser guesses their type.
SAFE_HEADERS = {"Cache-Control": "no-store", "X-Content-Type-Options": "nosniff"}
HttpRequest = Request[Any, Any, Any]

log = structlog.get_logger("mainstay.api")


def make_application(dependencies: Dependencies, *, health_only: bool = False) -> Litestar:
    pipeline = RequestPipeline(dependencies)
    served = [each for each in all_endpoints() if not health_only or each.path in HEALTH_PATHS]
    origins = [origin.strip() for origin in dependencies.settings.cors_origins.split(",") if origin.strip()]
    handlers: list[ControllerRouterHandler] = [pipeline.handler(endpoint) for endpoint in served]
    return Litestar(
        route_handlers=handlers,
        openapi_config=None,
        cors_config=CORSConfig(allow_origins=origins, expose_headers=["ETag", "X-Request-Id"]) if origins else None,
        exception_handlers={Exception: pipeline.answer_error},
        request_max_body_size=dependencies.settings.max_body_bytes,
        logging_config=None,
        debug=False,
    )


class RequestPipeline:
    def __init__(self, dependencies: Dependencies) -> None:
        self._dependencies = dependencies
        self._limits = RequestLimits(dependencies.settings.rate_limit)

    def handler(self, endpoint: Endpoint) -> HTTPRouteHandler:
        route = re.sub(r"\{(\w+)\}", r"{\1:str}", endpoint.path)

        async def serve(request: HttpRequest) -> Response[Any]:
            return await self._serve(endpoint, request)

        serve.__name__ = f"{endpoint.method.lower()}_{re.sub(r'[^a-z0-9]+', '_', endpoint.path.lower())}"
        serve.__annotations__ = {"request": Request, "return": Response}
        return HTTPRouteHandler(route, http_method=endpoint.method, status_code=200)(serve)  # type: ignore[arg-type]

    async def _serve(self, endpoint: Endpoint, request: HttpRequest) -> Response[Any]:
        started = time.perf_counter()
        request_id = _request_id_of(request)
        try:
            answer = await self._act(endpoint, request)
            response = _respond(endpoint, answer)
        except Exception as error:  # noqa: BLE001 - a bug is logged with an id and answered with 500
            response = self._refuse(error, request_id)
        response.headers.update(SAFE_HEADERS, **{"X-Request-Id": request_id})
        status = response.status_code or endpoint.status
        seconds = time.perf_counter() - started
        self._dependencies.measures.count_request(endpoint.method, endpoint.path, status, seconds)
        log.info(
            "request",
            id=request_id,
            method=endpoint.method,
            route=endpoint.path,
            status=status,
            ms=round(seconds * 1000, 1),
        )
        return response

    async def _act(self, endpoint: Endpoint, request: HttpRequest) -> Answer:
        client = request.client.host if request.client else ""
        caller = None
        if endpoint.access is not None:
            caller = await authenticate(self._dependencies, request.headers.get("authorization"))
            self._limits.admit(caller)
            relation_of(caller, *endpoint.access)
            if caller.read_only and not endpoint.admits_read_only:
                raise HttpRefusal(403, "read_only", "this token may only read")
        path = {name: str(value) for name, value in request.path_params.items()}
        query = [(key, str(value)) for key, value in request.query_params.multi_items()]
        _refuse_zero_bytes(path, query)
        call = Call(
            self._dependencies,
            path,
            query,
            request.headers,
            await self._read(request, is_open=caller is None),
            caller,
            client,
            # Not from the URL: that contains the Host header, which may be invalid.
            request.scope["scheme"],
        )
        return await endpoint.act(call)

    async def _read(self, request: HttpRequest, *, is_open: bool) -> bytes:
        settings = self._dependencies.settings
        most = OPEN_BODY_BYTES if is_open else settings.max_body_bytes
        body = bytearray()
        try:
            async with asyncio.timeout(settings.request_seconds):
                async for piece in request.stream():
                    body += piece
                    if len(body) > most:
                        raise HttpRefusal(413, "body_too_large", f"the body is larger than {most} bytes")
        except TimeoutError:
            message = f"the body did not arrive within {settings.request_seconds} s"
            raise HttpRefusal(408, "slow_body", message, headers={"Connection": "close"}) from None
        except InternalServerException:
            # Litestar raises this if the client disconnects before the end of the body; the response is not read.
            raise HttpRefusal(400, "cut_off", "the body is truncated") from None
        return bytes(body)

    def _refuse(self, error: Exception, request_id: str) -> Response[Any]:
        found = refusal_answer(error)
        if found is None and isinstance(error, HTTPException):
            found = _framework_refusal(error)
        if found is None:
            incident = secrets.token_hex(8)
            log.error("bug", id=request_id, incident=incident, exc_info=error)
            found = (500, bug_answer(incident), {})
        status, document, headers = found
        return Response(
            msgspec.json.encode(document), status_code=status, headers=headers, media_type="application/json"
        )

    def answer_error(self, request: HttpRequest, error: Exception) -> Response[Any]:
        """Answers errors that occur before an endpoint is called: an unknown path or method."""
        request_id = _request_id_of(request)
        response = self._refuse(error, request_id)
        response.headers.update(SAFE_HEADERS, **{"X-Request-Id": request_id})
        return response


def _request_id_of(request: HttpRequest) -> str:
    given = request.headers.get("x-request-id", "")
    return given if REQUEST_ID.fullmatch(given) else secrets.token_hex(8)


def _refuse_zero_bytes(path: Mapping[str, str], query: Sequence[tuple[str, str]]) -> None:
    """No stored text contains a zero byte, and PostgreSQL raises an error for a parameter with one."""
    if any("\0" in value for value in path.values()):
        raise HttpRefusal(404, "not_found", "no such path")
    if any("\0" in part for pair in query for part in pair):
        raise HttpRefusal(400, "bad_query", "the query contains a zero byte")


def _framework_refusal(error: HTTPException) -> tuple[int, dict[str, object], dict[str, str]] | None:
    status = error.status_code
    codes = {404: "not_found", 405: "method_not_allowed", 413: "body_too_large"}
    if status >= 500:
        return None
    code = codes.get(status, "bad_request")
    status = status if status in PHRASES else 400
    message = "the body is too large" if status == 413 else "no such path" if status == 404 else error.detail
    headers = {name: value for name, value in (error.headers or {}).items() if name.lower() == "allow"}
    return status, {"status": PHRASES[status], "error": message, "code": code}, headers


def _respond(endpoint: Endpoint, answer: Answer) -> Response[Any]:
    status = answer.status or endpoint.status
    headers = dict(answer.headers)
    if answer.stream is not None:
        return Stream(answer.stream, status_code=status, headers=headers, media_type=answer.media_type)
    if answer.body is None and status in (204, 304):
        return Response(b"", status_code=status, headers=headers)
    body = answer.body if isinstance(answer.body, bytes) else msgspec.json.encode(answer.body)
    return Response(body, status_code=status, headers=headers, media_type=answer.media_type)
