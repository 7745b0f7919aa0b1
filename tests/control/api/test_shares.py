"""No body, batch, sign-in or agent buys more than its share: what limits admit is counted as cost, not as requests."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path

import pytest

from browser_session import WebSession
from control_plane import Client, Server, running
from mainstay.control.access import Caller, Role
from mainstay.control.api.bodies import MAX_SEPARATORS, PARSED_ON_LOOP_BYTES, DecodedBody
from mainstay.control.api.contract import Call, Dependencies, Readiness
from mainstay.control.api.endpoints.events import ENDPOINTS
from mainstay.control.api.errors import HttpRefusal
from mainstay.control.api.limits import BYTES_PER_REQUEST, FailedAttempts, RequestLimits
from mainstay.control.api.long_poll import MAX_SHARED_LONG_POLLS, LongPollSlots
from mainstay.control.api.prometheus import ServerMetrics
from mainstay.control.operations.machinery.definitions import Definitions
from mainstay.control.operations.machinery.unit_of_work import OperationTools
from mainstay.control.rulebook import installed_rulebook
from mainstay.control.settings import ServerSettings
from mainstay.control.store.engine.contract import Transaction
from mainstay.control.store.engine.sqlite import SqliteStore
from scenario import Scenario

RATE = 50
BURST = 200
PARTICIPANT = Caller(Role.PARTICIPANT, "t", participant_id="p")


def agent(number: int, participant: str = "p") -> Caller:
    return Caller(Role.AGENT, f"t{number}", participant_id=participant, agent_id=f"a{number}")


def admitted(admit: Callable[[int], object], attempts: int) -> tuple[int, float]:
    """How many attempts are admitted at once, and the seconds that they took: the buckets fill meanwhile."""
    began, count = time.monotonic(), 0
    for number in range(attempts):
        try:
            admit(number)
            count += 1
        except HttpRefusal as refusal:
            if refusal.code != "rate_limited":
                raise
    return count, time.monotonic() - began


def test_a_body_costs_a_request_for_every_16_kilobytes() -> None:
    limits = RequestLimits(RATE)

    def send(_number: int) -> None:
        limits.admit(PARTICIPANT)
        limits.admit_body(PARTICIPANT, 20 * BYTES_PER_REQUEST)

    count, seconds = admitted(send, 100)
    # The last one is admitted with what is left.
    assert count - 1 <= (BURST + RATE * seconds) / 21 <= count + 1


def test_agents_of_a_participant_share_what_ten_of_them_may_do() -> None:
    limits = RequestLimits(RATE)
    count, seconds = admitted(lambda number: limits.admit(agent(number % 100)), 5000)
    assert 20 * RATE <= count <= 20 * RATE + 10 * RATE * seconds + 1
    # The participant itself and the agents of another one are not affected.
    limits.admit(PARTICIPANT)
    limits.admit(agent(0, "other"))


def test_agents_of_a_participant_share_a_thousand_long_polls() -> None:
    slots = LongPollSlots()
    taken = [slots.taken(agent(number % 20)) for number in range(MAX_SHARED_LONG_POLLS)]
    for each in taken:
        each.__enter__()
    with pytest.raises(HttpRefusal, match="the agents of your participant already have 1000 waiting requests"):
        slots.refuse_if_full(agent(99))
    slots.refuse_if_full(PARTICIPANT)
    slots.refuse_if_full(agent(99, "other"))
    for each in taken:
        each.__exit__(None, None, None)
    slots.refuse_if_full(agent(99))


@pytest.fixture(scope="module")
def limited(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with running(tmp_path_factory.mktemp("shares") / "data", environment={"MAINSTAY_RATE_LIMIT": "2"}) as server:
        yield server


def large(size: int) -> bytes:
    return b'{"name": "' + b"x" * size + b'"}'


def test_large_bodies_use_up_the_share_of_their_sender_only(limited: Server) -> None:
    scenario = Scenario(limited.admin)
    group = "/api/v1/service-groups"
    replies = [scenario.consumer.call("POST", group, raw=large(4_000_000)) for _ in range(2)]
    assert [reply.status for reply in replies] == [400, 429]
    assert scenario.consumer.call("GET", group).status == 429
    assert scenario.provider.call("GET", "/api/v1/agents").status == 200
    assert [limited.admin.call("POST", group, raw=large(4_000_000)).status for _ in range(5)] == [400] * 5


def test_sign_ins_with_a_right_token_are_admitted_like_requests(limited: Server) -> None:
    scenario = Scenario(limited.admin)

    def sign_in() -> int:
        browser = WebSession(limited.url)
        form = browser.get("/signin")
        return browser.post("/signin", {"token": str(scenario.consumer.token)}, csrf=form.csrf, expect=None).status

    assert sign_in() == 303
    # Costs the share of two minutes.
    scenario.consumer.call("POST", "/api/v1/service-groups", raw=large(4_000_000))
    assert sign_in() == 429


def test_a_large_body_is_decoded_before_it_is_read_with_the_same_refusals(limited: Server) -> None:
    padding = b" " * (PARSED_ON_LOOP_BYTES + 1)
    admin: Client = limited.admin
    for raw, code in (
        (b'{"name": "a", "name": "b"}', "duplicate_key"),
        (b'{"name": "a", "colour": {"\\u003a": 1, "\\u003a": 2}}', "duplicate_key"),
        (b'{"name": ', "invalid_json"),
        (b'{"name": ' + b"[" * 100 + b"]" * 100 + b"}", "too_deep"),
        (b'{"nome": "a"}', "invalid_body"),
    ):
        for body in (raw, padding + raw):
            reply = admin.call("POST", "/api/v1/participants", raw=body)
            assert (reply.status, reply.body["code"]) == (400, code), raw
    # A refused row comes before a refused body, as with small ones.
    missing = "/api/v1/services/00000000-0000-0000-0000-000000000000"
    assert admin.call("PATCH", missing, raw=padding + b"{").status == 404
    assert admin.call("POST", "/api/v1/participants", raw=padding).status == 400


def test_colons_in_texts_of_large_bodies_are_no_duplicate_keys() -> None:
    for text in (b"a\\u003ab", b"a:b", b"\\u003a\\u003A", b'\\":\\"'):
        raw = b'{"' + text + b'": "' + text + b'", "b": ["' + text * 20_000 + b'"]}'
        assert DecodedBody.of(raw, PARTICIPANT).fault is None, text


def test_a_body_of_very_many_values_is_refused_before_it_is_decoded() -> None:
    lists = b'{"a":[' + b"[]," * (MAX_SEPARATORS + 1) + b"0]}"
    for caller in (PARTICIPANT, agent(1), None):
        fault = DecodedBody.of(lists, caller).fault
        assert fault is not None
        assert fault.code == "too_many_values"
    assert DecodedBody.of(lists, Caller(Role.ADMIN, "t")).fault is None
    # Commas of texts do not count, and a report of an agent is as long as it must be.
    assert DecodedBody.of(b'{"a":"' + b"," * (2 * MAX_SEPARATORS) + b'"}', PARTICIPANT).fault is None
    members = b",".join(b'"resource%06d":"changed"' % number for number in range(MAX_SEPARATORS))
    assert DecodedBody.of(b"{" + members + b"}", agent(1)).fault is None


class CountingStore(SqliteStore):
    """Counts the snapshots that are read."""

    reads = 0

    @asynccontextmanager
    async def reading(self) -> AsyncIterator[Transaction]:
        self.reads += 1
        async with super().reading() as tx:
            yield tx


async def _record(store: SqliteStore, participant_id: str) -> None:
    async with store.transaction() as tx:
        await tx.execute(
            "INSERT INTO events (id, created_at, updated_at, type, initiator_type, initiator_id, entity_id, properties,"
            " participant_id, ordinal) VALUES (lower(hex(randomblob(16))), 1, 1, 'token.updated', 'system', 's', 'e',"
            " '{}', :id, 1)",
            id=participant_id,
        )
        tx.announce("events")


def test_event_streams_are_fed_by_one_reader_and_share_their_queries(tmp_path: Path) -> None:
    (endpoint,) = [each for each in ENDPOINTS if each.path.endswith("/stream")]
    count = 50

    async def follow(dependencies: Dependencies, received: list[bytes]) -> None:
        caller = Caller(Role.PARTICIPANT, "t", participant_id="p", token_hash="h")
        answer = await endpoint.act(Call(dependencies, {}, [], {}, b"", caller, ""))
        assert answer.stream is not None
        async for piece in answer.stream:
            received.append(piece)

    async def main() -> None:
        store = CountingStore(tmp_path / "store.db")
        await store.migrate()
        dependencies = Dependencies(
            store,
            ServerSettings(),
            OperationTools(Definitions(installed_rulebook())),
            lambda: datetime.now(UTC),
            ServerMetrics(),
            RequestLimits(0),
            FailedAttempts("codes"),
            FailedAttempts("tokens"),
            Readiness(),
        )
        received: list[list[bytes]] = [[] for _ in range(count)]
        streams = [asyncio.create_task(follow(dependencies, each)) for each in received]
        hub = dependencies.live

        async def until(condition: Callable[[], bool]) -> None:
            async with asyncio.timeout(20):
                while not condition():
                    await asyncio.sleep(0.01)

        await until(lambda: all(received) and hub.ready.is_set())
        before = store.reads
        for number in range(1, 4):
            await _record(store, "another")
            await until(lambda number=number: hub.newest == number)  # type: ignore[misc]
        # One for each event, by the reader.
        assert store.reads - before <= 6
        before = store.reads
        # The token does not exist, so the streams end instead of handing out the event that they have read.
        await _record(store, "p")
        await until(lambda: all(stream.done() for stream in streams))
        assert store.reads - before <= 4
        await store.close()

    asyncio.run(main())
