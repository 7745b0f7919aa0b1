"""Requests and responses over ASGI: the part of HTTP that endpoints and pages use. uvicorn reads and writes the bytes."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, MutableMapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qsl, quote, unquote

if TYPE_CHECKING:
    from mainstay.control.access import Caller

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
# Characters of a segment that need no encoding (RFC 3986, `pchar`).
SEGMENT_CHARACTERS = ":@!$&'()*+,;=~-._"
WITHOUT_BODY = (204, 304)
# Below this path `%2F` is a slash within a segment: the name of an action may have one. Elsewhere it separates segments,
# so no other value has a slash: pages put such values into paths of the API.
KEEPS_ENCODED_SLASHES = "/api/v1/services/"


@dataclass(slots=True)
class HttpRequest:
    method: str
    # The decoded segments of the path, without empty ones.
    segments: Sequence[str]
    query_string: str
    # Names in lower case. Of a repeated header the first value counts.
    headers: Mapping[str, str]
    # How the client reached the server: http or https.
    scheme: str
    # The address of the client; "" if unknown.
    client: str
    receive: Receive
    # The values of the parameters of the route.
    parameters: Mapping[str, str] = field(default_factory=dict)
    # Set before roles and limits are checked: the log also names callers that are refused. None: not authenticated.
    caller: Caller | None = None
    # A proxy in front may have read the other one.
    has_two_hosts: bool = False

    @property
    def query(self) -> list[tuple[str, str]]:
        return parse_qsl(self.query_string, keep_blank_values=True)

    @property
    def url(self) -> str:
        """Path and query, without the host. The path has no double slash and no slash at its end."""
        path = "/" + "/".join(quote(segment, safe=SEGMENT_CHARACTERS) for segment in self.segments)
        return f"{path}?{self.query_string}" if self.query_string else path


@dataclass(slots=True)
class HttpResponse:
    body: bytes = b""
    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict)
    media_type: str = "application/json"
    # Values of `Set-Cookie`.
    cookies: Sequence[str] = ()
    # A stream is sent instead of a body.
    stream: AsyncIterator[bytes] | None = None

    def encoded_headers(self) -> list[tuple[bytes, bytes]]:
        headers = {name.lower(): value for name, value in self.headers.items()}
        if self.status not in WITHOUT_BODY:
            is_text = self.media_type.startswith("text/") and "charset=" not in self.media_type
            headers.setdefault("content-type", f"{self.media_type}; charset=utf-8" if is_text else self.media_type)
            if self.stream is None:
                headers.setdefault("content-length", str(len(self.body)))
        pairs = [*headers.items(), *(("set-cookie", cookie) for cookie in self.cookies)]
        return [(name.encode("latin-1"), value.encode("latin-1")) for name, value in pairs]


def read_request(scope: Mapping[str, Any], receive: Receive) -> HttpRequest:
    client = scope["client"]
    return HttpRequest(
        scope["method"],
        _split_path(scope["raw_path"].decode("ascii", "replace")),
        scope["query_string"].decode("latin-1"),
        {name.decode("latin-1"): value.decode("latin-1") for name, value in reversed(scope["headers"])},
        scope["scheme"],
        client[0] if client else "",
        receive,
        has_two_hosts=sum(name == b"host" for name, _ in scope["headers"]) > 1,
    )


def _split_path(path: str) -> list[str]:
    if path.startswith(KEEPS_ENCODED_SLASHES):
        return [unquote(segment) for segment in path.split("/") if segment]
    return [segment for segment in unquote(path).split("/") if segment]


async def send_stream(stream: AsyncIterator[bytes], receive: Receive, send: Send) -> None:
    """Sends the pieces until the stream ends or the client disconnects."""
    async with asyncio.TaskGroup() as group:
        sending = group.create_task(_send_pieces(stream, send))
        watching = group.create_task(_wait_for_disconnect(receive))
        sending.add_done_callback(lambda _: watching.cancel())
        watching.add_done_callback(lambda _: sending.cancel())


async def _send_pieces(stream: AsyncIterator[bytes], send: Send) -> None:
    async with aclosing(stream):  # type: ignore[type-var]
        async for piece in stream:
            await send({"type": "http.response.body", "body": piece, "more_body": True})
    await send({"type": "http.response.body", "body": b"", "more_body": False})


async def _wait_for_disconnect(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
