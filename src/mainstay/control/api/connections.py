"""Connections within bounds: whoever sends too slowly, too much, or does not read what he asked for is cut off.

uvicorn bounds none of this. What an endpoint reads of a body is bounded in `application.py`."""

from __future__ import annotations

from asyncio import TimerHandle, Transport

import msgspec
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol, RequestResponseCycle

from mainstay.control.api.errors import PHRASES

MAX_HEAD_BYTES = 64 * 2**10
# Requests sent before the answer to the first of them was read.
MAX_AHEAD = 100


class BoundedProtocol(HttpToolsProtocol):
    _timer: TimerHandle | None = None
    _stalled: TimerHandle | None = None
    _in_head = True
    _received = 0
    # What a whole request may have.
    max_bytes = MAX_HEAD_BYTES
    # For everything up to the end of the headers, for the rest of a body that nobody wants any more, and for a reader
    # that takes nothing at all: it is gone, or wants to fill our memory.
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
        # Counted first: where a part of the request ends within these bytes, counting begins anew.
        self._received += len(data)
        super().data_received(data)
        if self.transport.is_closing():
            return
        if self._in_head and self._received > MAX_HEAD_BYTES:
            self._refuse(431, "head_too_large", f"the headers may have {MAX_HEAD_BYTES} bytes")
        elif self._received > self.max_bytes:
            self.transport.abort()
        elif self._timer is None and self._is_free():
            self._arm(self.seconds)

    def _is_free(self) -> bool:
        cycle: RequestResponseCycle | None = self.cycle
        return cycle is None or cycle.response_complete

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._received = 1

    def on_header(self, name: bytes, value: bytes) -> None:
        # What follows the last piece of a body are no headers of this request.
        if self._in_head:
            super().on_header(name, value)

    def on_headers_complete(self) -> None:
        self._in_head = False
        self._received = 0
        self._disarm()
        super().on_headers_complete()
        if len(self.pipeline) > MAX_AHEAD:
            self.transport.abort()

    def on_message_complete(self) -> None:
        super().on_message_complete()
        self._in_head = True
        self._received = 0
        if self._timer is not None:
            # The rest of a body that was refused has been read to its end; the next request may take its time.
            self._arm(self.timeout_keep_alive)

    def pause_writing(self) -> None:
        super().pause_writing()
        self._watch_reader(self.transport.get_write_buffer_size())

    def resume_writing(self) -> None:
        super().resume_writing()
        if self._stalled is not None:
            self._stalled.cancel()
            self._stalled = None

    def _watch_reader(self, before: int) -> None:
        self._stalled = self.loop.call_later(self.seconds, self._judge_reader, before)

    def _judge_reader(self, before: int) -> None:
        left = self.transport.get_write_buffer_size()
        if left >= before:
            self.transport.abort()
        else:
            self._watch_reader(left)

    def timeout_keep_alive_handler(self) -> None:
        self._end()

    def _arm(self, seconds: float) -> None:
        self._disarm()
        self._timer = self.loop.call_later(seconds, self._time_is_up)

    def _disarm(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _time_is_up(self) -> None:
        if self._in_head and self._received and not self.transport.is_closing():
            self._refuse(408, "slow_head", f"the headers did not arrive within {self.seconds} s")
        else:
            self._end()

    def _end(self) -> None:
        """Closing waits until all is sent; who did not read it until now will not."""
        if self.transport.get_write_buffer_size():
            self.transport.abort()
        else:
            self.transport.close()

    def send_400_response(self, msg: str) -> None:
        self._refuse(400, "invalid_http", "this is not HTTP")

    def _refuse(self, status: int, code: str, sentence: str) -> None:
        body = msgspec.json.encode({"status": PHRASES[status], "error": sentence, "code": code})
        self.transport.write(
            STATUS_LINE[status]
            + b"content-type: application/json\r\nconnection: close\r\n"
            + f"content-length: {len(body)}\r\n\r\n".encode()
            + body
        )
        self.transport.close()


def bounded_protocol(max_body_bytes: int, seconds: int) -> type[BoundedProtocol]:
    """A request may be as long as its headers and twice the largest body, which comes in pieces with marks between."""
    most = MAX_HEAD_BYTES + 2 * max_body_bytes
    return type("BoundedProtocol", (BoundedProtocol,), {"max_bytes": most, "seconds": seconds})
