"""HTTP connections with a deadline for the whole response: a socket timeout starts again with every byte."""

from __future__ import annotations

import http.client
import io
import time

import urllib3
from urllib3.connection import HTTPConnection, HTTPSConnection
from urllib3.connectionpool import HTTPConnectionPool, HTTPSConnectionPool

TYPE_CHECKING = False
if TYPE_CHECKING:
    import socket
    from typing import Any

    from _typeshed import WriteableBuffer


class TimedStream(io.RawIOBase):
    """Reads one response from a socket. The timeout of the socket at its start is the limit for all of it."""

    def __init__(self, sock: socket.socket, raw: io.RawIOBase) -> None:
        self._socket = sock
        self._raw = raw
        self._deadline = time.monotonic() + (sock.gettimeout() or 0.0)

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: WriteableBuffer) -> int | None:
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


def timed_pools(connections: int, ca_file: str | None) -> urllib3.PoolManager:
    pools = plain_pools(connections, ca_file)
    pools.pool_classes_by_scheme = {"http": TimedPool, "https": TimedTlsPool}
    return pools


def plain_pools(connections: int, ca_file: str | None) -> urllib3.PoolManager:
    """Without a deadline, for streams that end when the server closes them."""
    return urllib3.PoolManager(maxsize=connections, retries=False, ca_certs=ca_file, cert_reqs="CERT_REQUIRED")
