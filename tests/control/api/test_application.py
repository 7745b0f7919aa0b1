"""Routes, allowed methods, cross-origin requests, responses and streams, in process: requests without a server."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from mainstay.control.api.application import Application, HttpRoute
from mainstay.control.api.asgi import HttpRequest, HttpResponse, Message
from mainstay.control.api.cross_origin import parse_origins
from mainstay.control.api.routes import RouteTable

SERVICES = "/api/v1/services"


@dataclass
class Sent:
    """What the application sent."""

    status: int = 0
    headers: dict[str, str] = field(default_factory=dict)
    body: bytes = b""

    async def send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
            self.headers = {name.decode(): value.decode() for name, value in message["headers"]}
        else:
            self.body += message["body"]

    @property
    def code(self) -> object:
        return json.loads(self.body)["code"]


def scope(method: str, path: str, headers: Mapping[str, str]) -> dict[str, Any]:
    raw_path, _, query = path.partition("?")
    return {
        "method": method,
        "raw_path": raw_path.encode(),
        "query_string": query.encode(),
        "headers": [(name.lower().encode(), value.encode("latin-1")) for name, value in headers.items()],
        "scheme": "http",
        "client": ("192.0.2.1", 5),
    }


async def connected() -> Message:
    await asyncio.Event().wait()
    raise AssertionError("an event that nothing sets")


async def disconnected() -> Message:
    return {"type": "http.disconnect"}


def ask(application: Application, method: str, path: str, headers: Mapping[str, str] | None = None) -> Sent:
    sent = Sent()
    asyncio.run(application(scope(method, path, headers or {}), disconnected, sent.send))
    return sent


def echo(method: str, path: str) -> HttpRoute:
    async def serve(request: HttpRequest) -> HttpResponse:
        shown = {"route": path, "parameters": request.parameters, "url": request.url, "query": request.query}
        return HttpResponse(json.dumps(shown).encode())

    return HttpRoute(method, path, serve)


def application(origins: str = "", *more: HttpRoute) -> Application:
    routes = [
        echo("GET", "/"),
        echo("GET", "/things"),
        echo("POST", "/things"),
        echo("GET", "/things/{id}"),
        echo("PATCH", "/things/{id}"),
        echo("POST", "/things/validate"),
        echo("POST", "/things/{id}/{action}"),
        echo("POST", f"{SERVICES}/{{id}}/{{action}}"),
        *more,
    ]
    return Application(RouteTable(routes), parse_origins(origins), None)


def test_a_path_finds_its_route_segment_by_segment() -> None:
    served = application()
    for method, path, route, parameters in (
        ("GET", "/", "/", {}),
        ("GET", "//", "/", {}),
        ("GET", "/things", "/things", {}),
        ("GET", "//things/", "/things", {}),
        ("GET", "/thing%73", "/things", {}),
        ("GET", "/things/1", "/things/{id}", {"id": "1"}),
        ("GET", "/things/a%20b+c", "/things/{id}", {"id": "a b+c"}),
        ("GET", "/things/%E4%B8%AD", "/things/{id}", {"id": "中"}),
        ("GET", "/things/%FF", "/things/{id}", {"id": "\ufffd"}),
        ("GET", "/things/..", "/things/{id}", {"id": ".."}),
        ("GET", "/things%2f1", "/things/{id}", {"id": "1"}),
        ("GET", "/things/a%252Fb", "/things/{id}", {"id": "a%2Fb"}),
        ("GET", "/things/{id}", "/things/{id}", {"id": "{id}"}),
        ("POST", "/things/validate", "/things/validate", {}),
        ("POST", "/things/validate/x", "/things/{id}/{action}", {"id": "validate", "action": "x"}),
        ("POST", "/things/1%2fstart", "/things/{id}/{action}", {"id": "1", "action": "start"}),
        ("POST", f"{SERVICES}/1/start%2Fall", f"{SERVICES}/{{id}}/{{action}}", {"id": "1", "action": "start/all"}),
        ("POST", f"{SERVICES}/%2F/%252f", f"{SERVICES}/{{id}}/{{action}}", {"id": "/", "action": "%2f"}),
    ):
        found = json.loads(ask(served, method, path).body)
        assert (found["route"], found["parameters"]) == (route, parameters), (method, path)


def test_the_query_keeps_order_repeated_and_empty_values() -> None:
    found = json.loads(ask(application(), "GET", "/things?b=1&a=&b=2+3&c&%C3%A4=%26;x").body)
    assert found["query"] == [["b", "1"], ["a", ""], ["b", "2 3"], ["c", ""], ["ä", "&;x"]]


def test_the_url_of_a_request_is_normalised_and_stays_on_this_server() -> None:
    for path, url in (
        ("//evil.example//x/", "/evil.example/x"),
        ("/a%2Fc%3Fd?e=%2F", "/a/c%3Fd?e=%2F"),
        ("/a%22<b>/;=@", "/a%22%3Cb%3E/;=@"),
    ):

        async def shown(request: HttpRequest) -> HttpResponse:
            return HttpResponse(request.url.encode())

        served = application("", HttpRoute("GET", "/{a}/{b}", shown))
        assert ask(served, "GET", path).body.decode() == url


def test_an_unknown_path_or_method_is_refused_with_the_allowed_methods() -> None:
    served = application()
    for method, path, status, allowed in (
        ("GET", "/nothing", 404, None),
        ("OPTIONS", "/nothing", 404, None),
        ("GET", "/things/1/2/3", 404, None),
        ("GET", "/Things", 404, None),
        ("HEAD", "/things", 405, "GET, OPTIONS, POST"),
        ("get", "/things", 405, "GET, OPTIONS, POST"),
        ("PUT", "/things/1", 405, "GET, OPTIONS, PATCH"),
        ("GET", "/things/validate", 405, "OPTIONS, POST"),
        ("OPTIONS", "/things", 204, "GET, OPTIONS, POST"),
    ):
        sent = ask(served, method, path)
        assert (sent.status, sent.headers.get("allow")) == (status, allowed), (method, path)
        if status != 204:
            assert sent.code == {404: "not_found", 405: "method_not_allowed"}[status]
            assert sent.headers["cache-control"] == "no-store"
            assert sent.headers["x-request-id"]


def test_a_host_header_that_no_url_can_have_is_refused() -> None:
    for host, status in (
        ("localhost:8080", 200),
        ("[::1]:80", 200),
        ("", 200),
        ("a:b:c", 400),
        ("x:99999999999999999999", 400),
        ("[::1é]:80", 400),
        ("[::1", 400),
        ("user@host", 400),
        ("a b", 400),
        ("a/b", 400),
        ("<x>", 400),
        ("ä", 400),
    ):
        assert ask(application(), "GET", "/things", {"Host": host}).status == status, host


def test_an_unknown_path_with_a_bad_host_is_answered_with_the_document() -> None:
    for path in ("/things", "/nothing"):
        sent = ask(application(), "GET", path, {"Host": "a:b:c"})
        assert (sent.status, sent.code) == (400, "bad_request")
        assert sent.headers["x-request-id"]
        assert sent.headers["x-content-type-options"] == "nosniff"


def test_two_host_headers_are_refused() -> None:
    sent = ask(application(), "GET", "/things", {"Host": "a", "host": "a"})
    assert (sent.status, sent.code) == (400, "bad_request")


PREFLIGHT = {"Access-Control-Request-Method": "PATCH", "Access-Control-Request-Headers": "x-a, Authorization"}
METHODS = "DELETE, GET, HEAD, OPTIONS, PATCH, POST, PUT"


def test_a_preflight_is_answered_for_allowed_origins_only() -> None:
    only_it = {"access-control-allow-origin": "https://ui.example", "vary": "Origin"}
    for origins, origin, expected in (
        ("https://ui.example", "https://ui.example", only_it),
        ("https://x.example, https://*.example", "https://ui.example", only_it),
        ("*", "https://ui.example", {"access-control-allow-origin": "*"}),
        ("https://ui.example", "https://ui.example.evil", None),
        ("https://ui.example", "https://uixexample", None),
        ("https://ui.example", "null", None),
    ):
        sent = ask(application(origins), "OPTIONS", "/nothing", {"Origin": origin, **PREFLIGHT})
        if expected is None:
            assert (sent.status, sent.body) == (400, b"Disallowed CORS Origin"), (origins, origin)
            continue
        assert (sent.status, sent.body) == (204, b"")
        assert sent.headers == expected | {
            "access-control-max-age": "600",
            "access-control-allow-methods": METHODS,
            "access-control-allow-headers": "Accept, Accept-Language, Authorization, Content-Language, Content-Type, x-a",
        }


def test_responses_to_other_origins_name_the_allowed_one() -> None:
    allowed = {"access-control-allow-origin": "https://ui.example", "vary": "Origin"}
    for origins, headers, expected in (
        ("", {"Origin": "https://ui.example"}, {}),
        ("https://ui.example", {}, {}),
        ("https://ui.example", {"Origin": "https://ui.example"}, allowed),
        ("https://ui.example", {"Origin": "https://evil.example"}, {}),
        ("*", {"Origin": "https://ui.example"}, {"access-control-allow-origin": "*"}),
        ("*", {"Origin": "https://ui.example", "Cookie": "a=b"}, allowed),
    ):
        for path in ("/things", "/nothing"):
            sent = ask(application(origins), "GET", path, headers)
            found = {name: value for name, value in sent.headers.items() if name in allowed}
            assert found == expected, (origins, headers, path)
            exposed = "ETag, X-Request-Id" if origins and headers else None
            assert sent.headers.get("access-control-expose-headers") == exposed


def test_the_type_and_length_of_a_response_follow_from_its_body() -> None:
    for response, expected in (
        (HttpResponse(b"{}"), {"content-type": "application/json", "content-length": "2"}),
        (HttpResponse(status=204, headers={"ETag": "1"}), {"etag": "1"}),
        (HttpResponse(status=304), {}),
        (HttpResponse(media_type="text/html"), {"content-type": "text/html; charset=utf-8", "content-length": "0"}),
        (
            HttpResponse(media_type="text/plain; charset=utf-8"),
            {"content-type": "text/plain; charset=utf-8", "content-length": "0"},
        ),
        (HttpResponse(media_type="image/png", stream=endless()), {"content-type": "image/png"}),
    ):
        assert {name.decode(): value.decode() for name, value in response.encoded_headers()} == expected


def test_a_header_that_cannot_be_sent_is_a_defect_with_an_id() -> None:
    async def serve(request: HttpRequest) -> HttpResponse:
        return HttpResponse(status=303, headers={"Location": "/中"})

    sent = ask(application("", HttpRoute("GET", "/odd", serve)), "GET", "/odd")
    assert (sent.status, sent.code) == (500, "internal")


async def endless(closed: list[str] | None = None) -> AsyncIterator[bytes]:
    try:
        while True:
            yield b"piece\n"
            await asyncio.sleep(0)
    finally:
        if closed is not None:
            closed.append("closed")


def test_a_stream_ends_when_its_client_disconnects() -> None:
    closed: list[str] = []

    async def serve(request: HttpRequest) -> HttpResponse:
        return HttpResponse(stream=endless(closed))

    async def run() -> Sent:
        sent, is_read = Sent(), asyncio.Event()

        async def receive() -> Message:
            await is_read.wait()
            return await disconnected()

        async def send(message: Message) -> None:
            await sent.send(message)
            if sent.body.count(b"\n") == 3:
                is_read.set()

        served = application("", HttpRoute("GET", "/stream", serve))
        async with asyncio.timeout(10):
            await served(scope("GET", "/stream", {}), receive, send)
        return sent

    assert asyncio.run(run()).body.count(b"piece\n") >= 3
    assert closed == ["closed"]


def test_a_stream_that_ends_is_sent_whole() -> None:
    async def pieces() -> AsyncIterator[bytes]:
        yield b"a"
        await asyncio.sleep(0)
        yield b"b"

    async def serve(request: HttpRequest) -> HttpResponse:
        return HttpResponse(stream=pieces())

    async def run() -> Sent:
        sent = Sent()
        served = application("", HttpRoute("GET", "/s", serve))
        async with asyncio.timeout(10):
            await served(scope("GET", "/s", {}), connected, sent.send)
        return sent

    assert asyncio.run(run()).body == b"ab"
