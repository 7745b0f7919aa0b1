"""Free ports of this machine, outside the range from which the kernel gives ports to outgoing connections.

A server that is restarted on such a port always gets it again: no client of another test can have taken it meanwhile,
and no client of its own that tries to reconnect can connect to itself."""

from __future__ import annotations

import os
import random
import socket

FIRST, LAST = 10_000, 32_000
# Each worker of pytest has ports of its own.
WORKERS = 8


def free_ports(count: int) -> list[int]:
    worker = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw")) % WORKERS
    share = (LAST - FIRST) // WORKERS
    own = range(FIRST + worker * share, FIRST + (worker + 1) * share)
    found: list[int] = []
    for port in random.SystemRandom().sample(own, len(own)):
        if len(found) == count:
            return found
        if _is_free(port):
            found.append(port)
    raise AssertionError(f"fewer than {count} free ports in {own}")


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True
