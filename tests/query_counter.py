"""A proxy to PostgreSQL that counts round trips."""

from __future__ import annotations

import re
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

# What makes PostgreSQL answer: a plain query, the end of a prepared one, and asking for what there is so far.
ASKING = frozenset(b"QSH")


class CountingProxy:
    def __init__(self, listening: socket.socket, target: Path) -> None:
        self.round_trips = 0
        self._listening = listening
        self._target = target

    def run(self) -> None:
        with suppress(OSError):
            while True:
                near, _ = self._listening.accept()
                far = socket.socket(socket.AF_UNIX)
                far.connect(str(self._target))
                threading.Thread(target=self._ask, args=(near, far), daemon=True).start()
                threading.Thread(target=self._answer, args=(far, near), daemon=True).start()

    def _ask(self, near: socket.socket, far: socket.socket) -> None:
        unread = b""
        # The very first message has no letter.
        started = False
        with suppress(OSError):
            while piece := near.recv(65536):
                unread += piece
                while len(unread) >= 5:
                    head = 1 if started else 0
                    length = head + int.from_bytes(unread[head : head + 4], "big")
                    if len(unread) < length:
                        break
                    self.round_trips += started and unread[0] in ASKING
                    started = True
                    unread = unread[length:]
                far.sendall(piece)
        far.close()

    def _answer(self, far: socket.socket, near: socket.socket) -> None:
        with suppress(OSError):
            while piece := far.recv(65536):
                near.sendall(piece)
        near.close()


@contextmanager
def counting_proxy(url: str) -> Iterator[tuple[str, CountingProxy]]:
    """Yields the database URL through the proxy, and the proxy."""
    found = re.fullmatch(r"postgresql://postgres@/(\w+)\?host=([^&]+).*", url)
    assert found is not None, url
    with socket.create_server(("127.0.0.1", 0)) as listening:
        proxy = CountingProxy(listening, Path(found[2]) / ".s.PGSQL.5432")
        threading.Thread(target=proxy.run, daemon=True).start()
        yield f"postgresql://postgres@127.0.0.1:{listening.getsockname()[1]}/{found[1]}?sslmode=disable", proxy
