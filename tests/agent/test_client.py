"""The client and invalid responses: it raises `Unreachable`, so that the caller retries."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from mainstay.agent.client import LARGEST_ANSWER_BYTES, Client, ServerRefusal, Unreachable

JSON = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n"
Answer = Callable[[socket.socket], None]


@contextmanager
def answering(answer: Answer) -> Iterator[Client]:
    """A client of a server that reads one request per connection and then calls `answer`."""
    listening = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        while True:
            try:
                connection, _ = listening.accept()
            except OSError:
                return
            with connection:
                connection.recv(65536)
                try:
                    answer(connection)
                except OSError:
                    continue

    threading.Thread(target=serve, daemon=True).start()
    try:
        yield Client(f"http://127.0.0.1:{listening.getsockname()[1]}")
    finally:
        listening.close()


def sending(*pieces: bytes) -> Answer:
    return lambda connection: connection.sendall(b"".join(pieces))


def dripping(head: bytes) -> Answer:
    def drip(connection: socket.socket) -> None:
        connection.sendall(head)
        while True:
            connection.sendall(b"x")
            time.sleep(0.02)

    return drip


def flooding(connection: socket.socket) -> None:
    connection.sendall(JSON + b"\r\n")
    while True:
        connection.sendall(bytes(65536))


HTML = b"HTTP/1.1 %b\r\nContent-Type: text/html\r\nContent-Length: 13\r\n\r\n<html></html>"


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (sending(HTML % b"200 OK"), "returned HTTP 200; is this the address of a control plane?"),
        (sending(HTML % b"404 Not Found"), "returned HTTP 404; is this the address of a control plane?"),
        (sending(HTML % b"403 Forbidden"), "returned HTTP 403; is this the address of a control plane?"),
        (
            sending(b"HTTP/1.1 302 Found\r\nLocation: http://127.0.0.1:1/\r\nContent-Length: 0\r\n\r\n"),
            "returned HTTP 302",
        ),
        (sending(b"HTTP/1.1 500 Oops\r\nContent-Length: 0\r\n\r\n"), "returned HTTP 500"),
        (
            sending(JSON.replace(b"200 OK", b"500 Oops"), b'Content-Length: 19\r\n\r\n{"error":"bug 123"}'),
            "returned HTTP 500: bug 123",
        ),
        (sending(JSON, b'Content-Length: 99\r\n\r\n{"items": ['), "is incomplete"),
        (sending(JSON, b'Content-Length: 11\r\n\r\n{"items": ['), "is not JSON"),
        (sending(JSON, b"Content-Length: 200000\r\n\r\n", b"[" * 200000), "is not JSON"),
        (sending(b"\x16\x03\x01 what?\r\n\r\n"), "cannot be reached"),
        (sending(), "cannot be reached"),
        (dripping(b"HTTP/1.1 200 OK\r\nX-Slow: "), "no response in time"),
        (dripping(JSON + b"\r\n"), "no response in time"),
        (dripping(JSON + b"Transfer-Encoding: chunked\r\n\r\n1\r\n[\r\n5"), "is incomplete"),
        (flooding, f"larger than {LARGEST_ANSWER_BYTES} bytes"),
    ],
)
def test_an_invalid_response_is_unreachable(answer: Answer, reason: str) -> None:
    with answering(answer) as client, pytest.raises(Unreachable) as refusal:
        client.get("/jobs/pending", timeout_seconds=20 if answer is flooding else 1)
    assert reason in str(refusal.value)


def test_no_request_follows_the_last_one() -> None:
    """Also not one of a thread that had decided to send it before."""
    seen: list[str] = []

    def answer(connection: socket.socket) -> None:
        seen.append("answered")
        connection.sendall(JSON + b"Content-Length: 2\r\nConnection: close\r\n\r\n{}")

    with answering(answer) as client:
        arrived = threading.Event()

        def send_last() -> None:
            client.call_last("PUT", "/x", {}, timeout_seconds=5)
            arrived.set()

        client.get("/agents/me")
        # A request between the decision of its thread and the server: the last one waits for it.
        with client._gate.passing():
            last = threading.Thread(target=send_last)
            last.start()
            assert not arrived.wait(0.2)
            assert seen == ["answered"]
        last.join(10)
        assert seen == ["answered"] * 2
        with pytest.raises(Unreachable, match="stopping"):
            client.get("/jobs/pending")
        assert seen == ["answered"] * 2


def test_the_last_request_does_not_wait_for_a_long_poll() -> None:
    with answering(sending(JSON, b"Content-Length: 2\r\n\r\n{}")) as client, client._gate.passing():
        assert client.call_last("PUT", "/x", {}, timeout_seconds=5) == {}


def test_a_refusal_has_status_code_and_faults() -> None:
    body = b'{"error": "no", "code": "lease_lost", "errors": [{"path": "a", "message": "b"}]}'
    answer = sending(JSON.replace(b"200 OK", b"409 Conflict"), b"Content-Length: %d\r\n\r\n" % len(body), body)
    with answering(answer) as client, pytest.raises(ServerRefusal) as refusal:
        client.post("/jobs/1/renew", {})
    assert (refusal.value.status, refusal.value.code, refusal.value.faults) == (409, "lease_lost", [("a", "b")])
