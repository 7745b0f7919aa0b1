"""Two servers on a PostgreSQL cluster, one through HAProxy and one with all nodes in its URL. Database nodes, PostgreSQL,
servers and agents are killed under load, and the leader is cut off from the other nodes: no acknowledged write is lost, and nothing happens twice.

MAINSTAY_WRITE_MEASUREMENTS=1 writes the measured outages to docs/reference/reliability.md."""

from __future__ import annotations

import asyncio
import os
import platform
import subprocess
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

import asyncpg
import pytest
import urllib3

from cluster_load import ClusterLoad, wait_until
from control_plane import Client, Server, start
from fork_server import PROGRAM
from invariants import violations
from patroni_cluster import FAILOVER_SECONDS, PatroniCluster, patroni_cluster
from simulated_agent import SimulatedAgent
from torture import IS_TORTURE, count_of

pytestmark = pytest.mark.test_all

LEADER_KILLS = count_of(20)
SERVER_KILLS = count_of(60)
AGENT_KILLS = count_of(60)
PARTITIONS = count_of(20)
# Longer than the ttl of the leader's lock: the others elect a leader while the old one still runs.
PARTITION_SECONDS = 10
ENVIRONMENT = {"MAINSTAY_RATE_LIMIT": "0"}
WAKE_UPS = 5
# Below the interval at which a background task wakes agents with pending jobs.
WAKE_UP_SECONDS = 2.0
DRAIN_SECONDS = 90
PAGE = Path(__file__).parents[2] / "docs" / "reference" / "reliability.md"
BEGIN, END = "<!-- measured: begin -->\n", "<!-- measured: end -->\n"
CAUSES = {
    "node": "the machine of the leader (etcd, Patroni, PostgreSQL)",
    "postgresql": "PostgreSQL of the leader",
    "partition": "the network between the leader and the other nodes; servers reach all of them",
    "server": "one of two Mainstay servers; the other one answers",
}


@dataclass
class Replica:
    """One of the two servers. It keeps its port when it is restarted."""

    folder: Path
    database_url: str
    server: Server

    def restart(self) -> None:
        self.server.process.kill()
        self.server.process.wait(timeout=30)
        port = int(self.server.url.rpartition(":")[2])
        self.server = start(self.folder, database_url=self.database_url, environment=ENVIRONMENT, port=port)


@dataclass
class Plane:
    cluster: PatroniCluster
    replicas: dict[str, Replica]
    load: ClusterLoad
    # Cause, server, longest time without an acknowledged write, time to the first answer.
    outages: list[tuple[str, str, float, float]]

    @property
    def admin(self) -> Client:
        return self.load.scenario.admin

    def record_outage(self, cause: str, moment: float, names: tuple[str, ...]) -> None:
        self.load.wait_for_answers_after(moment, FAILOVER_SECONDS, self.explain)
        for name in names:
            probe = self.load.probes[name]
            self.outages.append(
                (cause, name, probe.longest_gap_after(moment), probe.first_answer_after(moment) or 0.0)
            )

    def explain(self) -> str:
        """The state of the database nodes, and the ends of all logs."""
        logs = [
            f"{log}:\n{log.read_text(errors='replace')[-3000:]}"
            for replica in self.replicas.values()
            for log in replica.folder.parent.glob(f"{replica.folder.name}.*.log")
        ]
        return "\n".join([str(self.cluster.states()), *logs, self.cluster.logs()])

    def query(self, statement: str) -> list[Any]:
        async def fetch() -> list[Any]:
            connection = await asyncpg.connect(self.cluster.multi_host_url)
            try:
                return list(await connection.fetch(statement))
            finally:
                await connection.close()

        return asyncio.run(fetch())


@pytest.fixture
def plane(tmp_path: Path) -> Iterator[Plane]:
    with patroni_cluster() as cluster:
        urls = {"haproxy": cluster.proxy_url, "multi-host": cluster.multi_host_url}
        replicas: dict[str, Replica] = {}
        load = None
        try:
            for name, url in urls.items():
                folder = tmp_path / name
                server = start(folder, database_url=url, environment=ENVIRONMENT)
                replicas[name] = Replica(folder, url, server)
            admin = replicas["haproxy"].server.admin
            load = ClusterLoad(admin, {name: each.server.url for name, each in replicas.items()}, tmp_path)
            yield Plane(cluster, replicas, load, [])
        finally:
            if load is not None:
                load.stop_agents()
            for each in replicas.values():
                each.server.process.kill()
                each.server.process.wait(timeout=30)


class ParkedPoll:
    """A long poll of the idle agent in a thread of its own."""

    def __init__(self, url: str, token: str) -> None:
        self.reply: Any = None
        # Answers before the last one; a client repeats the request.
        self.refusals: list[Any] = []
        self.error: Exception | None = None
        self._client = Client(url, token)
        self._thread = threading.Thread(target=self._poll, daemon=True)
        self._thread.start()

    def _poll(self) -> None:
        try:
            while (reply := self._client.call("GET", "/api/v1/jobs/pending?wait=60")).status == 503:
                self.refusals.append(reply.body)
                time.sleep(0.1)
            self.reply = reply
        except urllib3.exceptions.HTTPError as error:
            self.error = error

    @property
    def is_parked(self) -> bool:
        return self._thread.is_alive() and not self.refusals

    def finish(self) -> Any:
        self._thread.join(timeout=70)
        assert self.error is None, self.error
        return self.reply


def order_for_idle_agent(plane: Plane, url: str) -> str:
    return plane.load.order_until_acknowledged(url, plane.load.idle_agent, FAILOVER_SECONDS)


def finish_job(plane: Plane, url: str, job: Any) -> None:
    agent = plane.load.idle_agent
    SimulatedAgent([url], agent.token, agent.record).do(job)


def kill_leader(plane: Plane, number: int) -> None:
    """Kills the machine of the leader or only its PostgreSQL, in turns, with a long poll parked on each server."""
    leader = plane.cluster.wait_until_whole()
    urls = {name: replica.server.url for name, replica in plane.replicas.items()}
    parked = {name: ParkedPoll(url, plane.load.idle_agent.token) for name, url in urls.items()}
    time.sleep(1)
    cause = "postgresql" if number % 2 else "node"
    moment = time.monotonic()
    if cause == "node":
        leader.kill()
    else:
        leader.kill_postgresql()
    plane.record_outage(cause, moment, tuple(plane.replicas))
    for name, poll in parked.items():
        ends = (poll.reply, poll.error, poll.refusals)
        assert poll.is_parked, f"a long poll on {name} ended in the failover: {ends}"
    check_wake_ups(plane, parked)
    if cause == "node":
        leader.start()


def partition_leader(plane: Plane) -> None:
    """The old leader runs on and the servers reach it, but it can no longer commit: no replica confirms."""
    leader = plane.cluster.wait_until_whole()
    plane.cluster.isolate(leader)
    # From now on no commit is confirmed by a replica.
    moment = time.monotonic()
    try:
        plane.record_outage("partition", moment, tuple(plane.replicas))
        time.sleep(max(0.0, moment + PARTITION_SECONDS - time.monotonic()))
        plane.cluster.wait_for_leader_besides(leader, FAILOVER_SECONDS)
    finally:
        plane.cluster.rejoin(leader)


def check_wake_ups(plane: Plane, parked: dict[str, ParkedPoll]) -> None:
    """An order on either server wakes the polls on both."""
    urls = {name: replica.server.url for name, replica in plane.replicas.items()}
    job_id = order_for_idle_agent(plane, urls["haproxy"])
    for name, poll in parked.items():
        reply = poll.finish()
        assert reply.status == 200, (name, reply.status, reply.body)
        assert [job["id"] for job in reply.body] == [job_id]
        job = reply.body[0]
    finish_job(plane, urls["multi-host"], job)
    times = []
    for turn in range(WAKE_UPS):
        near, far = list(urls.values())[:: 1 if turn % 2 else -1]
        poll = ParkedPoll(near, plane.load.idle_agent.token)
        time.sleep(0.3)
        sent = time.monotonic()
        job_id = order_for_idle_agent(plane, far)
        (job,) = poll.finish().body
        times.append(time.monotonic() - sent)
        assert job["id"] == job_id
        finish_job(plane, near, job)
    assert median(times) < WAKE_UP_SECONDS, times


def kill_server(plane: Plane, number: int) -> None:
    names = list(plane.replicas)
    killed, other = names[number % 2], names[1 - number % 2]
    moment = time.monotonic()
    plane.replicas[killed].restart()
    plane.record_outage("server", moment, (other,))


def kill_agent(plane: Plane, number: int) -> None:
    """At a moment when the agent has jobs, mostly; its lease expires and the job is queued again."""
    agent = plane.load.agents[number % len(plane.load.agents)]
    time.sleep(0.3)
    plane.load.kill_agent(agent)
    plane.load.start_agent(agent)


def test_kills_and_partitions_under_load_lose_no_acknowledged_write_and_do_nothing_twice(
    plane: Plane, tmp_path: Path
) -> None:
    with plane.load.running():
        plane.load.wait_for_answers_after(time.monotonic(), 30)
        for number in range(max(LEADER_KILLS, SERVER_KILLS, AGENT_KILLS, PARTITIONS)):
            if number < PARTITIONS:
                partition_leader(plane)
            if number < LEADER_KILLS:
                kill_leader(plane, number)
            if number < AGENT_KILLS:
                kill_agent(plane, number)
            if number < SERVER_KILLS:
                kill_server(plane, number)
    drain(plane)
    plane.load.stop_agents()
    check(plane, tmp_path)
    table = measured_table(plane)
    print(f"\n{table}")
    if os.environ.get("MAINSTAY_WRITE_MEASUREMENTS") == "1":
        text = PAGE.read_text()
        PAGE.write_text(f"{text.partition(BEGIN)[0]}{BEGIN}{table}{END}{text.partition(END)[2]}")


def drain(plane: Plane) -> None:
    """Waits until agents have finished all jobs, including those of expired leases."""

    def active() -> int:
        found = plane.query("SELECT count(*) AS number FROM jobs WHERE status IN ('Pending', 'Processing')")
        return int(found[0]["number"])

    wait_until(lambda: active() == 0, DRAIN_SECONDS, lambda: f"{active()} jobs are not finished")


def check(plane: Plane, tmp_path: Path) -> None:
    load = plane.load
    assert not load.complaints(), load.complaints()[:10]
    for replica in plane.replicas.values():
        for log in replica.folder.parent.glob(f"{replica.folder.name}.*.log"):
            assert " bug " not in log.read_text(), log.read_text()[-3000:]
    check_acknowledged(plane)
    check_outcomes(plane)
    # A read numbers the committed events; `violations` checks for gaps afterwards.
    plane.admin.get("/events?pageSize=1")
    assert violations(plane.cluster.multi_host_url) == []
    verify_events(plane, tmp_path)


def check_acknowledged(plane: Plane) -> None:
    load = plane.load
    assert load.ordered, "the load ordered nothing"
    assert load.completed(), "the agents completed nothing"
    services = {row["id"]: row for row in plane.query("SELECT id, name, status FROM services")}
    assert set(load.ordered) <= set(services)
    assert len({row["name"] for row in services.values()}) == len(services), "an order was carried out twice"
    values = {
        row["service_id"]: row["name"] for row in plane.query("SELECT service_id, name FROM service_pool_values")
    }
    assert {each: values.get(each) for each in load.ordered} == load.ordered
    assert len(set(load.ordered.values())) == len(load.ordered), "an address has two owners"
    participants = {row["id"] for row in plane.query("SELECT id FROM participants")}
    for name, probe in load.probes.items():
        assert set(probe.participants) <= participants, f"a write that {name} acknowledged is lost"


def check_outcomes(plane: Plane) -> None:
    """Each job has one outcome, and each expired lease queued it once: the tasks of two servers did not collide."""
    jobs = {row["id"]: row for row in plane.query("SELECT id, status, attempt FROM jobs")}
    assert {jobs[each]["status"] for each in plane.load.completed()} == {"Completed"}
    events = plane.query("SELECT entity_id, type, count(*) AS number FROM events GROUP BY entity_id, type")
    counts = {(row["entity_id"], row["type"]): row["number"] for row in events}
    for job_id, job in jobs.items():
        ends = [counts.get((job_id, f"job.{end}"), 0) for end in ("completed", "failed", "cancelled")]
        assert sum(ends) == 1, f"job {job_id} has the outcomes {ends}"
        assert counts.get((job_id, "job.requeued"), 0) == job["attempt"] - 1, job_id


def verify_events(plane: Plane, tmp_path: Path) -> None:
    environment = {
        "MAINSTAY_URL": plane.admin.url,
        "MAINSTAY_TOKEN": str(plane.admin.token),
        "MAINSTAY_STATE_DIR": str(tmp_path / "state"),
    }
    done = subprocess.run([PROGRAM, "events", "verify"], env=environment, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr


def measured_table(plane: Plane) -> str:
    lines = [
        "| killed | connection | kills | longest outage | time to first answer, median | worst |",
        "|---|---|---|---|---|---|",
    ]
    for cause, words in CAUSES.items():
        for name in plane.replicas:
            found = [each for each in plane.outages if each[:2] == (cause, name)]
            if found:
                gap, firsts = max(each[2] for each in found), [each[3] for each in found]
                figures = f"{gap:.1f} s | {median(firsts):.1f} s | {max(firsts):.1f} s"
                lines.append(f"| {words} | {name} | {len(found)} | {figures} |")
    load = plane.load
    acknowledged = len(load.ordered) + len(load.completed()) + sum(len(each.answers) for each in load.probes.values())
    size = "full" if IS_TORTURE else "short"
    summary = (
        f"\n{acknowledged} acknowledged writes, 0 lost; {AGENT_KILLS} agents killed. Short settings (ttl 6 s), the"
        f" {size} form of the test, {os.cpu_count()} cores, Python {platform.python_version()}.\n"
    )
    return "\n".join(lines) + "\n" + summary
