"""The live stream of the pages: what changed, for the browsers that may know, without gaps."""

from __future__ import annotations

import asyncio
import json
import re
import time
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

import seed_text
from browser_session import WebSession, signed_in
from control_plane import Client, Cluster, Server, running
from mainstay.control.access import Caller, Role
from mainstay.control.api import live_hub as live
from mainstay.control.api.live_hub import LiveHub
from mainstay.control.store.engine.sqlite import SqliteStore
from scenario import Scenario, unique

SIMPLE: Any = seed_text.block("Example 1: Simple VM Lifecycle")


@dataclass
class Browser:
    """Reads a live stream like a page."""

    session: WebSession
    last: str = ""
    events: list[tuple[str, Any]] = field(default_factory=list)
    text: bytes = b""

    def __post_init__(self) -> None:
        self.connect()

    def connect(self) -> None:
        headers = {"Last_Event_ID": self.last} if self.last else {}
        self.reply = self.session.open_stream("/live", **headers)
        assert self.reply.status == 200
        self.text = b""
        self.read_until(lambda: bool(self.last))

    def read_until(self, found: Callable[[], bool]) -> None:
        """Reads messages until the condition holds, or the server closes the stream."""
        while not found():
            piece = self.reply.read1(65536)
            if not piece:
                return
            self.text += piece
            *messages, self.text = self.text.split(b"\n\n")
            for message in messages:
                self._receive(message.decode())

    def _receive(self, message: str) -> None:
        fields = dict(line.split(": ", 1) for line in message.splitlines() if not line.startswith(":"))
        self.last = fields.get("id", self.last)
        if "event" in fields:
            self.events.append((fields["event"], json.loads(fields["data"])))

    def types_of(self, entity: str) -> list[str]:
        return [data["type"] for _, data in self.events if data.get("entity") == entity]

    def wait_for(self, entity: str, kind: str) -> Any:
        self.read_until(lambda: kind in self.types_of(entity))
        return next(data for _, data in self.events if data.get("entity") == entity and data["type"] == kind)


def signed_in_as(client: Client) -> WebSession:
    return signed_in(client.url, str(client.token))


def test_a_change_reaches_an_open_stream_without_its_content(scenario: Scenario) -> None:
    browser = Browser(signed_in_as(scenario.admin))
    assert browser.reply.headers["content-type"].startswith("text/event-stream")
    made = scenario.admin.post("/participants", {"name": unique("canary")})["id"]
    assert browser.wait_for(made, "participant.created") == {"type": "participant.created", "entity": made}
    assert int(browser.last) > 0


def test_a_message_about_a_job_names_its_service_and_agent(scenario: Scenario) -> None:
    browser = Browser(signed_in_as(scenario.consumer))
    service = scenario.order(scenario.service_type(None, SIMPLE))
    scenario.complete(service)
    (job,) = scenario.jobs(service)
    assert browser.wait_for(job["id"], "job.completed") == {
        "type": "job.completed",
        "entity": job["id"],
        "agent": scenario.agent_id,
        "service": service["id"],
    }


def test_a_stream_contains_only_changes_that_the_caller_may_read(scenario: Scenario) -> None:
    stranger_id = scenario.participant("stranger")
    stranger = scenario.token("participant", stranger_id)
    browser, foreign = Browser(signed_in_as(scenario.consumer)), Browser(signed_in_as(stranger))
    start = foreign.last
    service = scenario.order(scenario.service_type(None, SIMPLE))
    scenario.admin.patch(f"/participants/{scenario.provider_id}", {"name": unique("renamed")})
    group = stranger.post("/service-groups", {"name": unique("own"), "consumerId": stranger_id})["id"]
    browser.wait_for(service["id"], "service.created")
    foreign.wait_for(group, "service_group.created")
    assert browser.types_of(scenario.provider_id) == []
    # Its own participant and token too, if their events were not numbered yet when the stream began.
    readable = {event["entityId"] for event in stranger.get("/events?pageSize=100")["items"]}
    assert readable.isdisjoint({service["id"], scenario.provider_id, scenario.consumer_id})
    assert {data["entity"] for _, data in foreign.events} <= readable
    # The same rule holds for what is read from the database.
    for last in ("0", start):
        late = Browser(foreign.session, last=last)
        late.wait_for(group, "service_group.created")
        assert {data["entity"] for _, data in late.events} <= readable


def test_a_browser_that_connects_again_misses_nothing(scenario: Scenario) -> None:
    browser = Browser(signed_in_as(scenario.admin))
    browser.reply.close()
    made = [scenario.admin.post("/participants", {"name": unique("missed")})["id"] for _ in range(5)]
    browser.connect()
    browser.wait_for(made[-1], "participant.created")
    assert [data["entity"] for _, data in browser.events if data["entity"] in made] == made


def test_a_page_names_the_event_after_which_its_stream_starts(scenario: Scenario) -> None:
    session = signed_in_as(scenario.admin)
    page = session.get("/services").text
    after = page.split('data-live-after="')[1].split('"')[0]
    made = scenario.admin.post("/participants", {"name": unique("between")})["id"]
    browser = Browser(session, last=after)
    browser.wait_for(made, "participant.created")


def test_several_regions_are_one_request(server: Server) -> None:
    session = signed_in(server.url, str(server.admin.token))
    regions = re.findall(r'data-region="(\w+)"', session.get("/").text)
    assert len(regions) > 1
    text = session.get(f"/?fragment={','.join(regions)}").text
    assert text.count("<template>") == len(regions)
    assert "<html" not in text
    session.get(f"/?fragment={regions[0]},nothing", expect=404)
    session.get("/?fragment=content,", expect=404)


def test_a_position_of_another_history_refreshes_the_page(server: Server) -> None:
    browser = Browser(signed_in(server.url, str(server.admin.token)), last=str(10**12))
    browser.read_until(lambda: bool(browser.events))
    assert browser.events[0][0] == "reset"
    assert int(browser.last) < 10**12


def test_a_stream_reports_the_end_of_its_session_and_closes(server: Server, scenario: Scenario) -> None:
    token = scenario.admin.post(
        "/tokens", {"name": unique("t"), "role": "participant", "scopeId": scenario.consumer_id}
    )
    by_token, signed_out = (Browser(signed_in(server.url, token["value"])) for _ in range(2))
    kept = Browser(signed_in_as(scenario.consumer))
    signed_out.session.post("/signout", {}, csrf=signed_out.session.csrf)
    started = time.monotonic()
    signed_out.read_until(lambda: False)
    assert signed_out.events[-1][0] == "ended"
    scenario.admin.delete(f"/tokens/{token['id']}")
    by_token.read_until(lambda: False)
    assert by_token.events[-1][0] == "ended"
    assert time.monotonic() - started < 10
    assert by_token.session.open_stream("/live", X_Mainstay_Live="1").status == 401
    scenario.admin.patch(f"/participants/{scenario.consumer_id}", {"name": unique("still")})
    kept.wait_for(scenario.consumer_id, "participant.updated")


def test_a_stream_needs_a_session_and_a_valid_position(server: Server) -> None:
    assert WebSession(server.url).open_stream("/live").status == 303
    assert WebSession(server.url).open_stream("/live", X_Mainstay_Live="1").status == 401
    session = signed_in(server.url, str(server.admin.token))
    for wrong in ("x", "-1", "1e3", "9" * 40):
        assert session.open_stream("/live", Last_Event_ID=wrong).status == 400


def test_a_commit_by_one_replica_reaches_streams_of_the_other(postgresql: Cluster, tmp_path: Path) -> None:
    url = postgresql.new_database()
    with running(tmp_path / "a", database_url=url) as one, running(tmp_path / "b", database_url=url) as two:
        browser = Browser(signed_in(two.url, str(one.admin.token)))
        started = time.monotonic()
        made = one.admin.post("/participants", {"name": "elsewhere"})["id"]
        browser.wait_for(made, "participant.created")
        assert time.monotonic() - started < 2


def in_a_hub(tmp_path: Path, act: Callable[[SqliteStore, LiveHub], Coroutine[Any, Any, None]]) -> None:
    async def main() -> None:
        store = SqliteStore(tmp_path / "store.db")
        await store.migrate()
        try:
            await act(store, LiveHub(store, asyncio.Event()))
        finally:
            await store.close()

    asyncio.run(main())


async def record(store: SqliteStore, count: int, owner: str = "p") -> None:
    async with store.transaction() as tx:
        await tx.execute(
            "WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < :count)"
            " INSERT INTO events (id, created_at, updated_at, type, initiator_type, initiator_id, entity_id, properties,"
            " participant_id, ordinal) SELECT lower(hex(randomblob(16))), 1, 1, 'token.updated', 'system', 's', 'e' || i,"
            " '{}', :owner, i FROM n",
            count=count,
            owner=owner,
        )
        tx.announce("events")


ADMIN = Caller(Role.ADMIN, "t")
OWNER = Caller(Role.PARTICIPANT, "t", participant_id="p")
OTHER = Caller(Role.PARTICIPANT, "t", participant_id="q")


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(10):
        while not condition():
            await asyncio.sleep(0.01)


def test_a_slow_reader_is_dropped_and_the_others_go_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live, "MAX_WAITING", 20)

    async def act(store: SqliteStore, hub: LiveHub) -> None:
        with hub.attached(ADMIN) as slow, hub.attached(OTHER) as other:
            await hub.ready.wait()
            await record(store, 15)
            await until(lambda: hub.newest == 15)
            assert not slow.lags
            await record(store, 15)
            await until(lambda: slow.lags)
            await record(store, 1, owner="q")
            await until(other.changed.is_set)
            assert slow.take() == b""
            assert other.take().count(b"event: change") == 1

    in_a_hub(tmp_path, act)


def test_a_short_absence_is_answered_from_memory_a_longer_one_from_the_database(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(live, "RECENT", 10)
    monkeypatch.setattr(live, "MAX_CATCH_UP", 40)

    async def act(store: SqliteStore, hub: LiveHub) -> None:
        with hub.attached(OWNER) as stream, hub.attached(OTHER) as other:
            await hub.ready.wait()
            await record(store, 30)
            await until(lambda: hub.newest == 30)
            for after in range(31):
                found = await hub.catch_up(stream, after)
                assert found.count(b"event: change") == 30 - after, after
                assert found.endswith(b"id: 30\n\n")
            assert b"event: change" not in await hub.catch_up(other, 0)
            assert b"event: change" not in await hub.catch_up(other, 25)
            await record(store, 30)
            await until(lambda: hub.newest == 60)
            assert (await hub.catch_up(stream, 0)).startswith(live.RESET)
            # The numbers of a database that was restored from a backup.
            assert (await hub.catch_up(stream, 61)).startswith(live.RESET)

    in_a_hub(tmp_path, act)


def test_a_hub_without_streams_reads_nothing(tmp_path: Path) -> None:
    async def act(store: SqliteStore, hub: LiveHub) -> None:
        with hub.attached(ADMIN):
            await hub.ready.wait()
        await record(store, 3)
        await asyncio.sleep(0.5)
        async with store.reading() as tx:
            assert await tx.fetch("SELECT 1 AS found FROM events WHERE sequence_number IS NOT NULL") == []
        with hub.attached(ADMIN) as stream:
            await hub.ready.wait()
            assert (await hub.catch_up(stream, 0)).count(b"event: change") == 3

    in_a_hub(tmp_path, act)
