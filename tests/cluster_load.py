"""Load on two servers that share a database cluster: orders, probes of both servers, and agents that can be killed.

Records what was acknowledged, when each server answered, and every answer that a client must not get."""

from __future__ import annotations

import itertools
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from uuid import uuid4

import urllib3

from control_plane import Client, Reply
from scenario import Scenario

AGENTS = 3
ORDER_THREADS = 3
ORDER_PAUSE_SECONDS = 0.2
PROBE_PAUSE_SECONDS = 0.1
SCHEMA = {"ip": {"type": "string", "generator": {"type": "pool", "config": {"poolType": "ip"}}}}
LIFECYCLE = {
    "states": [{"name": "New"}, {"name": "Ready"}, {"name": "Deleted"}],
    "actions": [
        {
            "name": "create",
            "requestSchemaType": "properties",
            "transitions": [{"from": "New", "to": "Ready"}],
            # More than the kills that can hit one job.
            "maxAttempts": 10,
        },
        {"name": "delete", "transitions": [{"from": "Ready", "to": "Deleted"}]},
    ],
    "initialState": "New",
    "terminalStates": ["Deleted"],
    "runningStates": ["Ready"],
}


@dataclass
class Probe:
    """Acknowledged writes of one server: when the request was sent, and when it was answered."""

    answers: list[tuple[float, float]] = field(default_factory=list)
    participants: list[str] = field(default_factory=list)

    def first_answer_after(self, moment: float) -> float | None:
        return next((done - moment for sent, done in self.answers if sent >= moment), None)

    def longest_gap_after(self, moment: float) -> float:
        """The longest time without an acknowledged write since the last one before the moment."""
        before = max((done for _, done in self.answers if done <= moment), default=moment)
        times = [before, *(done for _, done in self.answers if done > moment)]
        return max((late - early for early, late in itertools.pairwise(times)), default=0.0)


@dataclass
class Agent:
    id: str
    token: str
    record: Path
    process: subprocess.Popen[bytes] | None = None


class ClusterLoad:
    def __init__(self, admin: Client, urls: dict[str, str], folder: Path) -> None:
        self.urls = urls
        self.folder = folder
        self.scenario = Scenario(admin)
        scenario = self.scenario
        pool_set = scenario.provider.post("/service-pool-sets", {"name": "s", "providerId": scenario.provider_id})
        pool = {"name": "p", "type": "ip", "propertyType": "string", "generatorType": "subnet"}
        scenario.provider.post(
            "/service-pools", {**pool, "generatorConfig": {"cidr": "10.0.0.0/16"}, "servicePoolSetId": pool_set["id"]}
        )
        self.kind = scenario.service_type(SCHEMA, LIFECYCLE)
        _ = scenario.consumer
        body = {"name": "g", "consumerId": scenario.consumer_id}
        self.groups = [scenario.admin.post("/service-groups", body)["id"] for _ in range(ORDER_THREADS)]
        self.agents = [self._new_agent(pool_set["id"], number) for number in range(AGENTS + 1)]
        # Gets no orders of the load: waits for the wake-ups that the test sends.
        self.idle_agent = self.agents.pop()
        self.probes = {name: Probe() for name in urls}
        # Acknowledged: service → address.
        self.ordered: dict[str, str] = {}
        self.unexpected: list[str] = []
        self.statuses: dict[int, int] = {}
        # The last answer of each server, if it was a refusal.
        self.refusals: dict[str, Any] = {}
        self._stop = threading.Event()

    def _new_agent(self, pool_set_id: str, number: int) -> Agent:
        made = self.scenario.new_agent(servicePoolSetId=pool_set_id)
        token = self.scenario.token("agent", made["id"]).token
        assert token is not None
        record = self.folder / f"agent-{number}.record"
        record.touch()
        return Agent(made["id"], token, record)

    def start_agent(self, agent: Agent) -> None:
        program = [sys.executable, str(Path(__file__).with_name("simulated_agent.py"))]
        agent.process = subprocess.Popen(
            ["setpriv", "--pdeathsig", "KILL", *program, str(agent.record), *self.urls.values()],
            env={**os.environ, "AGENT_TOKEN": agent.token},
        )

    def kill_agent(self, agent: Agent) -> None:
        if agent.process is not None:
            agent.process.kill()
            agent.process.wait(timeout=30)
            agent.process = None

    @contextmanager
    def running(self) -> Iterator[None]:
        threads = [threading.Thread(target=self._order, args=(number,)) for number in range(ORDER_THREADS)]
        threads += [threading.Thread(target=self._probe, args=(name,)) for name in self.urls]
        for agent in self.agents:
            self.start_agent(agent)
        for thread in threads:
            thread.start()
        try:
            yield
        finally:
            self._stop.set()
            for thread in threads:
                thread.join(timeout=120)

    def stop_agents(self) -> None:
        for agent in self.agents:
            self.kill_agent(agent)

    def _send(self, client: Client, path: str, body: object, key: str | None = None) -> Reply | None:
        """None: try again. Other answers than success, 503 with Retry-After and a lost connection are recorded."""
        try:
            reply = client.call("POST", f"/api/v1{path}", body, headers={"Idempotency-Key": key} if key else None)
        except urllib3.exceptions.HTTPError:
            return None
        self.statuses[reply.status] = self.statuses.get(reply.status, 0) + 1
        self.refusals[client.url] = reply.body if reply.status != 201 else None
        if reply.status == 201:
            return reply
        if reply.status != 503 or "Retry-After" not in reply.headers:
            self.unexpected.append(f"{reply.status} {path} {reply.body}")
        return None

    def _order(self, number: int) -> None:
        clients = [Client(url, self.scenario.consumer.token) for url in self.urls.values()]
        turn = number
        while not self._stop.is_set():
            agent = self.agents[turn % AGENTS]
            body = self.order_body(agent, self.groups[number])
            key = uuid4().hex
            while (reply := self._send(clients[turn % len(clients)], "/services", body, key)) is None:
                # The same order with the same key, on the other server.
                turn += 1
                time.sleep(0.2)
                if self._stop.is_set():
                    return
            self.ordered[reply.body["id"]] = reply.body["properties"]["ip"]
            turn += 1
            time.sleep(ORDER_PAUSE_SECONDS)

    def order_until_acknowledged(self, url: str, agent: Agent, seconds: float) -> str:
        """Orders a service on one server, again after a 503; returns its job."""
        client, key = Client(url, self.scenario.consumer.token), uuid4().hex
        body = self.order_body(agent, self.groups[0])
        until = time.monotonic() + seconds
        while (reply := self._send(client, "/services", body, key)) is None:
            assert time.monotonic() < until, f"{url} acknowledges no order: {self.refusals.get(url)}"
            time.sleep(0.1)
        return str(reply.body["activeJob"]["id"])

    def order_body(self, agent: Agent, group_id: str) -> dict[str, Any]:
        return {
            "serviceTypeId": self.kind["id"],
            "name": f"s-{uuid4().hex}",
            "groupId": group_id,
            "agentId": agent.id,
        }

    def _probe(self, name: str) -> None:
        client = Client(self.urls[name], self.scenario.admin.token)
        while not self._stop.is_set():
            sent = time.monotonic()
            reply = self._send(client, "/participants", {"name": f"probe-{uuid4().hex}"})
            if reply is not None:
                self.probes[name].answers.append((sent, time.monotonic()))
                self.probes[name].participants.append(reply.body["id"])
            time.sleep(PROBE_PAUSE_SECONDS)

    def wait_for_answers_after(self, moment: float, seconds: float, explain: Callable[[], str] = str) -> None:
        """Waits until each server has acknowledged a write that was sent after the moment."""

        def silent() -> list[str]:
            return [name for name, probe in self.probes.items() if probe.first_answer_after(moment) is None]

        wait_until(
            lambda: not silent(),
            seconds,
            lambda: (
                f"{silent()} acknowledge no writes; last answers {self.refusals}, statuses {self.statuses},"
                f" unexpected {self.unexpected[:5]}\n{explain()}"
            ),
        )

    def _records(self) -> list[str]:
        agents = (*self.agents, self.idle_agent)
        return [line for agent in agents for line in agent.record.read_text().splitlines()]

    def completed(self) -> set[str]:
        """Jobs whose completion was acknowledged to an agent."""
        return {line.removeprefix("completed ") for line in self._records() if line.startswith("completed ")}

    def complaints(self) -> list[str]:
        """Answers that a client or an agent must not get."""
        return [*self.unexpected, *(line for line in self._records() if line.startswith("unexpected "))]


def wait_until(reached: Callable[[], bool], seconds: float, why: Callable[[], str]) -> None:
    until = time.monotonic() + seconds
    while not reached():
        assert time.monotonic() < until, why()
        time.sleep(0.05)
