"""Three PostgreSQL nodes under Patroni with etcd, and HAProxy, from the templates of deploy/cluster.

Each node is a PID namespace: killing it ends etcd, Patroni and PostgreSQL at once, like a crash of the machine, and no
process outlives the test. It has a network namespace, too, so that it can be cut off from the other nodes."""

from __future__ import annotations

import json
import os
import pwd
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from string import Template
from typing import Any

import urllib3

from cluster_network import ClusterNetwork, cluster_network, wait_for_namespace
from control_plane import children, find_postgresql, is_alive
from ports import free_ports
from required_parts import need_part, need_program, need_root

TEMPLATES = Path(__file__).parents[1] / "deploy" / "cluster"
USER = "postgres"
PASSWORD = "loopback-only"  # of databases that live as long as a test
NODES = ("node1", "node2", "node3")
START_SECONDS = 90
FAILOVER_SECONDS = 90
# The fastest that ttl >= loop_wait + 2 * retry_timeout allows. Newer versions of Patroni raise ttl to 20.
FAST = {
    "TTL_SECONDS": "6",
    "LOOP_WAIT_SECONDS": "1",
    "RETRY_TIMEOUT_SECONDS": "2",
    "ETCD_HEARTBEAT_MILLISECONDS": "50",
    "ETCD_ELECTION_MILLISECONDS": "500",
}
# PID 1 of a node: starts the programs and reaps what they leave.
# First it waits for its address.
NODE_INIT = 'until ip -4 address show eth0 up 2>/dev/null | grep -q inet; do sleep 0.05; done; as="setpriv --reuid $1 --regid $1 --init-groups"; $as etcd --config-file $2 & $as patroni $3 & wait'


def need_cluster_parts() -> None:
    need_root()
    for program in ("patroni", "etcd", "haproxy"):
        need_part(present=shutil.which(program, path=f"{os.environ['PATH']}:/usr/sbin") is not None, what=program)
    need_part(present=find_postgresql() is not None, what="PostgreSQL")
    for program in ("unshare", "nsenter", "setpriv", "ip"):
        need_program(program)


def render(template: str, values: Mapping[str, str], target: Path) -> Path:
    """Fails if the template has a variable that is not given."""
    target.write_text(Template((TEMPLATES / template).read_text()).substitute(values))
    target.chmod(0o644)
    return target


@dataclass
class Node:
    name: str
    folder: Path
    values: Mapping[str, str]
    network: ClusterNetwork
    process: subprocess.Popen[bytes] | None = None

    @property
    def patroni_url(self) -> str:
        return f"http://{self.address}:{self.values['PATRONI_PORT']}"

    @property
    def address(self) -> str:
        return self.values["ADDRESS"]

    def start(self) -> None:
        etcd = render("etcd.yml", self.values, self.folder / "etcd.yml")
        patroni = render("patroni.yml", self.values, self.folder / "patroni.yml")
        # Ends with the test even if that is killed: then unshare is, and with it PID 1 of the namespace.
        alone = [
            "setpriv",
            "--pdeathsig",
            "KILL",
            "unshare",
            "--pid",
            "--net",
            "--fork",
            "--kill-child",
            "--mount-proc",
        ]
        with (self.folder / "log").open("ab") as log:
            self.process = subprocess.Popen(
                [*alone, "sh", "-c", NODE_INIT, "node", USER, str(etcd), str(patroni)],
                stdout=log,
                stderr=subprocess.STDOUT,
                cwd=self.folder,
            )
        wait_for_namespace(self.process.pid)
        self.network.connect(self.process.pid, self.address)

    def cut(self, other: Node) -> None:
        """Loses every packet to the other node."""
        assert self.process is not None
        self.network.cut(self.process.pid, other.address)

    def heal(self, other: Node) -> None:
        if self.process is not None:
            self.network.heal(self.process.pid, other.address)

    def kill(self) -> None:
        """Ends all processes of the node at once."""
        if self.process is None:
            return
        inside = children(self.process.pid)
        self.process.kill()
        self.process.wait(timeout=30)
        until = time.monotonic() + 30
        while any(is_alive(each) for each in inside):
            assert time.monotonic() < until, f"{self.name} still runs after SIGKILL"
            time.sleep(0.01)
        self.process = None

    def kill_postgresql(self) -> None:
        """Kills the first process of PostgreSQL; the others end when they notice. etcd and Patroni go on."""
        assert self.process is not None
        number = (self.folder / "postgresql" / "postmaster.pid").read_text().split()[0]
        (init,) = children(self.process.pid)
        subprocess.run(["nsenter", "--target", str(init), "--pid", "--mount", "kill", "-KILL", number], check=True)

    def state(self) -> Mapping[str, Any]:
        """What Patroni reports about this node; empty if it does not answer."""
        return self._ask("patroni")

    def _ask(self, path: str) -> Mapping[str, Any]:
        with suppress(urllib3.exceptions.HTTPError, ValueError):
            reply = urllib3.request("GET", f"{self.patroni_url}/{path}", timeout=3, retries=False)
            found: Mapping[str, Any] = json.loads(reply.data)
            return found
        return {}

    def reinitialize(self) -> None:
        """Copies the database from the leader again, as `patronictl reinit` does."""
        with suppress(urllib3.exceptions.HTTPError):
            urllib3.request(
                "POST", f"{self.patroni_url}/reinitialize", json={"force": True}, timeout=10, retries=False
            )

    @property
    def knows_synchronous_replica(self) -> bool:
        """Whether etcd names a synchronous replica: no other node may become the leader. PostgreSQL knows it earlier."""
        return any(member["role"] == "sync_standby" for member in self._ask("cluster").get("members", []))

    @property
    def is_leader(self) -> bool:
        state = self.state()
        return state.get("role") in ("master", "primary") and state.get("state") == "running"


@dataclass
class PatroniCluster:
    folder: Path
    nodes: tuple[Node, ...]
    haproxy_port: int
    haproxy: subprocess.Popen[bytes] | None = None

    @property
    def proxy_url(self) -> str:
        return f"postgresql://postgres:{PASSWORD}@127.0.0.1:{self.haproxy_port}/postgres"

    @property
    def multi_host_url(self) -> str:
        """Names all nodes; the driver connects to the one that accepts writes."""
        hosts = ",".join(f"{node.address}:{node.values['POSTGRESQL_PORT']}" for node in self.nodes)
        return f"postgresql://postgres:{PASSWORD}@{hosts}/postgres?target_session_attrs=read-write"

    def leader(self) -> Node | None:
        return next((node for node in self.nodes if node.is_leader), None)

    def wait_for_leader_besides(self, old: Node, seconds: float) -> None:
        """An isolated leader may take itself for the leader longer than the others do."""
        until = time.monotonic() + seconds
        while not any(node.is_leader for node in self.nodes if node is not old):
            assert time.monotonic() < until, f"no leader besides {old.name}: {self.states()}\n{self.logs()}"
            time.sleep(0.2)

    def wait_until_whole(self, seconds: float = START_SECONDS) -> Node:
        """Waits for a leader, two streaming replicas, and a synchronous one. Returns the leader.

        A former leader with writes that no replica had may fail to follow; an operator copies the database to it anew."""
        until = time.monotonic() + seconds
        patience = time.monotonic() + seconds / 2
        while True:
            leader = self.leader()
            if leader is not None:
                replicas = leader.state().get("replication", [])
                streaming = {each["application_name"] for each in replicas if each.get("state") == "streaming"}
                if len(streaming) == len(self.nodes) - 1 and leader.knows_synchronous_replica:
                    return leader
                if time.monotonic() > patience:
                    patience = until
                    for node in self.nodes:
                        if node is not leader and node.name not in streaming:
                            node.reinitialize()
            assert time.monotonic() < until, f"the cluster is not whole: {self.states()}\n{self.logs()}"
            time.sleep(0.2)

    def wait_until_proxied(self, seconds: float = START_SECONDS) -> None:
        """Waits until HAProxy has found the leader."""
        until = time.monotonic() + seconds
        while subprocess.run(["psql", "-d", self.proxy_url, "-c", "SELECT 1"], capture_output=True).returncode != 0:
            assert time.monotonic() < until, (self.folder / "haproxy.log").read_text(errors="replace")
            time.sleep(0.1)

    def states(self) -> dict[str, Any]:
        return {node.name: node.state() for node in self.nodes}

    def logs(self) -> str:
        return "\n".join((node.folder / "log").read_text(errors="replace")[-3000:] for node in self.nodes)

    def start_haproxy(self) -> None:
        values = {"HAPROXY_ADDRESS": "127.0.0.1", "HAPROXY_PORT": str(self.haproxy_port)}
        for node in self.nodes:
            for name in ("ADDRESS", "POSTGRESQL_PORT", "PATRONI_PORT"):
                values[f"{node.name.upper()}_{name}"] = node.values[name]
        settings = render("haproxy.cfg", values, self.folder / "haproxy.cfg")
        program = need_program("haproxy")
        as_user = ["setpriv", "--reuid", USER, "--regid", USER, "--init-groups", "--pdeathsig", "KILL"]
        with (self.folder / "haproxy.log").open("ab") as log:
            self.haproxy = subprocess.Popen(
                [*as_user, program, "-db", "-f", str(settings)], stdout=log, stderr=subprocess.STDOUT, cwd=self.folder
            )

    def isolate(self, node: Node) -> None:
        """Cuts a node off from the others, in both directions. The test, the servers and HAProxy still reach it."""
        for other in self.nodes:
            if other is not node:
                node.cut(other)
                other.cut(node)

    def rejoin(self, node: Node) -> None:
        for other in self.nodes:
            if other is not node:
                node.heal(other)
                other.heal(node)

    def stop(self) -> None:
        for node in self.nodes:
            node.kill()
        if self.haproxy is not None:
            self.haproxy.send_signal(signal.SIGKILL)
            self.haproxy.wait(timeout=30)


def _make_nodes(folder: Path, network: ClusterNetwork) -> tuple[Node, ...]:
    owner = pwd.getpwnam(USER)
    programs = find_postgresql()
    ports = dict(zip(NODES, zip(*[iter(free_ports(12))] * 4, strict=True), strict=True))
    addresses = {name: network.address(number) for number, name in enumerate(NODES, 1)}
    shared = {
        **FAST,
        "CLIENT_NETWORK": str(network.subnet),
        "MAX_CONNECTIONS": "100",
        "ETCD_MEMBERS": ",".join(f"{name}=http://{addresses[name]}:{ports[name][1]}" for name in NODES),
        "ETCD_HOSTS": ",".join(f"{addresses[name]}:{ports[name][0]}" for name in NODES),
        "POSTGRESQL_PROGRAMS": str(programs),
        "SUPERUSER_PASSWORD": PASSWORD,
        "REPLICATION_PASSWORD": PASSWORD,
        "REWIND_PASSWORD": PASSWORD,
    }
    nodes = []
    for name in NODES:
        place = folder / name
        place.mkdir(mode=0o700)
        os.chown(place, owner.pw_uid, owner.pw_gid)
        names = ("ETCD_PORT", "ETCD_PEER_PORT", "PATRONI_PORT", "POSTGRESQL_PORT")
        own = dict(zip(names, map(str, ports[name]), strict=True))
        own |= {"ADDRESS": addresses[name], "NODE": name, "DIRECTORY": str(place)}
        nodes.append(Node(name, place, {**shared, **own}, network))
    return tuple(nodes)


@contextmanager
def patroni_cluster() -> Iterator[PatroniCluster]:
    """A cluster with a leader and two streaming replicas. At the end nothing of it is left."""
    need_cluster_parts()
    # Not below pytest's directories, which the unprivileged user must not enter.
    with cluster_network() as network, tempfile.TemporaryDirectory(prefix="mainstay-cluster-") as name:
        folder = Path(name)
        folder.chmod(0o711)
        cluster = PatroniCluster(folder, _make_nodes(folder, network), free_ports(1)[0])
        try:
            for node in cluster.nodes:
                node.start()
            cluster.start_haproxy()
            cluster.wait_until_whole()
            cluster.wait_until_proxied()
            yield cluster
        finally:
            cluster.stop()
