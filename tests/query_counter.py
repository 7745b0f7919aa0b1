"""A proxy to PostgreSQL that counts round trips."""

from __future__ import annotations

import re
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

# Messages that PostgreSQL answers: Query, Sync and Flush.
ROUND_TRIP_MESSAGES = frozenset(b"QSH")


class CountingProxy:
    def __init__(self, listening: socket.socket, target: Path) -> None:
        self.round_trips = 0
        self._listening = listening
        self._target = target

    def run(self) -> None:
        with suppress(OSError):
            while True:
                client, _ = self._listening.accept()
                # As the database does; otherwise answers in several pieces wait for an acknowledgement.
                client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                server = socket.socket(socket.AF_UNIX)
                server.connect(str(self._target))
                threading.Thread(target=self._forward_requests, args=(client, server), daemon=True).start()
                threading.Thread(target=self._forward_responses, args=(server, client), daemon=True).start()

    def _forward_requests(self, client: socket.socket, server: socket.socket) -> None:
        unread = b""
        # The startup message has no type byte.
        started = False
        with suppress(OSError):
            while piece := client.recv(65536):
                unread += piece
                while len(unread) >= 5:
                    head = 1 if started else 0
                    length = head + int.from_bytes(unread[head : head + 4], "big")
                    if len(unread) < length:
                        break
                    self.round_trips += started and unread[0] in ROUND_TRIP_MESSAGES
                    started = True
                    unread = unread[length:]
                server.sendall(piece)
        server.close()

    def _forward_responses(self, server: socket.socket, client: socket.socket) -> None:
        with suppress(OSError):
            while piece := server.recv(65536):
                client.sendall(piece)
        client.close()


@contextmanager
def counting_proxy(url: str) -> Iterator[tuple[str, CountingProxy]]:
    """Yields the database URL through the proxy, and the proxy."""
    found = re.fullmatch(r"postgresql://postgres@/(\w+)\?host=([^&]+).*", url)
    assert found is not None, url
    with socket.create_server(("127.0.0.1", 0)) as listening:
        proxy = CountingProxy(listening, Path(found[2]) / ".s.PGSQL.5432")
        threading.Thread(target=proxy.run, daemon=True).start()
        yield f"postgresql://postgres@127.0.0.1:{listening.getsockname()[1]}/{found[1]}?sslmode=disable", proxy
