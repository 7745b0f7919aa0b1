"""The HTTP client of the control plane, for the agent and the commands of users. Safe to share between threads."""

from __future__ import annotations

import hmac
import http.client
import io
import json
import socket
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any
from urllib.parse import urlencode, urlsplit

import urllib3
from urllib3.connection import HTTPConnection, HTTPSConnection
from urllib3.connectionpool import HTTPConnectionPool, HTTPSConnectionPool

from mainstay.foundation.addresses import is_loopback_host
from mainstay.foundation.numbers import parse_count

API = "/api/v1"
TIMEOUT_SECONDS = 30.0
CONNECT_SECONDS = 10.0
# Read timeout of an event stream; the server sends a comment more often than this.
QUIET_SECONDS = 90.0
PAGE_SIZE = 100
LARGEST_ANSWER_BYTES = 64 * 1024 * 1024
PIECE_BYTES = 64 * 1024
LONGEST_RETRY_AFTER_SECONDS = 86_400
LIMITED = 429
# Client errors after which the same request may succeed.
RETRYABLE = (408, LIMITED)
# A request that was sent so long ago has reached the server, also if its response takes longer.
ARRIVED_SECONDS = 1.0


class Unreachable(Exception):
    """No response, or one that allows a retry: the same request may be sent again."""

    def __init__(self, message: str, *, retry_after_seconds: float | None = None) -> None:
        super().__init__(message)
        self.retry_after_seconds = retry_after_seconds


class RateLimited(Unreachable):
    """The server is reachable and refuses more requests for a while."""


class PlainHttpRefused(Exception):
    """Tokens and codes are not sent unencrypted over a network unless the user insists."""

    def __init__(self, url: str) -> None:
        super().__init__(
            f"{url} is not encrypted: the token could be read on the network; use an https address, or --insecure if you"
            " trust the network"
        )


class ServerRefusal(Exception):
    """The control plane refused the request. `document` is the whole response."""

    def __init__(self, status: int, document: Mapping[str, Any]) -> None:
        super().__init__(str(document.get("error") or document.get("status") or f"HTTP status {status}"))
        self.status = status
        self.code = str(document.get("code", ""))
        self.document = document

    @property
    def faults(self) -> list[tuple[str, str]]:
        """(path, message) of each fault in the request."""
        found = self.document.get("errors") or []
        return [(str(each.get("path", "")), str(each.get("message", ""))) for each in found]


class RequestGate:
    """After `close` no request starts, and each that had started has reached the server."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        # The start of each request without a response.
        self._open: dict[object, float] = {}
        self._is_closed = False

    @contextmanager
    def passing(self) -> Iterator[None]:
        key = object()
        with self._changed:
            if self._is_closed:
                raise Unreachable("the agent is stopping")
            self._open[key] = time.monotonic()
        try:
            yield
        finally:
            with self._changed:
                del self._open[key]
                self._changed.notify_all()

    def close(self) -> None:
        with self._changed:
            self._is_closed = True
            while self._open and (left := max(self._open.values()) + ARRIVED_SECONDS - time.monotonic()) > 0:
                self._changed.wait(left)


class Client:
    """One caller: an address, a token and a pool of connections. `insecure` allows plain HTTP beyond loopback."""

    def __init__(
        self,
        url: str,
        token: str | None = None,
        *,
        ca_file: str | None = None,
        insecure: bool = False,
        connections: int = 8,
    ) -> None:
        if is_unencrypted(url) and not insecure:
            raise PlainHttpRefused(url)
        self.url = url.rstrip("/")
        self._token = token
        self._ca_file = ca_file
        self._pool = _timed_pools(connections, ca_file)
        self._gate = RequestGate()

    def __repr__(self) -> str:
        return f"Client({self.url!r})"

    def key_for(self, purpose: str) -> bytes:
        """A key derived from the token, for digests that only this caller verifies; it does not reveal the token."""
        return hmac.digest(str(self._token).encode(), f"mainstay {purpose}".encode(), "sha256")

    def get(self, path: str, **more: Any) -> Any:
        return self.call("GET", path, **more)

    def post(self, path: str, body: object = None, **more: Any) -> Any:
        return self.call("POST", path, body, **more)

    def call(
        self,
        method: str,
        path: str,
        body: object = None,
        *,
        query: Mapping[str, object] | Sequence[tuple[str, object]] | None = None,
        headers: Mapping[str, str] | None = None,
        timeout_seconds: float = TIMEOUT_SECONDS,
    ) -> Any:
        """The JSON document of the response, its bytes if it is not JSON, or None if it is empty; `path` is below /api/v1.

        A body of bytes is sent as it is, every other one as JSON."""
        with self._gate.passing():
            return self._call(method, path, body, query, headers, timeout_seconds)[0]

    def get_with_headers(
        self, path: str, *, query: Mapping[str, object], timeout_seconds: float
    ) -> tuple[Any, Mapping[str, str]]:
        """Like `get`, with the headers of the response."""
        with self._gate.passing():
            return self._call("GET", path, None, query, None, timeout_seconds)

    def call_last(self, method: str, path: str, body: object, *, timeout_seconds: float) -> Any:
        """A request after which no thread sends another one."""
        self._gate.close()
        return self._call(method, path, body, None, None, timeout_seconds)[0]

    def _call(
        self,
        method: str,
        path: str,
        body: object,
        query: Mapping[str, object] | Sequence[tuple[str, object]] | None,
        headers: Mapping[str, str] | None,
        timeout_seconds: float,
    ) -> tuple[Any, Mapping[str, str]]:
        sent = {"Accept": "application/json", "Content-Type": "application/json", **(headers or {})}
        if body is not None and not isinstance(body, bytes):
            body = json.dumps(body, ensure_ascii=False, allow_nan=False).encode()
        address = path + (f"?{urlencode(query, doseq=True)}" if query else "")
        reply = self._send(self._pool, method, address, sent, body, timeout_seconds)
        raw = self._read(reply)
        document: Any = _parse(raw) if _is_json(reply) else (raw or None)
        if reply.status < 300 and (sent["Accept"] != "application/json" or not isinstance(document, bytes)):
            return document, reply.headers
        if _is_refusal(reply.status, document):
            raise ServerRefusal(reply.status, document)
        retry_after = parse_count(reply.headers.get("Retry-After", ""), 0, LONGEST_RETRY_AFTER_SECONDS)
        if reply.status == LIMITED:
            raise RateLimited(f"{self.url} limits requests{_hint(document)}", retry_after_seconds=retry_after)
        raise Unreachable(
            f"{self.url} returned HTTP {reply.status}{_hint(document)}", retry_after_seconds=retry_after
        )

    def _read(self, reply: urllib3.BaseHTTPResponse) -> bytes:
        """The whole body. The request asks for no compression, so a compressed body is not from a control plane."""
        content = bytearray()
        try:
            for piece in reply.stream(PIECE_BYTES, decode_content=False):
                content += piece
                if len(content) > LARGEST_ANSWER_BYTES:
                    reply.close()
                    raise Unreachable(f"the response of {self.url} is larger than {LARGEST_ANSWER_BYTES} bytes")
        except urllib3.exceptions.HTTPError as error:
            raise Unreachable(f"the response of {self.url} is incomplete: {_describe(error)}") from None
        return bytes(content)

    def pages(self, path: str, query: Mapping[str, object] | None = None) -> Iterator[Any]:
        """All items of a list; fetches page by page."""
        after: str | None = ""
        while after is not None:
            page = self.get(path, query={"pageSize": PAGE_SIZE, **(query or {}), "after": after})
            yield from page["items"]
            after = page.get("next")

    def stream(self, path: str, *, last_event_id: str) -> Iterator[Any]:
        """Yields the documents of server-sent events as they arrive; ends when the server closes the stream."""
        headers = {"Accept": "text/event-stream", "Last-Event-ID": last_event_id}
        pools = _plain_pools(1, self._ca_file)
        reply = self._send(pools, "GET", path, headers, None, QUIET_SECONDS)
        try:
            if reply.status >= 400:
                document = _parse(reply.read())
                raise ServerRefusal(reply.status, document if isinstance(document, dict) else {})
            yield from _read_events(reply)
        except urllib3.exceptions.HTTPError as error:
            raise Unreachable(f"{self.url}: {_describe(error)}") from None
        finally:
            reply.close()
            pools.clear()

    def _send(
        self,
        pools: urllib3.PoolManager,
        method: str,
        address: str,
        headers: Mapping[str, str],
        content: bytes | None,
        timeout_seconds: float,
    ) -> urllib3.BaseHTTPResponse:
        sent = dict(headers)
        if self._token is not None:
            sent["Authorization"] = f"Bearer {self._token}"
        try:
            return pools.request(
                method,
                f"{self.url}{API}{address}",
                body=content,
                headers=sent,
                timeout=urllib3.Timeout(connect=min(CONNECT_SECONDS, timeout_seconds), read=timeout_seconds),
                redirect=False,
                preload_content=False,
            )
        except (urllib3.exceptions.HTTPError, ValueError) as error:
            raise Unreachable(f"{self.url} cannot be reached: {_describe(error)}") from None


def is_loopback(url: str) -> bool:
    return is_loopback_host(urlsplit(url).hostname or "")


def is_unencrypted(url: str) -> bool:
    """Whether requests to this URL can be read on the network."""
    return not url.lower().startswith("https://") and not is_loopback(url)


def _is_json(reply: urllib3.BaseHTTPResponse) -> bool:
    return reply.headers.get("Content-Type", "").startswith("application/json")


def _is_refusal(status: int, document: Any) -> bool:
    """Whether a control plane refused. Other errors come from a proxy or from a bug, and the request is retried."""
    final = 400 <= status < 500 and status not in RETRYABLE
    return isinstance(document, dict) and (final or status == 504)


def _hint(document: Any) -> str:
    if isinstance(document, dict) and document.get("error"):
        return f": {document['error']}"
    return "" if document is None else "; is this the address of a control plane?"


def _parse(raw: bytes) -> Any:
    try:
        return json.loads(raw) if raw else None
    except (ValueError, RecursionError):
        raise Unreachable("the response is not JSON; is this the address of a control plane?") from None


def _describe(error: Exception) -> str:
    """The message of the operating system: the messages of urllib3 quote its objects."""
    cause: BaseException | None = error
    for _ in range(4):
        cause = getattr(cause, "reason", None) or (None if cause is None else cause.__cause__ or cause.__context__)
        verification = getattr(cause, "verify_message", None)
        if verification:
            return f"certificate verify failed: {verification}; --ca-file FILE trusts a private authority"
        if isinstance(cause, OSError) and cause.strerror:
            return cause.strerror
    if isinstance(error, urllib3.exceptions.ReadTimeoutError):
        return "no response in time"
    if isinstance(error, urllib3.exceptions.ConnectTimeoutError):
        return f"no connection within {CONNECT_SECONDS:g} s"
    if isinstance(error, urllib3.exceptions.ProtocolError):
        return "the response ended too early"
    return str(error).rpartition("): ")[2]


def _read_events(reply: urllib3.BaseHTTPResponse) -> Iterator[Any]:
    """Server-sent events: `data:` lines up to an empty one are one document; comments only keep the connection open."""
    lines: list[str] = []
    pending = b""
    for chunk in reply.stream(65536):
        *complete, pending = (pending + chunk).split(b"\n")
        for raw in complete:
            line = raw.decode("utf-8", "replace").rstrip("\r")
            if line.startswith("data:"):
                lines.append(line[5:].removeprefix(" "))
            elif not line and lines:
                yield _parse("\n".join(lines).encode())
                lines = []


class TimedStream(io.RawIOBase):
    """Reads one response from a socket. The timeout of the socket at its start is the limit for all of it."""

    def __init__(self, sock: socket.socket, raw: io.RawIOBase) -> None:
        self._socket = sock
        self._raw = raw
        self._deadline = time.monotonic() + (sock.gettimeout() or 0.0)

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int | None:
        left = self._deadline - time.monotonic()
        if left <= 0:
            raise TimeoutError("timed out")
        self._socket.settimeout(left)
        return self._raw.readinto(buffer)

    def close(self) -> None:
        self._raw.close()
        super().close()


class TimedResponse(http.client.HTTPResponse):
    def __init__(self, sock: socket.socket, *more: Any, **named: Any) -> None:
        super().__init__(sock, *more, **named)
        self.fp = io.BufferedReader(TimedStream(sock, self.fp.detach()))


class TimedConnection(HTTPConnection):
    response_class = TimedResponse


class TimedTlsConnection(HTTPSConnection):
    response_class = TimedResponse


class TimedPool(HTTPConnectionPool):
    ConnectionCls = TimedConnection


class TimedTlsPool(HTTPSConnectionPool):
    ConnectionCls = TimedTlsConnection


def _timed_pools(connections: int, ca_file: str | None) -> urllib3.PoolManager:
    pools = _plain_pools(connections, ca_file)
    pools.pool_classes_by_scheme = {"http": TimedPool, "https": TimedTlsPool}
    return pools


def _plain_pools(connections: int, ca_file: str | None) -> urllib3.PoolManager:
    """Without a deadline, for streams that end when the server closes them."""
    return urllib3.PoolManager(maxsize=connections, retries=False, ca_certs=ca_file, cert_reqs="CERT_REQUIRED")
