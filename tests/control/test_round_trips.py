"""Database round trips per request, which dominate the cost of most requests on PostgreSQL."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from control_plane import Cluster, running
from query_counter import CountingProxy, counting_proxy
from scenario import Scenario

REPEATS = 8


class Counted:
    def __init__(self, scenario: Scenario, proxy: CountingProxy) -> None:
        self.scenario = scenario
        self.kind = scenario.service_type({}, None)
        self._proxy = proxy
        self._least: dict[str, int] = {}
        for _ in range(REPEATS):
            self._run_once()

    def _run_once(self) -> None:
        scenario = self.scenario
        body = {
            "serviceTypeId": self.kind["id"],
            "name": "n",
            "groupId": scenario.group_id,
            "agentId": scenario.agent_id,
        }
        service = self._count("order", lambda: scenario.consumer.post("/services", body))
        self._finish_job(service)
        self._count("show", lambda: scenario.consumer.get(f"/services/{service['id']}"))
        # As the command line and the pages order.
        short, key = {"serviceTypeId": self.kind["id"], "name": "n"}, {"Idempotency-Key": uuid4().hex}
        self._finish_job(self._count("short order", lambda: scenario.consumer.post("/services", short, headers=key)))

    def _finish_job(self, service: Any) -> None:
        scenario = self.scenario
        (job,) = self._count("poll", lambda: scenario.agent.get("/jobs/pending"))
        assert job["service"]["id"] == service["id"]
        path = f"/jobs/{job['id']}"
        lease = self._count("claim", lambda: scenario.agent.post(f"{path}/claim", {"leaseSeconds": 60}, expect=200))
        held = {"leaseToken": lease["leaseToken"]}
        self._count("renew", lambda: scenario.agent.post(f"{path}/renew", held, expect=200))
        self._count("complete", lambda: scenario.agent.post(f"{path}/complete", held, expect=204))

    def _count(self, name: str, work: Callable[[], Any]) -> Any:
        """Includes notices sent after the commit. Other activity can only raise the count, so the least counts."""
        before = self._proxy.round_trips
        found = work()
        time.sleep(0.03)
        count = self._proxy.round_trips - before
        self._least[name] = min(self._least.get(name, count), count)
        return found

    def __getitem__(self, name: str) -> int:
        return self._least[name]


@pytest.fixture(scope="module")
def counted(postgresql: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Counted]:
    data: Path = tmp_path_factory.mktemp("round-trips") / "data"
    key = {"VAULT_ENCRYPTION_KEY": "ab" * 32}
    with (
        counting_proxy(postgresql.new_database()) as (url, proxy),
        running(data, database_url=url, environment=key) as server,
    ):
        yield Counted(Scenario(server.admin), proxy)


@pytest.mark.parametrize(
    ("request_name", "most"),
    [("order", 6), ("short order", 9), ("poll", 3), ("claim", 9), ("renew", 7), ("complete", 9), ("show", 2)],
)
def test_a_request_needs_at_most_so_many_round_trips(counted: Counted, request_name: str, most: int) -> None:
    assert 0 < counted[request_name] <= most, f"{request_name}: {counted[request_name]}"
