"""Moves against everything else, and killed servers: each pool value has one owner, and no secret is lost."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
import urllib3

from control_plane import Client, Cluster, Server, running, start
from invariants import violations
from moving import MovingScenario, PlayedAgent
from scenario import Scenario
from torture import count_of

pytestmark = pytest.mark.test_all

ENVIRONMENT = {"VAULT_ENCRYPTION_KEY": "56" * 32, "MAINSTAY_RATE_LIMIT": "0"}
SEED = 11
ROUNDS = count_of(400)
KILLS = count_of(60)
THREADS = 6


@pytest.fixture(params=["sqlite", "postgresql"])
def database(request: pytest.FixtureRequest) -> str | None:
    cluster: Cluster | None = None
    if request.param == "postgresql":
        cluster = request.getfixturevalue("postgresql")
    return None if cluster is None else cluster.new_database()


class MoveLoad:
    """Threads that do to a few services whatever a user, an agent or an admin may do."""

    def __init__(self, moving: MovingScenario) -> None:
        self.moving = moving
        self.chance = random.Random(SEED)
        values = [f"10.{number}.0.{host}" for number in range(3) for host in range(30)]
        self.agents = [moving.agent(*values[start : start + 30]) for start in (0, 30, 60)]
        self.services = [moving.order(self.agents[index % 3], instance=None) for index in range(6)]
        _ = (moving.scenario.consumer, moving.scenario.admin)
        self.stop = threading.Event()

    def at(self, url: str, client: Client) -> Client:
        return Client(url, client.token, urllib3.PoolManager(maxsize=4))

    def run_once(self, url: str, chance: random.Random) -> None:
        service, agent = chance.choice(self.services), chance.choice(self.agents)
        consumer, admin = self.at(url, self.moving.scenario.consumer), self.at(url, self.moving.scenario.admin)
        played = self.at(url, agent.client)
        path = f"/api/v1/services/{service['id']}"
        acts: list[Callable[[], object]] = [
            lambda: consumer.call("PUT", f"{path}/agent", {"agentId": agent.id}),
            lambda: consumer.call("PUT", f"{path}/agent", {"agentId": agent.id}),
            lambda: consumer.call("POST", f"{path}/start"),
            lambda: consumer.call("POST", f"{path}/stop"),
            lambda: consumer.call("PATCH", path, {"properties": {"password": f"s{chance.random()}"}}),
            lambda: admin.call("DELETE", f"/api/v1/agents/{agent.id}"),
            lambda: self.cancel(consumer, service),
            *[lambda: self.work(played, chance)] * 8,
            *[lambda: self.clean_up(played)] * 2,
        ]
        chance.choice(acts)()

    def cancel(self, consumer: Client, service: Any) -> None:
        found = consumer.call("GET", f"/api/v1/services/{service['id']}").body
        if found.get("activeJob"):
            consumer.call("POST", f"/api/v1/jobs/{found['activeJob']['id']}/cancel")

    def work(self, agent: Client, chance: random.Random) -> None:
        found = agent.call("GET", "/api/v1/jobs/pending?limit=3")
        # The agent may have been deleted, if it had nothing.
        for job in found.body if found.status == 200 else ():
            if agent.call("POST", f"/api/v1/jobs/{job['id']}/claim").status != 204:
                continue
            verb = chance.choice(["complete", "complete", "complete", "fail", "release"])
            body = {"errorMessage": "no"} if verb == "fail" else {}
            agent.call("POST", f"/api/v1/jobs/{job['id']}/{verb}", body)

    def clean_up(self, agent: Client) -> None:
        found = agent.call("GET", "/api/v1/orphans")
        for orphan in found.body["items"] if found.status == 200 else ():
            agent.call("POST", f"/api/v1/orphans/{orphan['id']}/confirm")

    def run(self, url: str, seed: int, rounds: int) -> None:
        chance = random.Random(seed)
        for _ in range(rounds):
            if self.stop.is_set():
                return
            try:
                self.run_once(url, chance)
            except (urllib3.exceptions.HTTPError, TypeError, AttributeError, KeyError):
                # The server is gone: an answer is missing or no document.
                if not self.stop.is_set() and not self.is_killed:
                    raise

    is_killed = False

    def settle(self, url: str) -> None:
        """Ends every job and clean-up."""
        chance = random.Random(SEED)
        for agent in self.agents:
            # Claims whose answer the kill has swallowed.
            played = self.at(url, agent.client)
            found = played.call("GET", "/api/v1/jobs?status=Processing&pageSize=100")
            for job in found.body["items"] if found.status == 200 else ():
                played.post(f"/jobs/{job['id']}/fail", {"errorMessage": "killed"}, expect=204)
        for _ in range(30):
            for agent in self.agents:
                self.work(self.at(url, agent.client), chance)
                self.clean_up(self.at(url, agent.client))

    def check(self, url: str) -> None:
        admin = self.at(url, self.moving.scenario.admin)
        left = [each for each in self.agents if admin.call("GET", f"/api/v1/agents/{each.id}").status == 200]
        by_id = {agent.id: agent for agent in left}
        held: dict[str, list[str]] = {agent.id: [] for agent in left}
        for service in self.services:
            found = admin.get(f"/services/{service['id']}")
            assert found.get("activeJob") is None
            assert found["orphan"] is False
            owner = by_id[found["agentId"]]
            held[owner.id].append(found["properties"]["address"])
            played = PlayedAgent(owner.id, self.at(url, owner.client), owner.pool)
            assert self.moving.read_secret(played, found["properties"]["password"])
            for other in left:
                if other is not owner:
                    foreign = PlayedAgent(other.id, self.at(url, other.client), other.pool)
                    self.moving.read_secret(foreign, found["properties"]["password"], expect=404)
        for agent in left:
            played = PlayedAgent(agent.id, self.at(url, agent.client), agent.pool)
            assert sorted(played.allocated()) == sorted(held[agent.id])


def test_moves_race_with_everything_else(tmp_path: Path, database: str | None) -> None:
    with ExitStack() as stack:
        names = ["one"] if database is None else ["one", "two"]
        servers: list[Server] = [
            stack.enter_context(running(tmp_path / name, database_url=database, environment=ENVIRONMENT))
            for name in names
        ]
        load = MoveLoad(MovingScenario(Scenario(servers[0].admin)))
        with ThreadPoolExecutor(THREADS) as pool:
            runs = [
                pool.submit(load.run, servers[number % len(servers)].url, SEED + number, ROUNDS)
                for number in range(THREADS)
            ]
            for each in runs:
                each.result()
        url = servers[0].url
        load.settle(url)
        load.check(url)
        for server in servers:
            assert " bug " not in server.log.read_text()
            assert server.stop() == 0
    assert violations(database or f"sqlite:///{tmp_path}/one/mainstay.db") == []


def test_a_server_killed_during_moves_leaves_one_owner_of_everything(tmp_path: Path, database: str | None) -> None:
    data = tmp_path / "data"
    with running(data, database_url=database, environment=ENVIRONMENT) as server:
        load = MoveLoad(MovingScenario(Scenario(server.admin)))
        assert server.stop() == 0
    load.is_killed = True
    for kill in range(KILLS):
        server = start(data, database_url=database, environment=ENVIRONMENT)
        load.stop.clear()
        with ThreadPoolExecutor(THREADS) as pool:
            for number in range(THREADS):
                pool.submit(load.run, server.url, SEED + kill * THREADS + number, 10_000)
            time.sleep(load.chance.uniform(0.3, 1.5))
            server.process.kill()
            server.process.wait(timeout=30)
            load.stop.set()
    with running(data, database_url=database, environment=ENVIRONMENT) as server:
        load.settle(server.url)
        load.check(server.url)
        assert " bug " not in server.log.read_text()
        assert server.stop() == 0
    assert violations(database or f"sqlite:///{data}/mainstay.db") == []
