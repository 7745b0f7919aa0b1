"""Clients that are slow, send too much or send invalid HTTP are disconnected, and other clients are not affected."""

from __future__ import annotations

import json
import socket
import struct
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from control_plane import Client, Server, running

SECONDS = "1"


@pytest.fixture(scope="module")
def hasty(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server with a request timeout of a second."""
    folder = tmp_path_factory.mktemp("hasty") / "data"
    with running(folder, environment={"MAINSTAY_REQUEST_SECONDS": SECONDS, "MAINSTAY_LOG_LEVEL": "error"}) as server:
        yield server


def connect(server: Server) -> socket.socket:
    address = urlsplit(server.url)
    connection = socket.create_connection((str(address.hostname), int(address.port or 0)))
    connection.settimeout(30)
    return connection


def read_until_closed(connection: socket.socket) -> bytes:
    """The remaining response; fails with a timeout if the server does not close the connection."""
    found = b""
    try:
        while piece := connection.recv(65536):
            found += piece
    except ConnectionResetError:
        pass
    return found


def drip(connection: socket.socket, byte: bytes) -> None:
    """Sends one byte at a time until the connection is closed."""

    def run() -> None:
        try:
            while True:
                connection.sendall(byte)
                time.sleep(0.05)
        except OSError:
            return

    threading.Thread(target=run, daemon=True).start()


def keep_sending(connection: socket.socket) -> None:
    while True:
        time.sleep(0.1)
        connection.sendall(b"\r\n")


def code(answer: bytes) -> str:
    return str(json.loads(answer.partition(b"\r\n\r\n")[2])["code"])


def post(path: str, length: int, token: str | None = "") -> bytes:
    known = f"Authorization: Bearer {token}\r\n" if token else ""
    return f"POST {path} HTTP/1.1\r\nHost: x\r\n{known}Content-Length: {length}\r\n\r\n".encode()


def test_endless_headers_time_out(hasty: Server) -> None:
    with connect(hasty) as slow:
        slow.sendall(b"GET /healthz HTTP/1.1\r\nHost: x\r\nX-Slow: ")
        drip(slow, b"a")
        answer = read_until_closed(slow)
    assert answer.startswith(b"HTTP/1.1 408 ")
    assert code(answer) == "slow_head"


@pytest.mark.parametrize("path", ["/api/v1/participants", "/api/v1/enrol"])
def test_an_endless_body_times_out(hasty: Server, path: str) -> None:
    with connect(hasty) as slow:
        slow.sendall(post(path, 10_000, hasty.admin.token))
        drip(slow, b" ")
        answer = read_until_closed(slow)
    assert answer.startswith(b"HTTP/1.1 408 ")
    assert code(answer) == "slow_body"


def test_the_rest_of_a_refused_body_times_out(hasty: Server) -> None:
    with connect(hasty) as slow:
        slow.sendall(post("/api/v1/participants", 10_000_000))
        drip(slow, b" ")
        answer = read_until_closed(slow)
    assert answer.startswith(b"HTTP/1.1 401 ")


@pytest.mark.parametrize(
    ("request_bytes", "rest"), [(b"", b""), (b"", b"\r\n"), (b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n", b"\r\n")]
)
def test_an_idle_connection_is_closed(hasty: Server, request_bytes: bytes, rest: bytes) -> None:
    with connect(hasty) as idle:
        idle.sendall(request_bytes)
        answer = idle.recv(65536) if request_bytes else b""
        idle.sendall(rest)
        read_until_closed(idle)
    assert answer.startswith(b"HTTP/1.1 200 " if request_bytes else b"")


def test_many_slow_clients_do_not_delay_others(hasty: Server) -> None:
    slow = [connect(hasty) for _ in range(200)]
    try:
        for number, connection in enumerate(slow):
            connection.sendall(post("/api/v1/participants", 1000, hasty.admin.token) if number % 2 else b"GET / HT")
        for _ in range(20):
            hasty.admin.get("/participants")
        answers = [read_until_closed(connection)[:13] for connection in slow]
    finally:
        for connection in slow:
            connection.close()
    assert set(answers) == {b"HTTP/1.1 408 "}


def test_headers_that_are_too_large_are_refused(hasty: Server) -> None:
    for line in (b"X-Many: 1\r\n", b"X-Long: " + b"a" * 1000):
        with connect(hasty) as greedy:
            answer = b""
            try:
                greedy.sendall(b"GET /healthz HTTP/1.1\r\nHost: x\r\n" + line)
                for _ in range(1000):
                    greedy.sendall(line * 100 if line.endswith(b"\n") else b"a" * 1000)
            except (ConnectionResetError, BrokenPipeError):
                pass
            answer = read_until_closed(greedy)
        # A reset may discard the response; the connection is closed in any case.
        assert answer[:12] in (b"HTTP/1.1 431", b"")


@pytest.mark.parametrize("ending", [b"", b"\r\n\r\n"], ids=["unfinished", "complete"])
@pytest.mark.parametrize("head", [b"X-Long: " + b"a" * 70_000, b"X-Many: 1\r\n" * 6400], ids=["long", "many"])
def test_headers_of_70_kilobytes_are_refused_at_once(embedded: Server, head: bytes, ending: bytes) -> None:
    with connect(embedded) as greedy:
        started = time.monotonic()
        greedy.sendall(b"GET /healthz HTTP/1.1\r\nHost: x\r\n" + head + ending)
        answer = read_until_closed(greedy)
    assert answer.startswith(b"HTTP/1.1 431 ")
    assert code(answer) == "head_too_large"
    assert time.monotonic() - started < 5


def test_headers_within_the_limit_are_read_in_any_pieces(embedded: Server) -> None:
    request = b"GET /healthz HTTP/1.1\r\nHost: x\r\nX-Long: " + b"a" * 60_000 + b"\r\n\r\n"
    with connect(embedded) as client:
        client.sendall(request * 3 + b"GET /healthz HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
        assert read_until_closed(client).count(b"HTTP/1.1 200 ") == 4


def test_trailers_after_a_body_are_not_headers(hasty: Server) -> None:
    with connect(hasty) as client:
        client.sendall(
            b"POST /api/v1/participants HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\nConnection: close\r\n\r\n"
            b"0\r\nAuthorization: Bearer " + str(hasty.admin.token).encode() + b"\r\n\r\n"
        )
        assert read_until_closed(client).startswith(b"HTTP/1.1 401 ")


@pytest.mark.parametrize(
    "headers",
    [
        b"Content-Length: 5\r\nTransfer-Encoding: chunked",
        b"Content-Length: 5\r\nContent-Length: 6",
        b"Content-Length: 5, 5",
        b"Content-Length: +5",
        b"Content-Length: -1",
        b"Transfer-Encoding: chunked, identity",
        b"Transfer-Encoding: xchunked",
        b"Transfer-Encoding : chunked",
        b"X: 1\r\n Folded: 2",
        b"X: \x00",
    ],
)
def test_request_smuggling_is_refused(hasty: Server, headers: bytes) -> None:
    with connect(hasty) as smuggler:
        smuggler.sendall(
            b"POST /api/v1/enrol HTTP/1.1\r\nHost: x\r\n" + headers + b"\r\n\r\n0\r\n\r\n"
            b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n"
        )
        answer = read_until_closed(smuggler)
    assert answer.count(b"HTTP/1.1 ") == 1
    assert answer.startswith(b"HTTP/1.1 400 ")
    assert code(answer) == "invalid_http"


@pytest.mark.parametrize("how", ["closes", "resets"])
def test_a_disconnect_within_a_body_is_not_logged_as_a_bug(tmp_path: Path, how: str) -> None:
    with running(tmp_path / "data") as server:
        connection = connect(server)
        connection.sendall(post("/api/v1/participants", 1000, server.admin.token) + b'{"name": "half')
        time.sleep(0.3)
        if how == "resets":
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        connection.close()
        until = time.monotonic() + 20
        metrics = ""
        while "participants" not in metrics:
            assert time.monotonic() < until, "the request never ended"
            metrics = server.admin.call("GET", "/metrics").body.decode()
        assert 'status="400"' in metrics
        assert 'status="500"' not in metrics
        assert server.admin.get("/participants")["totalItems"] == 0
        assert server.stop() == 0
        assert " bug " not in server.log.read_text()


def test_a_client_that_does_not_read_is_disconnected(hasty: Server) -> None:
    with connect(hasty) as client:
        # More responses than all buffers between server and client can hold.
        client.sendall(b"GET /openapi.json HTTP/1.1\r\nHost: x\r\n\r\n" * 100)
        with pytest.raises((ConnectionResetError, BrokenPipeError)):
            keep_sending(client)
    Client(hasty.url).call("GET", "/healthz", expect=200)


def test_a_client_with_too_many_pipelined_requests_is_disconnected(hasty: Server) -> None:
    with connect(hasty) as client:
        client.sendall(b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n" * 2000)
        assert read_until_closed(client).count(b"HTTP/1.1 200 ") < 2000


def test_bodies_without_a_token_are_small(hasty: Server) -> None:
    anonymous = Client(hasty.url)
    assert anonymous.call("POST", "/api/v1/enrol", raw=b" " * 20_000, expect=413).body["code"] == "body_too_large"
    assert anonymous.call("POST", "/nothing", raw=b" " * 2_000_000).status == 404
    anonymous.call("GET", "/healthz", expect=200)


def test_disconnected_clients_leave_no_memory_behind(hasty: Server) -> None:
    """Many clients with large bodies use no more memory than the first few."""

    def greedy() -> None:
        for _ in range(20):
            with connect(hasty) as connection:
                connection.sendall(post("/api/v1/participants", 4_000_000, hasty.admin.token) + b" " * 1_000_000)

    greedy()
    before = resident_kilobytes(hasty)
    for _ in range(5):
        greedy()
    Client(hasty.url).call("GET", "/healthz", expect=200)
    assert resident_kilobytes(hasty) < before + 60_000


def resident_kilobytes(server: Server) -> int:
    status = Path(f"/proc/{server.process.pid}/status").read_text()
    return int(status.partition("VmRSS:")[2].split()[0])
