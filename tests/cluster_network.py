"""A network for the nodes of a test cluster: each node has a network namespace, joined by a bridge in one of its own, so
that nodes can be cut off from each other while the test still reaches all of them.

The bridge lives as long as one process that ends with the test; nothing has to be cleaned up."""

from __future__ import annotations

import ipaddress
import itertools
import os
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from random import SystemRandom

# A hardware address that no node has: packets to it are lost in silence, as behind a pulled cable.
NOWHERE = "02:00:00:00:00:01"
GATEWAY = 254


def _ip(*words: str, inside: int | None = None, check: bool = True) -> subprocess.CompletedProcess[str]:
    """`inside`: a process in the network namespace that the command concerns."""
    within = [] if inside is None else ["nsenter", "--target", str(inside), "--net"]
    return subprocess.run([*within, "ip", *words], capture_output=True, text=True, check=check, timeout=30)


def _namespace(pid: int | str) -> str:
    return os.readlink(f"/proc/{pid}/ns/net")


class ClusterNetwork:
    def __init__(self, hub: int) -> None:
        self._hub = hub
        self._numbers = itertools.count()
        chance = SystemRandom()
        self.subnet = ipaddress.ip_network(f"10.{chance.randint(200, 254)}.{chance.randint(0, 255)}.0/24")
        self._name = f"ms{hub}"
        _ip("link", "add", "bridge0", "type", "bridge", inside=hub)
        _ip("link", "set", "bridge0", "up", inside=hub)
        # The end of the test's own namespace.
        _ip("link", "add", self._name, "type", "veth", "peer", "name", "test", "netns", str(hub))
        self._join("test")
        _ip("address", "add", f"{self.subnet[GATEWAY]}/24", "dev", self._name)
        _ip("link", "set", self._name, "up")

    def address(self, number: int) -> str:
        """Of a node; numbers begin with 1."""
        return str(self.subnet[number])

    def _join(self, port: str) -> None:
        _ip("link", "set", port, "master", "bridge0", inside=self._hub)
        _ip("link", "set", port, "up", inside=self._hub)

    def connect(self, pid: int, address: str) -> None:
        """Gives the network namespace of the process an interface `eth0` with this address."""
        # The ports of earlier namespaces vanish some time after their last process.
        port = f"node{next(self._numbers)}"
        _ip("link", "add", port, "type", "veth", "peer", "name", "eth0", "netns", str(pid), inside=self._hub)
        self._join(port)
        _ip("link", "set", "lo", "up", inside=pid)
        _ip("address", "add", f"{address}/24", "dev", "eth0", inside=pid)
        _ip("link", "set", "eth0", "up", inside=pid)

    @staticmethod
    def cut(pid: int, address: str) -> None:
        """The processes of the namespace no longer reach the address; their packets are lost."""
        _ip("neighbour", "replace", address, "lladdr", NOWHERE, "nud", "permanent", "dev", "eth0", inside=pid)

    @staticmethod
    def heal(pid: int, address: str) -> None:
        _ip("neighbour", "del", address, "dev", "eth0", inside=pid, check=False)


@contextmanager
def cluster_network() -> Iterator[ClusterNetwork]:
    hub = subprocess.Popen(["setpriv", "--pdeathsig", "KILL", "unshare", "--net", "sleep", "infinity"])
    try:
        wait_for_namespace(hub.pid)
        yield ClusterNetwork(hub.pid)
    finally:
        hub.kill()
        hub.wait(timeout=30)


def wait_for_namespace(pid: int) -> None:
    """Waits until the process has left the network namespace of the test."""
    until = time.monotonic() + 10
    while _namespace(pid) == _namespace("self"):
        assert time.monotonic() < until, f"process {pid} has no network namespace of its own"
        time.sleep(0.01)
