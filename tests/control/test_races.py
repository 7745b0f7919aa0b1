"""Concurrent requests on both databases, on PostgreSQL through two replicas: invariants hold in any order."""

from __future__ import annotations

import itertools
import random
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any, TypeVar

import pytest

from control_plane import Client, Server, running
from invariants import violations
from scenario import Scenario, unique

ENVIRONMENT = {"VAULT_ENCRYPTION_KEY": "34" * 32, "MAINSTAY_LOG_LEVEL": "error", "MAINSTAY_RATE_LIMIT": "0"}
THREADS = 16
ORDERS = 1000
ADDRESSES = 256
SEED = 20260101
SCHEMA = {
    "ip": {"type": "string", "generator": {"type": "pool", "config": {"poolType": "ip"}}},
    "port": {"type": "integer", "generator": {"type": "pool", "config": {"poolType": "port"}}},
    "key": {"type": "string", "secret": {"type": "persistent"}},
    "once": {"type": "string", "secret": {"type": "ephemeral"}},
}
T = TypeVar("T")
U = TypeVar("U")


def lifecycle(**create: Any) -> dict[str, Any]:
    """Each outcome of the first job leads to another state; Failed and Late are terminal."""
    return {
        "states": [{"name": name} for name in ("New", "Stopped", "Failed", "Late", "Deleted")],
        "actions": [
            {
                "name": "create",
                "requestSchemaType": "properties",
                "transitions": [
                    {"from": "New", "to": "Stopped"},
                    {"from": "New", "to": "Late", "onError": True, "onErrorRegexp": "timed out|^cancelled$"},
                    {"from": "New", "to": "Failed", "onError": True},
                ],
                **create,
            },
            {
                "name": "update",
                "requestSchemaType": "properties",
                "transitions": [{"from": "Stopped", "to": "Stopped"}],
            },
            {"name": "delete", "transitions": [{"from": "Stopped", "to": "Deleted"}]},
        ],
        "initialState": "New",
        "terminalStates": ["Deleted", "Failed", "Late"],
    }


@dataclass
class Replicas:
    """One server, or two on one database; calls alternate between them."""

    servers: list[Server]
    database_url: str

    def __post_init__(self) -> None:
        self._next = itertools.count()

    @property
    def admin(self) -> Client:
        return self.servers[0].admin

    def spread(self, client: Client) -> Client:
        return Client(self.servers[next(self._next) % len(self.servers)].url, client.token, client.pool)


@pytest.fixture(scope="module", params=["sqlite", "postgresql"])
def replicas(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Replicas]:
    folder = tmp_path_factory.mktemp("races")
    with ExitStack() as stack:
        if request.param == "sqlite":
            found = [stack.enter_context(running(folder / "data", environment=ENVIRONMENT))]
            url = f"sqlite:///{folder}/data/mainstay.db"
        else:
            url = request.getfixturevalue("postgresql").new_database()
            found = [
                stack.enter_context(running(folder / name, database_url=url, environment=ENVIRONMENT))
                for name in ("one", "two")
            ]
        yield Replicas(found, url)
        # After all tests the database still satisfies every invariant.
        found[0].admin.get("/events?pageSize=1")
        assert [server.stop() for server in found] == [0] * len(found)
        assert violations(url) == []


def concurrently(act: Callable[[T], U], parts: Iterable[T], threads: int = THREADS) -> list[U]:
    with ThreadPoolExecutor(threads) as pool:
        return list(pool.map(act, parts))


class OrderLoad:
    """A type with a pool address, a pool port and two secrets, and a consumer that orders it."""

    def __init__(self, replicas: Replicas, cidr: str, ports: int, **create: Any) -> None:
        self.replicas = replicas
        self.scenario = Scenario(replicas.admin)
        provider = self.scenario.provider
        made = provider.post("/service-pool-sets", {"name": "s", "providerId": self.scenario.provider_id})
        provider.patch(f"/agents/{self.scenario.agent_id}", {"servicePoolSetId": made["id"]})
        pool = {"name": "p", "servicePoolSetId": made["id"]}
        subnet = {
            "type": "ip",
            "propertyType": "string",
            "generatorType": "subnet",
            "generatorConfig": {"cidr": cidr},
        }
        listed = {"type": "port", "propertyType": "integer", "generatorType": "list"}
        self.pools = [provider.post("/service-pools", {**pool, **kind})["id"] for kind in (subnet, listed)]
        concurrently(self.add_port, range(ports))
        self.kind = self.scenario.service_type(SCHEMA, lifecycle(**create))
        _ = (self.scenario.consumer, self.scenario.agent, self.scenario.group_id)

    def add_port(self, number: int) -> None:
        body = {"servicePoolId": self.pools[1], "name": str(number), "value": number}
        self.scenario.provider.post("/service-pool-values", body)

    def order(self, number: int) -> Any:
        consumer = self.replicas.spread(self.scenario.consumer)
        body = {
            "serviceTypeId": self.kind["id"],
            "name": f"n{number}",
            "groupId": self.scenario.group_id,
            "agentId": self.scenario.agent_id,
            "properties": {"key": "k", "once": "o"},
        }
        return consumer.call("POST", "/api/v1/services", body)

    def orders(self, count: int) -> list[Any]:
        replies = concurrently(self.order, range(count))
        assert {reply.status for reply in replies} == {201}
        return [reply.body for reply in replies]

    def agent(self, verb: str, job_id: str, body: object = None) -> Any:
        return self.replicas.spread(self.scenario.agent).call("POST", f"/api/v1/jobs/{job_id}/{verb}", body)

    def usage(self) -> list[tuple[int, int]]:
        found = [self.scenario.provider.get(f"/service-pools/{pool}/usage") for pool in self.pools]
        return [(each["total"], each["allocated"]) for each in found]


@pytest.mark.test_all
def test_a_thousand_concurrent_orders_share_no_value_and_release_all(replicas: Replicas) -> None:
    load = OrderLoad(replicas, "10.0.0.0/24", ADDRESSES)
    replies = concurrently(load.order, range(ORDERS))
    made = [reply.body for reply in replies if reply.status == 201]
    refused = [reply.body["errors"][0]["message"] for reply in replies if reply.status != 201]
    assert len(made) == ADDRESSES
    # The pools have the same size, so either may be exhausted first.
    assert {message.rpartition(" ")[0] for message in refused} == {"failed to allocate from pool"}
    for name in ("ip", "port"):
        assert len({service["properties"][name] for service in made}) == ADDRESSES
    assert load.usage() == [(ADDRESSES, ADDRESSES)] * 2
    fates = random.Random(SEED)
    ends: list[Callable[[Any], None]] = [
        lambda service: end_by_force(load, service),
        lambda service: end_by_failure(load, service),
        lambda service: end_by_deletion(load, service),
        lambda service: end_after_update(load, service),
    ]
    concurrently(lambda pair: pair[0](pair[1]), [(fates.choice(ends), service) for service in made])
    assert load.usage() == [(ADDRESSES, 0)] * 2


def end_by_force(load: OrderLoad, service: Any) -> None:
    load.replicas.spread(load.scenario.consumer).delete(f"/services/{service['id']}?force=true")


def end_by_failure(load: OrderLoad, service: Any) -> None:
    assert load.agent("fail", service["activeJob"]["id"], {"errorMessage": "no"}).status == 204


def run_job(load: OrderLoad, service: Any, verb: str = "complete", body: object = None) -> None:
    consumer = load.replicas.spread(load.scenario.consumer)
    job_id = consumer.get(f"/services/{service['id']}")["activeJob"]["id"]
    assert load.agent("claim", job_id).status == 204
    assert load.agent(verb, job_id, body).status == 204


def end_by_deletion(load: OrderLoad, service: Any) -> None:
    run_job(load, service)
    load.replicas.spread(load.scenario.consumer).delete(f"/services/{service['id']}")
    run_job(load, service)


def end_after_update(load: OrderLoad, service: Any) -> None:
    """A failed update releases what it allocated. The pool may be exhausted, then the update is refused."""
    run_job(load, service)
    consumer = load.replicas.spread(load.scenario.consumer)
    changed = consumer.call("PATCH", f"/api/v1/services/{service['id']}", {"properties": {"ip": None, "key": "n"}})
    if changed.status == 200:
        run_job(load, service, "fail", {"errorMessage": "no"})
    consumer.delete(f"/services/{service['id']}")
    run_job(load, service)


def test_exactly_one_of_fifty_concurrent_claims_succeeds(replicas: Replicas) -> None:
    load = OrderLoad(replicas, "10.1.0.0/27", 32)
    jobs = [service["activeJob"]["id"] for service in load.orders(20)]
    claims: list[object] = [None, {"leaseSeconds": 60}, {"leaseSeconds": 60, "claimId": "worker-of-many"}]

    def claim(number: int) -> tuple[str, int, str]:
        job = jobs[number % len(jobs)]
        reply = load.agent("claim", job, claims[number // len(jobs) % 2])
        return job, reply.status, reply.body["leaseToken"] if reply.status == 200 else ""

    results = concurrently(claim, range(50 * len(jobs)), threads=50)
    for job in jobs:
        statuses = Counter(status for claimed, status, _ in results if claimed == job)
        assert statuses[409] == 49, statuses
        assert statuses[200] + statuses[204] == 1, statuses
    # Claims with the same claim id are one claim: all succeed with the same lease.
    (service,) = load.orders(1)
    same = concurrently(lambda _: load.agent("claim", service["activeJob"]["id"], claims[2]), range(20))
    assert len({reply.body["leaseToken"] for reply in same if reply.status == 200}) == 1
    assert {reply.status for reply in same} == {200}


OUTCOMES = {("Completed", "Stopped"), ("Failed", "Late"), ("Failed", "Failed"), ("Cancelled", "Late")}
# Completed and Deleted: the service was force-deleted after the completion.
OUTCOMES |= {("Cancelled", "Failed"), ("Cancelled", "Deleted"), ("Completed", "Deleted")}


def test_complete_timeout_cancel_and_force_have_exactly_one_outcome(replicas: Replicas) -> None:
    load = OrderLoad(replicas, "10.2.0.0/25", 100, timeoutSeconds=1)
    chance = random.Random(SEED)
    scenario = load.scenario
    services = load.orders(60)
    calls: list[tuple[str, Any]] = []
    for service in services:
        job = service["activeJob"]["id"]
        calls += [
            ("complete", lambda job=job: load.agent("complete", job)),
            ("fail", lambda job=job: load.agent("fail", job, {"errorMessage": "x"})),
            ("cancel", lambda job=job: replicas.spread(scenario.consumer).call("POST", f"/api/v1/jobs/{job}/cancel")),
            ("cancel", lambda job=job: replicas.spread(scenario.provider).call("POST", f"/api/v1/jobs/{job}/cancel")),
        ]
        if chance.random() < 0.3:
            path = f"/api/v1/services/{service['id']}?force=true"
            calls.append(("force", lambda path=path: replicas.spread(replicas.admin).call("DELETE", path)))
    chance.shuffle(calls)
    concurrently(lambda service: load.agent("claim", service["activeJob"]["id"]), services)
    # From half a second before to a second after the deadline, so that the time-out takes part.
    start = time.monotonic() + 0.5

    def call_at(pair: tuple[int, tuple[str, Any]]) -> tuple[str, int]:
        number, (name, act) = pair
        time.sleep(max(0.0, start + 1.5 * number / len(calls) - time.monotonic()))
        return name, act().status

    statuses = Counter(concurrently(call_at, enumerate(calls)))
    assert {status for _, status in statuses} <= {204, 409}, statuses
    for service in services:
        job = service["activeJob"]["id"]
        ended = wait_for_end(scenario, job)
        now = scenario.service(service["id"])
        assert (ended["status"], now["status"]) in OUTCOMES, (ended, now["status"])
        events = scenario.admin.get(f"/events?entityId={job}&pageSize=100")["items"]
        ends = [each["type"] for each in events if each["type"] in ("job.completed", "job.failed", "job.cancelled")]
        assert ends == [f"job.{ended['status'].lower()}"]
        # Every job was claimed, so a forced delete leaves an orphan.
        assert now["orphan"] == (now["status"] == "Deleted")
        holds = now["orphan"] or now["status"] == "Stopped"
        assert ("key" in now["properties"], "once" in now["properties"]) == (holds, False)
    found = [scenario.service(service["id"]) for service in services]
    living = sum(service["status"] == "Stopped" for service in found)
    holding = living + sum(service["orphan"] for service in found)
    assert [allocated for _, allocated in load.usage()] == [holding, holding]
    orphans = scenario.agent.get("/orphans?pageSize=100")["items"]
    confirmed = concurrently(
        lambda orphan: replicas.spread(scenario.agent).call("POST", f"/api/v1/orphans/{orphan['id']}/confirm").status,
        [*orphans, *orphans],
    )
    assert set(confirmed) == {204}
    assert [allocated for _, allocated in load.usage()] == [living, living]


def wait_for_end(scenario: Scenario, job_id: str) -> Any:
    until = time.monotonic() + 20
    while True:
        job = scenario.admin.get(f"/jobs/{job_id}")
        if job["status"] not in ("Pending", "Processing"):
            return job
        assert time.monotonic() < until, job
        time.sleep(0.05)


def stopped_service(replicas: Replicas) -> tuple[Scenario, Any]:
    scenario = Scenario(replicas.admin)
    service = scenario.order(scenario.service_type(None, lifecycle()), {"count": 0})
    scenario.complete(service)
    return scenario, service


def test_concurrent_renames_lose_no_update(replicas: Replicas) -> None:
    scenario, service = stopped_service(replicas)
    path = f"/api/v1/services/{service['id']}"
    before = scenario.service(service["id"])["version"]
    names = [unique("name") for _ in range(100)]
    replies = concurrently(lambda name: replicas.spread(scenario.consumer).call("PATCH", path, {"name": name}), names)
    assert {reply.status for reply in replies} == {200}
    assert sorted(reply.body["version"] for reply in replies) == [before + 1 + number for number in range(100)]
    assert {reply.body["name"] for reply in replies} == set(names)
    last = max(replies, key=lambda reply: int(reply.body["version"]))
    assert scenario.service(service["id"])["name"] == last.body["name"]


def test_concurrent_increments_with_if_match_lose_no_update(replicas: Replicas) -> None:
    """Read, increment, write with If-Match: a wrong sum would mean an overwritten update."""
    scenario, service = stopped_service(replicas)
    path = f"/api/v1/services/{service['id']}"
    scenario.consumer.call("PATCH", path, {"name": "0"}, expect=200)
    refused = itertools.count()

    def count(_: int) -> None:
        while True:
            client = replicas.spread(scenario.consumer)
            seen = client.call("GET", path, expect=200)
            name = str(int(seen.body["name"]) + 1)
            changed = client.call("PATCH", path, {"name": name}, headers={"If-Match": seen.headers["etag"]})
            if changed.status == 200:
                return
            assert changed.status == 412
            next(refused)

    concurrently(count, range(60), threads=8)
    assert scenario.service(service["id"])["name"] == "60"
    assert next(refused) > 0


def test_concurrent_changes_of_properties_are_applied_one_by_one(replicas: Replicas) -> None:
    """Properties change through jobs: an accepted change is applied, any other is refused with 409."""
    scenario, service = stopped_service(replicas)
    path = f"/api/v1/services/{service['id']}"
    accepted: list[int] = []
    stop = threading.Event()

    def work() -> None:
        agent = replicas.spread(scenario.agent)
        while not stop.is_set():
            for job in agent.get(f"/jobs/pending?serviceId={service['id']}&wait=1"):
                agent.post(f"/jobs/{job['id']}/claim", expect=204)
                agent.post(f"/jobs/{job['id']}/complete", expect=204)

    worker = threading.Thread(target=work)
    worker.start()

    def change(number: int) -> int:
        reply = replicas.spread(scenario.consumer).call("PATCH", path, {"properties": {"count": number}})
        if reply.status == 200:
            accepted.append(number)
        return reply.status

    statuses = concurrently(change, range(1, 101))
    stop.set()
    worker.join(timeout=30)
    assert set(statuses) == {200, 409}
    params = [job["params"]["count"] for job in scenario.jobs(service) if job["action"] == "update"]
    assert sorted(params) == sorted(accepted)
    done = scenario.consumer.wait_for(f"/services/{service['id']}", {"activeJob": None})
    assert done["properties"]["count"] == params[-1]
