"""Callers that are revoked, expired or disabled lose open event streams and long polls within five seconds."""

from __future__ import annotations

import asyncio
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

import seed_text
from control_plane import Client
from mainstay.control.access import Caller, Role
from mainstay.control.api.open_connections import OpenConnections
from mainstay.control.store.engine.contract import Transaction
from mainstay.control.store.engine.sqlite import SqliteStore
from scenario import Scenario, unique

SIMPLE: Any = seed_text.block("Example 1: Simple VM Lifecycle")
SECONDS = 5.0


class Target:
    """A caller with a token of its own."""

    def __init__(self, scenario: Scenario, role: str) -> None:
        self.scenario = scenario
        self.admin = scenario.admin
        self.participant_id = scenario.participant()
        self.agent_id = ""
        scope = self.participant_id
        if role == "agent":
            scope = self.agent_id = scenario.new_agent(providerId=self.participant_id)["id"]
        self.token = self.admin.post("/tokens", {"name": unique("t"), "role": role, "scopeId": scope})
        self.client = self.admin.as_token(self.token["value"])

    def delete(self) -> None:
        self.admin.delete(f"/tokens/{self.token['id']}")

    def regenerate(self) -> None:
        self.admin.post(f"/tokens/{self.token['id']}/regenerate", expect=200)

    def expire(self) -> None:
        soon = datetime.now(UTC) + timedelta(seconds=0.5)
        self.admin.patch(f"/tokens/{self.token['id']}", {"expireAt": soon.isoformat()})
        time.sleep(0.5)

    def disable_participant(self) -> None:
        self.admin.patch(f"/participants/{self.participant_id}", {"status": "Disabled"})

    def disable_agent(self) -> None:
        self.admin.patch(f"/agents/{self.agent_id}", {"status": "Disabled"})


END_PARTICIPANT = [Target.delete, Target.regenerate, Target.expire, Target.disable_participant]
END_AGENT = [*END_PARTICIPANT, Target.disable_agent]


def time_of_close(client: Client, ready: threading.Event) -> float:
    """Reads an event stream until the server closes it."""
    stream = client.open_stream("/api/v1/events/stream")
    for _ in stream.stream(1024):
        ready.set()
    return time.monotonic()


@pytest.mark.parametrize("busy", [False, True], ids=["quiet", "while events flow"])
def test_a_stream_closes_soon_after_its_token_ends(scenario: Scenario, busy: bool) -> None:
    targets = [Target(scenario, "participant") for _ in END_PARTICIPANT]
    control = Target(scenario, "participant")
    opened = [threading.Event() for _ in (*targets, control)]
    stop = threading.Event()

    def make_events() -> None:
        number = 0
        while busy and not stop.is_set():
            number += 1
            for each in (*targets, control):
                scenario.admin.patch(f"/participants/{each.participant_id}", {"name": f"n{number}"})

    with ThreadPoolExecutor(len(opened) + 1) as threads:
        noise = threads.submit(make_events)
        streams = [
            threads.submit(time_of_close, each.client, ready)
            for each, ready in zip((*targets, control), opened, strict=True)
        ]
        for ready in opened:
            assert ready.wait(10)
        try:
            for end, target in zip(END_PARTICIPANT, targets, strict=True):
                end(target)
            ended = time.monotonic()
            for end, stream in zip(END_PARTICIPANT, streams[:-1], strict=True):
                assert stream.result(timeout=30) - ended < SECONDS, end.__name__
            assert not streams[-1].done(), "a valid token keeps its stream"
            control.delete()
        finally:
            stop.set()
        noise.result(timeout=30)


def test_a_long_poll_is_refused_soon_after_its_token_ends(scenario: Scenario) -> None:
    targets = [Target(scenario, "agent") for _ in END_AGENT]

    def poll(target: Target) -> tuple[int, float]:
        reply = target.client.call("GET", "/api/v1/jobs/pending?wait=30")
        return reply.status, time.monotonic()

    with ThreadPoolExecutor(len(targets)) as threads:
        polls = [threads.submit(poll, target) for target in targets]
        time.sleep(1)
        for end, target in zip(END_AGENT, targets, strict=True):
            end(target)
        ended = time.monotonic()
        replies = [each.result(timeout=60) for each in polls]
    assert [status for status, _ in replies] == [401, 401, 401, 403, 403]
    assert max(at for _, at in replies) - ended < SECONDS


def test_a_revoked_caller_gets_nothing_that_it_waits_for(scenario: Scenario) -> None:
    """Although the pass over the open connections, every two seconds, has not seen it yet."""
    tokens = [
        scenario.admin.post("/tokens", {"name": unique("t"), "role": "agent", "scopeId": scenario.agent_id})
        for _ in range(6)
    ]
    clients = [scenario.admin.as_token(each["value"]) for each in tokens]
    participant = Target(scenario, "participant")
    ready = threading.Event()
    seen: list[bytes] = []

    def read_stream() -> None:
        for piece in participant.client.open_stream("/api/v1/events/stream").stream(1024):
            ready.set()
            seen.append(piece)

    with ThreadPoolExecutor(len(clients) + 1) as threads:
        polls = [threads.submit(each.call, "GET", "/api/v1/jobs/pending?wait=30") for each in clients]
        stream = threads.submit(read_stream)
        assert ready.wait(10)
        # Until all of them wait.
        time.sleep(1)
        for each in tokens[1:]:
            scenario.admin.delete(f"/tokens/{each['id']}")
        participant.delete()
        scenario.admin.patch(f"/participants/{participant.participant_id}", {"name": unique("after")})
        scenario.order(scenario.service_type(None, SIMPLE))
        assert [each.result(timeout=30).status for each in polls] == [200, 401, 401, 401, 401, 401]
        stream.result(timeout=30)
    assert b"participant.updated" not in b"".join(seen)


def test_a_waiting_plan_is_refused_soon_after_its_token_ends(scenario: Scenario) -> None:
    target = Target(scenario, "participant")
    kind = scenario.service_type(None, SIMPLE)
    body = {"serviceTypeId": kind["id"], "name": "x", "agentId": scenario.agent_id}
    # An agent that is known to answer plans is waited for.
    scenario.agent.get("/plans/pending")
    with ThreadPoolExecutor(1) as threads:
        plan = threads.submit(target.client.call, "POST", "/api/v1/services?plan=true&planWait=20", body)
        time.sleep(1)
        target.delete()
        ended = time.monotonic()
        reply = plan.result(timeout=60)
    assert reply.status == 401, reply.body
    assert time.monotonic() - ended < SECONDS


class CountingStore(SqliteStore):
    queries = 0

    def autocommit(self) -> Any:
        self.queries += 1
        return super().autocommit()


def test_one_query_checks_all_open_connections(tmp_path: Path) -> None:
    async def main() -> None:
        connections = OpenConnections()
        store = CountingStore(tmp_path / "store.db")
        await store.migrate()
        await connections.end_refused(store, datetime.now(UTC))
        assert store.queries == 0
        async with store.transaction() as tx:
            await insert_token(tx, "known")
        callers = [Caller(Role.ADMIN, "t", token_hash=name) for name in ("known", "gone")]
        with connections.opened(callers[0]) as kept:
            lost = [connections.opened(callers[1]) for _ in range(2000)]
            entered = [each.__enter__() for each in lost]
            await connections.end_refused(store, datetime.now(UTC))
            assert store.queries == 1
            assert not kept.ended.is_set()
            assert all(each.ended.is_set() for each in entered)
            for each in lost:
                each.__exit__(None, None, None)
        await connections.end_refused(store, datetime.now(UTC))
        assert store.queries == 1
        await store.close()

    asyncio.run(main())


async def insert_token(tx: Transaction, name: str) -> None:
    await tx.execute(
        "INSERT INTO tokens (id, created_at, updated_at, name, name_folded, role, hash)"
        " VALUES (:name, 0, 0, :name, :name, 'admin', :name)",
        name=name,
    )
