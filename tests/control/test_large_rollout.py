"""A roll-out to 1,000 services of simulated agents with some failing: it stops, survives kill -9, and ends."""

from __future__ import annotations

import threading
import time
from collections import Counter
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Self

import pytest
import urllib3

from blueprint_samples import blueprint, push
from control_plane import Client, Server, running, start
from invariants import violations
from scenario import Scenario, unique
from torture import DATABASES_OF_LONG_TESTS, count_of

pytestmark = pytest.mark.test_all

ENVIRONMENT = {"VAULT_ENCRYPTION_KEY": "78" * 32, "MAINSTAY_RATE_LIMIT": "0"}
SERVICES = count_of(1000)
# Three of a hundred, at least one.
FAILING = max(1, SERVICES * 3 // 100)
AGENTS = 4
SECONDS = 120 if SERVICES < 1000 else 900


class SimulatedAgents:
    """Complete every job, except the first run of an update of some services. They outlive the server."""

    def __init__(self, url: str, tokens: list[str]) -> None:
        self.url = url
        self.tokens = tokens
        # Services whose next update fails.
        self.failing: set[str] = set()
        # Completed updates by service.
        self.updates: Counter[str] = Counter()
        self.stop = threading.Event()
        self.lock = threading.Lock()

    def __enter__(self) -> Self:
        self.threads = [threading.Thread(target=self.run, args=(token,)) for token in self.tokens]
        for thread in self.threads:
            thread.start()
        return self

    def __exit__(self, *_error: object) -> None:
        self.stop.set()
        for thread in self.threads:
            thread.join(timeout=60)

    def run(self, token: str) -> None:
        while not self.stop.is_set():
            client = Client(self.url, token, urllib3.PoolManager(maxsize=2))
            try:
                found = client.call("GET", "/api/v1/jobs/pending?limit=100&wait=1")
                for job in found.body if found.status == 200 else ():
                    self.work(client, job)
            except urllib3.exceptions.HTTPError:
                time.sleep(0.1)

    def work(self, client: Client, job: Any) -> None:
        """Ends the job, also one whose claim or result a kill has swallowed."""
        claim = {"leaseSeconds": 10, "claimId": f"claim-{job['id']}-{job['attempt']}"}
        claimed = client.call("POST", f"/api/v1/jobs/{job['id']}/claim", claim)
        if claimed.status != 200:
            return
        token = claimed.body["leaseToken"]
        fails = job["action"] == "update" and job["serviceId"] in self.failing
        verb, body = ("fail", {"errorMessage": "no disk"}) if fails else ("complete", {})
        done = client.call("POST", f"/api/v1/jobs/{job['id']}/{verb}", {**body, "leaseToken": token})
        if done.status == 204 and job["action"] == "update":
            with self.lock:
                self.updates[job["serviceId"]] += verb == "complete"
                self.failing.discard(job["serviceId"])


def wait_for(client: Client, path: str, *statuses: str) -> Any:
    until = time.monotonic() + SECONDS
    while (found := client.get(path))["status"] not in statuses or found["items"]["running"]:
        assert time.monotonic() < until, found
        time.sleep(0.2)
    return found


@pytest.mark.parametrize("database", DATABASES_OF_LONG_TESTS)
def test_a_large_roll_out_stops_and_is_resumed_to_its_end(
    tmp_path: Path, database: str, request: pytest.FixtureRequest
) -> None:
    url = None if database == "sqlite" else request.getfixturevalue("postgresql").new_database()
    data = tmp_path / "data"
    with ExitStack() as stack:
        server: Server = stack.enter_context(running(data, database_url=url, environment=ENVIRONMENT))
        scenario = Scenario(server.admin)
        name = unique("web")
        old, new = (push(server.admin, blueprint(name, version)) for version in ("1.0.0", "1.1.0"))
        kind = new["serviceType"]
        server.admin.patch(f"/agent-types/{scenario.agent_type_id}", {"serviceTypeIds": [kind["id"]]})
        push(server.admin, blueprint(name, "1.0.0"), expect=200)
        agents = [scenario.new_agent()["id"] for _ in range(AGENTS)]
        tokens = [str(scenario.token("agent", agent_id).token) for agent_id in agents]
        groups = [
            server.admin.post("/service-groups", {"name": "g", "consumerId": scenario.consumer_id})["id"]
            for _ in range(20)
        ]
        with SimulatedAgents(server.url, tokens) as simulated:
            services = []
            for number in range(SERVICES):
                more = {"agentId": agents[number % AGENTS], "groupId": groups[number % len(groups)]}
                services.append(scenario.order(kind, {"size": 1}, **more)["id"])
            until = time.monotonic() + SECONDS
            while server.admin.get(f"/services?serviceTypeId={kind['id']}&status=New&pageSize=1")["totalItems"]:
                assert time.monotonic() < until
                time.sleep(0.2)
            assert server.admin.get(f"/services/{services[0]}")["blueprintDigest"] == old["digest"]
            # Every so many services one fails, so that several waves have failures.
            members = sorted(services)
            simulated.failing = set(members[:: max(1, SERVICES // FAILING)][:FAILING])
            body = {"serviceTypeId": kind["id"], "action": "update", "batch": "10%", "blueprintVersion": "1.1.0"}
            rollout = server.admin.post("/rollouts", {**body, "maxFailures": FAILING})
            path = f"/rollouts/{rollout['id']}"
            stopped = wait_for(server.admin, path, "Stopped")
            counts = stopped["items"]
            # It stops in the wave of the last allowed failure, perhaps before all of that wave have started.
            assert (stopped["failures"], counts["failed"], counts["skipped"]) == (FAILING, FAILING, 0)
            size, ended_items = stopped["batchSize"], counts["done"] + counts["failed"]
            assert (stopped["wave"] - 1) * size < ended_items <= stopped["wave"] * size
            assert sum(simulated.updates.values()) == counts["done"]
            server.admin.post(f"{path}/resume", expect=200)
            time.sleep(1.0)
            server.process.kill()
            server.process.wait(timeout=30)
            again = start(data, database_url=url, environment=ENVIRONMENT)
            stack.callback(again.process.kill)
            simulated.url = again.url
            ended = wait_for(again.admin, path, "Completed", "Stopped")
            assert (ended["status"], ended["items"]["done"]) == ("Completed", SERVICES), ended
        # No service was updated twice, except those that failed first.
        assert max(simulated.updates.values()) == 1
        found = again.admin.get(f"/services?blueprintDigest={new['digest']}&pageSize=1")
        assert found["totalItems"] == SERVICES
        assert " bug " not in again.log.read_text()
        assert again.stop() == 0
    assert violations(url or f"sqlite:///{data}/mainstay.db") == []
