"""The ASGI application. One pipeline for all endpoints: authentication, limits, metrics, logs, error responses."""

from __future__ import annotations

import asyncio
import re
import secrets
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

import msgspec
import structlog
from litestar import Litestar, Request, Response
from litestar.config.cors import CORSConfig
from litestar.exceptions import HTTPException, InternalServerException
from litestar.handlers import HTTPRouteHandler
from litestar.response import Stream
from litestar.types import ControllerRouterHandler

from mainstay.control.access import Caller
from mainstay.control.api.admission import refuse_role
from mainstay.control.api.authentication import authenticate
from mainstay.control.api.contract import Answer, Call, Dependencies, Endpoint
from mainstay.control.api.encoded_slashes import decoded
from mainstay.control.api.endpoints import all_endpoints
from mainstay.control.api.endpoints.root import HEALTH_PATHS
from mainstay.control.api.errors import PHRASES, HttpRefusal, bug_answer, refusal_answer

# Limit without a token: such requests have small bodies.
OPEN_BODY_BYTES = 16 * 2**10
REQUEST_ID = re.compile(r"[A-Za-z0-9._-]{1,64}")
# Responses contain tokens, secrets and data of tenants: no cache keeps them, and no browser guesses their type.
SAFE_HEADERS = {"Cache-Control": "no-store", "X-Content-Type-Options": "nosniff"}
HttpRequest = Request[Any, Any, Any]

log = structlog.get_logger("mainstay.api")


ErrorPage = Callable[[HttpRequest, int, Mapping[str, object]], Response[Any] | None]


def make_application(
    dependencies: Dependencies,
    *,
    health_only: bool = False,
    pages: Sequence[HTTPRouteHandler] = (),
    error_page: ErrorPage | None = None,
) -> Litestar:
    """`pages` are served beside the endpoints. `error_page` answers browsers that request an unknown path; None: JSON."""
    pipeline = RequestPipeline(dependencies, error_page)
    served = [each for each in all_endpoints() if not health_only or each.path in HEALTH_PATHS]
    origins = [origin.strip() for origin in dependencies.settings.cors_origins.split(",") if origin.strip()]
    handlers: list[ControllerRouterHandler] = [*(pipeline.handler(endpoint) for endpoint in served), *pages]
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
    def __init__(self, dependencies: Dependencies, error_page: ErrorPage | None = None) -> None:
        self._dependencies = dependencies
        self._error_page = error_page

    def handler(self, endpoint: Endpoint) -> HTTPRouteHandler:
        async def serve(request: HttpRequest) -> Response[Any]:
            return await self._serve(endpoint, request)

        return route_handler(endpoint.method, endpoint.path, serve)

    async def _serve(self, endpoint: Endpoint, request: HttpRequest) -> Response[Any]:
        started = time.perf_counter()
        request_id = request_id_of(request)
        try:
            answer = await self._act(endpoint, request)
            response = _respond(endpoint, answer)
        except Exception as error:  # noqa: BLE001 - a bug is logged with an id and answered with 500
            response = _json_response(*refusal_or_bug(error, request_id))
        response.headers.update(SAFE_HEADERS, **{"X-Request-Id": request_id})
        status = response.status_code or endpoint.status
        record_request(self._dependencies, request, request_id, endpoint.method, endpoint.path, status, started)
        return response

    async def _act(self, endpoint: Endpoint, request: HttpRequest) -> Answer:
        caller = None
        if endpoint.access is not None:
            caller = await authenticate(self._dependencies, request.headers.get("authorization"))
            note_caller(request, caller)
            self._dependencies.limits.admit(caller)
            refuse_role(caller, endpoint)
        call = await read_call(self._dependencies, request, caller)
        return await endpoint.act(call)

    def answer_error(self, request: HttpRequest, error: Exception) -> Response[Any]:
        """Answers errors that occur before an endpoint is called: an unknown path or method."""
        request_id = request_id_of(request)
        status, document, headers = refusal_or_bug(error, request_id)
        page = None if self._error_page is None else self._error_page(request, status, document)
        response = page or _json_response(status, document, headers)
        response.headers.update(SAFE_HEADERS, **{"X-Request-Id": request_id})
        return response


def route_handler(
    method: str, path: str, serve: Callable[[HttpRequest], Awaitable[Response[Any]]]
) -> HTTPRouteHandler:
    """`serve` as a handler of the framework. `path` has parameters such as `{id}`."""
    route = re.sub(r"\{(\w+)\}", r"{\1:str}", path)
    serve.__name__ = f"{method.lower()}_{re.sub(r'[^a-z0-9]+', '_', path.lower())}"
    serve.__annotations__ = {"request": Request, "return": Response}
    return HTTPRouteHandler(route, http_method=method, status_code=200)(serve)  # type: ignore[arg-type]


async def read_call(dependencies: Dependencies, request: HttpRequest, caller: Caller | None) -> Call:
    """Reads the whole request. Without a caller only a small body is accepted."""
    path = {name: decoded(str(value)) for name, value in request.path_params.items()}
    query = [(key, str(value)) for key, value in request.query_params.multi_items()]
    _refuse_zero_bytes(path, query)
    most = OPEN_BODY_BYTES if caller is None else dependencies.settings.max_body_bytes
    return Call(
        dependencies,
        path,
        query,
        request.headers,
        await _read_body(request, most, dependencies.settings.request_seconds),
        caller,
        request.client.host if request.client else "",
        # Not from the URL: that contains the Host header, which may be invalid.
        request.scope["scheme"],
    )


async def _read_body(request: HttpRequest, most: int, seconds: int) -> bytes:
    body = bytearray()
    try:
        async with asyncio.timeout(seconds):
            async for piece in request.stream():
                body += piece
                if len(body) > most:
                    raise HttpRefusal(413, "body_too_large", f"the body is larger than {most} bytes")
    except TimeoutError:
        message = f"the body did not arrive within {seconds} s"
        raise HttpRefusal(408, "slow_body", message, headers={"Connection": "close"}) from None
    except InternalServerException:
        # Litestar raises this if the client disconnects before the end of the body; the response is not read.
        raise HttpRefusal(400, "cut_off", "the body is truncated") from None
    return bytes(body)


def note_caller(request: HttpRequest, caller: Caller) -> None:
    """For the log, which also names callers that are refused."""
    request.scope["state"]["caller"] = caller


def record_request(
    dependencies: Dependencies,
    request: HttpRequest,
    request_id: str,
    method: str,
    route: str,
    status: int,
    started: float,
) -> None:
    """Counts and logs a request that began at `started`, a value of `time.perf_counter`. The route is a pattern: paths and
    queries may contain secrets."""
    seconds = time.perf_counter() - started
    dependencies.measures.count_request(method, route, status, seconds)
    # Not `request.state`, which wraps the same mapping anew each time.
    caller = request.scope["state"].get("caller")
    named = {} if caller is None else {"role": str(caller.role), "token": caller.token_id, "caller": caller.name}
    log.info(
        "request", id=request_id, method=method, route=route, status=status, ms=round(seconds * 1000, 1), **named
    )


def refusal_or_bug(error: Exception, request_id: str) -> tuple[int, dict[str, object], dict[str, str]]:
    """Status, document and headers. A bug is logged with an id, which the document contains."""
    found = refusal_answer(error)
    if found is None and isinstance(error, HTTPException):
        found = _framework_refusal(error)
    if found is None:
        incident = secrets.token_hex(8)
        log.error("bug", id=request_id, incident=incident, exc_info=error)
        found = (500, bug_answer(incident), {})
    return found


def _json_response(status: int, document: Mapping[str, object], headers: dict[str, str]) -> Response[Any]:
    return Response(msgspec.json.encode(document), status_code=status, headers=headers, media_type="application/json")


def request_id_of(request: HttpRequest) -> str:
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
