"""Connection limits that uvicorn lacks: closes connections that send too slowly or too much, or do not read.

`application.py` limits the body of a request."""

from __future__ import annotations

from asyncio import TimerHandle, Transport

import msgspec
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol, RequestResponseCycle

from mainstay.control.api.errors import PHRASES

MAX_HEAD_BYTES = 64 * 2**10
HEAD_PIECE_BYTES = 4 * 2**10
# How long the rest of a refused request is read and discarded.
LINGER_SECONDS = 1
# Requests on one connection that wait for their response.
MAX_PIPELINED = 100


class BoundedProtocol(HttpToolsProtocol):
    _timer: TimerHandle | None = None
    _stalled: TimerHandle | None = None
    _in_head = True
    _received = 0
    _is_refused = False
    # Limit of a whole request.
    max_bytes = MAX_HEAD_BYTES
    # Time limit for the headers, for the rest of a refused body, and for a client that reads nothing of a response:
    # such a client is gone, or tries to exhaust our memory.
    seconds = 30

    def connection_made(self, transport: Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._arm(self.seconds)

    def connection_lost(self, exc: Exception | None) -> None:
        self._disarm()
        self.resume_writing()
        self._unset_keepalive_if_required()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        # In pieces, because the count starts anew where a request begins within a piece.
        start = 0
        while self._in_head and len(data) - start > HEAD_PIECE_BYTES:
            self._receive(data[start : start + HEAD_PIECE_BYTES])
            start += HEAD_PIECE_BYTES
        self._receive(data[start:] if start else data)

    def _receive(self, data: bytes) -> None:
        if self._is_refused or self.transport.is_closing():
            return
        # Before the call of `super`, which resets the count where a part of the request ends within these bytes.
        self._received += len(data)
        super().data_received(data)
        if self.transport.is_closing():
            return
        if self._in_head and self._received > MAX_HEAD_BYTES:
            self._refuse_rest(431, "head_too_large", f"the headers are larger than {MAX_HEAD_BYTES} bytes")
        elif self._received > self.max_bytes:
            self.transport.abort()
        elif self._timer is None and self._is_idle():
            self._arm(self.seconds)

    def _is_idle(self) -> bool:
        cycle: RequestResponseCycle | None = self.cycle
        return cycle is None or cycle.response_complete

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._received = 1

    def on_header(self, name: bytes, value: bytes) -> None:
        # Trailers after a chunked body are not headers of the request.
        if self._in_head:
            super().on_header(name, value)

    def on_headers_complete(self) -> None:
        self._in_head = False
        self._received = 0
        self._disarm()
        super().on_headers_complete()
        if len(self.pipeline) > MAX_PIPELINED:
            self.transport.abort()

    def on_message_complete(self) -> None:
        super().on_message_complete()
        self._in_head = True
        self._received = 0
        if self._timer is not None:
            # The rest of a refused body has arrived; wait for the next request as on any idle connection.
            self._arm(self.timeout_keep_alive)

    def pause_writing(self) -> None:
        super().pause_writing()
        self._watch_client(self.transport.get_write_buffer_size())

    def resume_writing(self) -> None:
        super().resume_writing()
        if self._stalled is not None:
            self._stalled.cancel()
            self._stalled = None

    def _watch_client(self, before: int) -> None:
        self._stalled = self.loop.call_later(self.seconds, self._check_client, before)

    def _check_client(self, before: int) -> None:
        left = self.transport.get_write_buffer_size()
        if left >= before:
            self.transport.abort()
        else:
            self._watch_client(left)

    def timeout_keep_alive_handler(self) -> None:
        self._end()

    def _arm(self, seconds: float) -> None:
        self._disarm()
        self._timer = self.loop.call_later(seconds, self._time_out)

    def _disarm(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _time_out(self) -> None:
        if self._in_head and self._received and not (self._is_refused or self.transport.is_closing()):
            self._refuse(408, "slow_head", f"the headers did not arrive within {self.seconds} s")
        else:
            self._end()

    def _end(self) -> None:
        """`close` would wait until everything is sent, and the client has stopped reading."""
        if self.transport.get_write_buffer_size():
            self.transport.abort()
        else:
            self.transport.close()

    def send_400_response(self, msg: str) -> None:
        self._refuse(400, "invalid_http", "the request is not valid HTTP")

    def _refuse_rest(self, status: int, code: str, message: str) -> None:
        """Refuses a request of which more may follow. Closing at once would discard the answer on its way."""
        self._is_refused = True
        self._answer(status, code, message)
        if self.transport.can_write_eof():
            self.transport.write_eof()
        self._arm(LINGER_SECONDS)

    def _refuse(self, status: int, code: str, message: str) -> None:
        self._answer(status, code, message)
        self.transport.close()

    def _answer(self, status: int, code: str, message: str) -> None:
        body = msgspec.json.encode({"status": PHRASES[status], "error": message, "code": code})
        self.transport.write(
            STATUS_LINE[status]
            + b"content-type: application/json\r\nconnection: close\r\n"
            + b"cache-control: no-store\r\nx-content-type-options: nosniff\r\n"
            + f"content-length: {len(body)}\r\n\r\n".encode()
            + body
        )


def bounded_protocol(max_body_bytes: int, seconds: int) -> type[BoundedProtocol]:
    """Limits a request to its headers plus twice the largest body: a chunked body has overhead."""
    most = MAX_HEAD_BYTES + 2 * max_body_bytes
    return type("BoundedProtocol", (BoundedProtocol,), {"max_bytes": most, "seconds": seconds})
