"""The server is killed at random instants, and replicas work on one database: no promise is broken."""

from __future__ import annotations

import random
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
import urllib3

import seed
from invariants import broken_promises
from plane import Client, Cluster, running, start
from world import World

SIMPLE: Any = seed.block("Example 1: Simple VM Lifecycle")
KEY = {"VAULT_ENCRYPTION_KEY": "12" * 32}
SCHEMA = {
    "ip": {"type": "string", "generator": {"type": "pool", "config": {"poolType": "ip"}}},
    "key": {"type": "string", "secret": {"type": "persistent"}},
    "once": {"type": "string", "secret": {"type": "ephemeral"}},
}
KILLS = 4


def prepare(world: World, cidr: str = "10.0.0.0/22") -> Any:
    """A type that takes an address and two secrets."""
    made = world.provider.post("/service-pool-sets", {"name": "s", "providerId": world.provider_id})
    world.provider.patch(f"/agents/{world.agent_id}", {"servicePoolSetId": made["id"]})
    body = {"name": "p", "type": "ip", "propertyType": "string", "generatorType": "subnet"}
    world.provider.post("/service-pools", {**body, "generatorConfig": {"cidr": cidr}, "servicePoolSetId": made["id"]})
    _ = (world.consumer, world.agent, world.group_id)
    return world.service_type(SCHEMA, SIMPLE)


class Load:
    """Orders, changes and removals by several threads; remembers what was acknowledged."""

    def __init__(self, world: World, kind: Any) -> None:
        self.world = world
        self.kind = kind
        self.stop = threading.Event()
        self.ordered: dict[str, str] = {}
        self.completed: set[str] = set()

    def run(self, url: str) -> None:
        consumer = Client(url, self.world.consumer.token)
        agent = Client(url, self.world.agent.token)
        while not self.stop.is_set():
            try:
                self.turn(consumer, agent)
            except urllib3.exceptions.HTTPError:
                return

    def turn(self, consumer: Client, agent: Client) -> None:
        group = consumer.call("POST", "/api/v1/service-groups", {"name": "g", "consumerId": self.world.consumer_id})
        body = {
            "serviceTypeId": self.kind["id"],
            "name": "n",
            "groupId": group.body["id"],
            "agentId": self.world.agent_id,
            "properties": {"key": "k", "once": "o"},
        }
        made = consumer.call("POST", "/api/v1/services", body)
        if made.status != 201:
            return
        service = made.body
        self.ordered[service["id"]] = service["properties"]["ip"]
        self.work(agent, service)
        consumer.call("PATCH", f"/api/v1/services/{service['id']}", {"properties": {"ip": None, "key": "other"}})
        self.work(agent, service, fail=random.random() < 0.3)
        if random.random() < 0.5:
            consumer.call("DELETE", f"/api/v1/services/{service['id']}")
            self.work(agent, service)

    def work(self, agent: Client, service: Any, *, fail: bool = False) -> None:
        pending = agent.call("GET", f"/api/v1/jobs/pending?serviceId={service['id']}").body
        for job in pending:
            if agent.call("POST", f"/api/v1/jobs/{job['id']}/claim").status != 204:
                continue
            verb, body = ("fail", {"errorMessage": "x"}) if fail else ("complete", {})
            if agent.call("POST", f"/api/v1/jobs/{job['id']}/{verb}", body).status == 204:
                self.completed.add(job["id"])


@pytest.mark.parametrize("dialect", ["sqlite", "postgresql"])
def test_a_server_killed_at_any_instant_keeps_every_promise(
    dialect: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    data = tmp_path / "data"
    url = request.getfixturevalue("postgresql").new_database() if dialect == "postgresql" else None
    with running(data, database_url=url, environment=KEY) as server:
        world = World(server.admin)
        kind = prepare(world)
        server.stop()
    load = Load(world, kind)
    for _ in range(KILLS):
        server = start(data, database_url=url, environment=KEY)
        threads = [threading.Thread(target=load.run, args=(server.url,)) for _ in range(4)]
        for thread in threads:
            thread.start()
        time.sleep(random.uniform(0.4, 1.2))
        server.process.kill()
        server.process.wait(timeout=30)
        for thread in threads:
            thread.join(timeout=60)
    with running(data, database_url=url, environment=KEY) as server:
        admin = server.admin
        assert load.ordered, "the load did nothing"
        for service_id in load.ordered:
            admin.get(f"/services/{service_id}")
        for job_id in load.completed:
            assert admin.get(f"/jobs/{job_id}")["status"] in ("Completed", "Failed")
        # Whoever reads numbers what is committed, so the numbers must be whole afterwards.
        admin.get("/events?pageSize=1")
        assert server.stop() == 0
    assert broken_promises(url or f"sqlite:///{data}/mainstay.db") == []


def test_two_replicas_share_one_queue_and_one_pool(tmp_path: Path, postgresql: Cluster) -> None:
    url = postgresql.new_database()
    with ExitStack() as stack:
        one = stack.enter_context(running(tmp_path / "one", database_url=url, environment=KEY))
        two = stack.enter_context(running(tmp_path / "two", database_url=url, environment=KEY))
        assert not (tmp_path / "two" / "admin.token").exists()
        world = World(one.admin)
        kind = prepare(world, "10.0.0.0/26")
        clients = [Client(each.url, world.consumer.token) for each in (one, two)]
        agents = [Client(each.url, world.agent.token) for each in (one, two)]
        body = {"serviceTypeId": kind["id"], "groupId": world.group_id, "agentId": world.agent_id, "name": "n"}

        def order(number: int) -> Any:
            return clients[number % 2].call("POST", "/api/v1/services", body)

        with ThreadPoolExecutor(12) as threads:
            replies = list(threads.map(order, range(100)))
        made = [reply.body for reply in replies if reply.status == 201]
        assert {reply.status for reply in replies} == {201, 400}
        assert len(made) == len({service["properties"]["ip"] for service in made}) == 64
        jobs = [service["activeJob"]["id"] for service in made[:5]]

        def claim(number: int) -> tuple[str, int]:
            job = jobs[number % len(jobs)]
            return job, agents[number % 2].call("POST", f"/api/v1/jobs/{job}/claim", {"leaseSeconds": 60}).status

        with ThreadPoolExecutor(12) as threads:
            claims = list(threads.map(claim, range(100)))
        assert [claims.count((job, 200)) for job in jobs] == [1] * len(jobs)
        for service in made:
            Client(two.url, one.admin.token).delete(f"/services/{service['id']}?force=true")
        with ThreadPoolExecutor(1) as threads:
            waiting = threads.submit(lambda: (agents[1].get("/jobs/pending?wait=20"), time.monotonic()))
            time.sleep(1.0)
            clients[0].post("/services", body)
            committed = time.monotonic()
            found, answered = waiting.result(timeout=20)
        assert len(found) == 1
        assert answered - committed < 1.0
        one.admin.get("/events?pageSize=1")
        assert (one.stop(), two.stop()) == (0, 0)
    assert broken_promises(url) == []


def test_a_shutdown_answers_those_who_wait(tmp_path: Path) -> None:
    with running(tmp_path / "data") as server:
        world = World(server.admin)
        agent = world.agent
        with ThreadPoolExecutor(1) as threads:
            waiting = threads.submit(lambda: agent.call("GET", "/api/v1/jobs/pending?wait=60"))
            time.sleep(0.5)
            started = time.monotonic()
            assert server.stop() == 0
            assert time.monotonic() - started < 10
            assert (waiting.result(timeout=10).status, waiting.result().body) == (200, [])
