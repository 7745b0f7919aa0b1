"""Killed servers and databases, a full disk, and replicas on one database: no acknowledged change is lost."""

from __future__ import annotations

import random
import resource
import shutil
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest
import urllib3

import seed_text
from control_plane import Client, Cluster, postgresql_cluster, running, start
from invariants import violations
from placed_hosts import Hosts
from scenario import Scenario

pytestmark = pytest.mark.test_all

SIMPLE: Any = seed_text.block("Example 1: Simple VM Lifecycle")
# Without a rate limit, which the load would exceed.
KEY = {"VAULT_ENCRYPTION_KEY": "12" * 32, "MAINSTAY_RATE_LIMIT": "0"}
SCHEMA = {
    "ip": {"type": "string", "generator": {"type": "pool", "config": {"poolType": "ip"}}},
    "key": {"type": "string", "secret": {"type": "persistent"}},
    "once": {"type": "string", "secret": {"type": "ephemeral"}},
}
KILLS = 6
OUTAGES = 4
# Several, so that requests can share commits.
THREADS = 8
SEED = 7


def prepare(scenario: Scenario, cidr: str = "10.0.0.0/22") -> Any:
    """A type with a pool address and two secrets."""
    made = scenario.provider.post("/service-pool-sets", {"name": "s", "providerId": scenario.provider_id})
    scenario.provider.patch(f"/agents/{scenario.agent_id}", {"servicePoolSetId": made["id"]})
    body = {"name": "p", "type": "ip", "propertyType": "string", "generatorType": "subnet"}
    scenario.provider.post(
        "/service-pools", {**body, "generatorConfig": {"cidr": cidr}, "servicePoolSetId": made["id"]}
    )
    _ = (scenario.consumer, scenario.agent, scenario.group_id)
    return scenario.service_type(SCHEMA, SIMPLE)


class Load:
    """Orders, changes and deletions by several threads; records what was acknowledged."""

    def __init__(self, scenario: Scenario, kind: Any) -> None:
        self.scenario = scenario
        self.kind = kind
        self.stop = threading.Event()
        # Acknowledged by the server, whatever happened afterwards.
        self.ordered: dict[str, str] = {}
        self.completed: set[str] = set()
        self.ended: set[str] = set()
        self.refusals: Counter[int] = Counter()
        self.chance = random.Random(SEED)
        body = {"name": "g", "consumerId": scenario.consumer_id}
        # An agent runs one job of a group at a time, so each thread has its own group.
        self.groups = [scenario.consumer.post("/service-groups", body)["id"] for _ in range(THREADS)]

    @contextmanager
    def running(self, url: str) -> Iterator[None]:
        """Runs the load. A thread that loses its connection ends."""
        self.stop.clear()
        threads = [threading.Thread(target=self.run, args=(url, group)) for group in self.groups]
        for thread in threads:
            thread.start()
        try:
            yield
        finally:
            self.stop.set()
            for thread in threads:
                thread.join(timeout=60)

    def run(self, url: str, group_id: str) -> None:
        consumer = Client(url, self.scenario.consumer.token)
        agent = Client(url, self.scenario.agent.token)
        while not self.stop.is_set():
            try:
                self.run_once(consumer, agent, group_id)
            except urllib3.exceptions.HTTPError:
                return

    def run_once(self, consumer: Client, agent: Client, group_id: str) -> None:
        body = {
            "serviceTypeId": self.kind["id"],
            "name": "n",
            "groupId": group_id,
            "agentId": self.scenario.agent_id,
            "properties": {"key": "k", "once": "o"},
        }
        made = consumer.call("POST", "/api/v1/services", body)
        if made.status != 201:
            self.refusals[made.status] += 1
            time.sleep(0.05)
            return
        service = made.body
        self.ordered[service["id"]] = service["properties"]["ip"]
        self.work(agent, service)
        consumer.call("PATCH", f"/api/v1/services/{service['id']}", {"properties": {"ip": None, "key": "other"}})
        self.work(agent, service, fail=self.chance.random() < 0.3)
        if self.chance.random() < 0.5:
            consumer.call("DELETE", f"/api/v1/services/{service['id']}")
            self.work(agent, service)
        elif self.chance.random() < 0.3:
            force = f"/api/v1/services/{service['id']}?force=true"
            if Client(consumer.url, self.scenario.admin.token).call("DELETE", force).status == 204:
                self.ended.add(service["id"])

    def work(self, agent: Client, service: Any, *, fail: bool = False) -> None:
        pending = agent.call("GET", f"/api/v1/jobs/pending?serviceId={service['id']}")
        for job in pending.body if pending.status == 200 else ():
            if agent.call("POST", f"/api/v1/jobs/{job['id']}/claim").status != 204:
                continue
            verb, body = ("fail", {"errorMessage": "x"}) if fail else ("complete", {})
            if agent.call("POST", f"/api/v1/jobs/{job['id']}/{verb}", body).status == 204:
                self.completed.add(job["id"])

    def check(self, admin: Client) -> None:
        """Asserts that nothing acknowledged is lost."""
        assert self.completed, "the load did nothing"
        for service_id in self.ordered:
            found = admin.get(f"/services/{service_id}")
            assert service_id not in self.ended or found["status"] == "Deleted"
        for job_id in self.completed:
            assert admin.get(f"/jobs/{job_id}")["status"] in ("Completed", "Failed")
        # A read numbers the committed events; `violations` checks for gaps afterwards.
        admin.get("/events?pageSize=1")


@pytest.mark.parametrize("dialect", ["sqlite", "postgresql"])
def test_a_server_killed_at_any_instant_loses_nothing_acknowledged(
    dialect: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    data = tmp_path / "data"
    url = request.getfixturevalue("postgresql").new_database() if dialect == "postgresql" else None
    with running(data, database_url=url, environment=KEY) as server:
        scenario = Scenario(server.admin)
        load = Load(scenario, prepare(scenario))
        server.stop()
    for _ in range(KILLS):
        server = start(data, database_url=url, environment=KEY)
        with load.running(server.url):
            time.sleep(load.chance.uniform(0.2, 1.2))
            server.process.kill()
            server.process.wait(timeout=30)
    with running(data, database_url=url, environment=KEY) as server:
        load.check(server.admin)
        assert server.stop() == 0
    assert violations(url or f"sqlite:///{data}/mainstay.db") == []


@pytest.mark.parametrize("dialect", ["sqlite", "postgresql"])
def test_orders_of_a_killed_server_get_each_value_once(
    dialect: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    """50 parallel orders for 40 values on 5 hosts; each is repeated with its key until the server answers."""
    data = tmp_path / "data"
    url = request.getfixturevalue("postgresql").new_database() if dialect == "postgresql" else None
    chance = random.Random(SEED)
    server = start(data, database_url=url, environment=KEY)
    hosts = Hosts(Scenario(server.admin))
    agents = [hosts.add(f"host{number}", range(number * 100, number * 100 + 8))["id"] for number in range(5)]
    body = {"serviceTypeId": hosts.kind["id"], "groupId": hosts.scenario.group_id, "name": "kv"}
    token, address = hosts.scenario.consumer.token, [server.url]
    answered = threading.Semaphore(0)

    def order(number: int) -> Any:
        while True:
            try:
                reply = Client(address[0], token).call(
                    "POST", "/api/v1/services", body, headers={"Idempotency-Key": f"order-{number}"}
                )
            except urllib3.exceptions.HTTPError:
                time.sleep(0.02)
                continue
            if reply.status != 503:
                answered.release()
                return reply

    with ThreadPoolExecutor(50) as threads:
        replies = [threads.submit(order, number) for number in range(50)]
        for _ in range(3):
            for _ in range(chance.randrange(4, 9)):
                assert answered.acquire(timeout=60)
            server.process.kill()
            server.process.wait(timeout=30)
            server = start(data, database_url=url, environment=KEY)
            address[0] = server.url
        found = [each.result(timeout=120) for each in replies]
    placed = [each.body for each in found if each.status == 201]
    assert Counter(each["agentId"] for each in placed) == dict.fromkeys(agents, 8)
    assert len({each["properties"]["port"] for each in placed}) == 40
    assert {each.body["code"] for each in found if each.status != 201} == {"no_capacity"}
    assert server.admin.get("/services?pageSize=1")["totalItems"] == 40
    assert server.stop() == 0
    assert violations(url or f"sqlite:///{data}/mainstay.db") == []


@pytest.fixture
def durable_postgresql() -> Iterator[Cluster]:
    """A separate cluster with fsync, which the test may kill."""
    folder = Path(tempfile.mkdtemp(prefix="pg"))
    folder.chmod(0o755)
    try:
        with postgresql_cluster(folder / "c", durable=True) as cluster:
            yield cluster
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def test_a_database_killed_at_any_instant_loses_nothing_acknowledged(
    tmp_path: Path, durable_postgresql: Cluster
) -> None:
    """The server answers 503 meanwhile and continues when the database is back."""
    url = durable_postgresql.new_database()
    with running(tmp_path / "data", database_url=url, environment=KEY) as server:
        scenario = Scenario(server.admin)
        load = Load(scenario, prepare(scenario))
        with load.running(server.url):
            for _ in range(OUTAGES):
                time.sleep(load.chance.uniform(0.5, 1.5))
                durable_postgresql.kill()
                unavailable = server.admin.call("GET", "/api/v1/participants")
                assert (unavailable.status, unavailable.body["code"]) == (503, "unavailable")
                assert unavailable.headers["retry-after"]
                assert server.admin.call("GET", "/ready").status == 503
                durable_postgresql.start()
                wait_until_ready(server.admin)
            time.sleep(0.5)
        assert set(load.refusals) <= {400, 503}, load.refusals
        load.check(server.admin)
        assert server.stop() == 0
        assert " bug " not in server.log.read_text()
    assert violations(url) == []


def test_a_damaged_write_ahead_log_is_reported_at_the_start(tmp_path: Path) -> None:
    with running(tmp_path / "data") as server:
        for number in range(30):
            server.admin.post("/participants", {"name": f"p{number}"})
        server.process.kill()
        server.process.wait()
    log = tmp_path / "data" / "mainstay.db-wal"
    content = bytearray(log.read_bytes())
    # A page in the middle of the frames of this use of the file: those behind them are of an earlier one.
    frame_size = 24 + int.from_bytes(content[8:12], "big")
    starts = range(32, len(content), frame_size)
    current = [start for start in starts if content[start + 8 : start + 16] == content[16:24]]
    page = current[len(current) // 2] + 24
    content[page : page + 200] = bytes(byte ^ 0xFF for byte in content[page : page + 200])
    log.write_bytes(content)
    with running(tmp_path / "data") as server:
        assert "the write-ahead log of the database is damaged" in server.log.read_text()
        server.admin.get("/participants")
        server.process.kill()
        server.process.wait()
    # A log that was cut off by a crash is no damage.
    with running(tmp_path / "data") as server:
        assert "damaged" not in server.log.read_text()


def test_a_full_disk_loses_nothing_acknowledged(tmp_path: Path) -> None:
    """With SQLite every write is answered 503 while the disk is full, and succeeds when there is space again."""
    with running(tmp_path / "data") as server:
        admin, process = server.admin, server.process.pid
        clients = [Client(server.url, admin.token) for _ in range(THREADS)]

        def write(number: int) -> tuple[int, Any]:
            reply = clients[number % THREADS].call("POST", "/api/v1/participants", {"name": "n" * 200})
            return reply.status, reply.body

        def write_many() -> list[tuple[int, Any]]:
            with ThreadPoolExecutor(THREADS) as threads:
                return list(threads.map(write, range(40)))

        replies = write_many()
        most = max(path.stat().st_size for path in server.data_dir.iterdir())
        unlimited = resource.prlimit(process, resource.RLIMIT_FSIZE)
        resource.prlimit(process, resource.RLIMIT_FSIZE, (most, unlimited[1]))
        refused = 0
        for _ in range(50):
            replies += (turn := write_many())
            refused += (statuses := {status for status, _ in turn}) == {503}
            assert statuses <= {201, 503}, statuses
            if refused == 2:
                break
        assert refused == 2, "the disk was never full"
        # A load balancer sends no more requests, and sends them again when there is space.
        wait_for_readiness(admin, 503)
        assert admin.call("GET", "/healthz").status == 200
        resource.prlimit(process, resource.RLIMIT_FSIZE, unlimited)
        wait_for_readiness(admin, 200)
        after = write_many()
        assert {status for status, _ in after} == {201}
        made = {body["id"] for status, body in [*replies, *after] if status == 201}
        pages = admin.get("/participants?pageSize=100")["totalPages"]
        found = [
            each
            for page in range(pages)
            for each in admin.get(f"/participants?pageSize=100&page={page + 1}")["items"]
        ]
        assert {each["id"] for each in found} == made
        assert server.stop() == 0
        assert " bug " not in server.log.read_text()


def wait_for_readiness(client: Client, status: int) -> None:
    """The server tries to write every five seconds."""
    until = time.monotonic() + 30
    while client.call("GET", "/ready").status != status:
        assert time.monotonic() < until, f"/ready is never {status}"
        time.sleep(0.2)


def wait_until_ready(client: Client) -> None:
    until = time.monotonic() + 20
    while client.call("GET", "/ready").status != 200:
        assert time.monotonic() < until, "the server does not reconnect to its database"
        time.sleep(0.05)


def test_two_replicas_share_one_queue_and_one_pool(tmp_path: Path, postgresql: Cluster) -> None:
    url = postgresql.new_database()
    with ExitStack() as stack:
        one = stack.enter_context(running(tmp_path / "one", database_url=url, environment=KEY))
        two = stack.enter_context(running(tmp_path / "two", database_url=url, environment=KEY))
        assert not (tmp_path / "two" / "admin.token").exists()
        scenario = Scenario(one.admin)
        kind = prepare(scenario, "10.0.0.0/26")
        clients = [Client(each.url, scenario.consumer.token) for each in (one, two)]
        agents = [Client(each.url, scenario.agent.token) for each in (one, two)]
        body = {"serviceTypeId": kind["id"], "groupId": scenario.group_id, "agentId": scenario.agent_id, "name": "n"}

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
    assert violations(url) == []


def test_a_shutdown_answers_long_polls(tmp_path: Path) -> None:
    with running(tmp_path / "data") as server:
        scenario = Scenario(server.admin)
        agent = scenario.agent
        with ThreadPoolExecutor(1) as threads:
            waiting = threads.submit(lambda: agent.call("GET", "/api/v1/jobs/pending?wait=60"))
            time.sleep(0.5)
            started = time.monotonic()
            assert server.stop() == 0
            assert time.monotonic() - started < 10
            assert (waiting.result(timeout=10).status, waiting.result().body) == (200, [])
