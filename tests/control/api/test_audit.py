"""The audit trail: every event names its initiator and the old values, and a changed event breaks the chain."""

from __future__ import annotations

import asyncio
import hashlib
import json
import shutil
import sqlite3
import time
from collections.abc import Callable
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from control_plane import Client, Server, running, wait_until_hashed
from fork_server import run_program
from mainstay.control.domain.retention import RetentionPeriods
from mainstay.control.operations.machinery.definitions import Definitions
from mainstay.control.operations.machinery.unit_of_work import OperationTools, UnitOfWork
from mainstay.control.operations.retention import delete_expired
from mainstay.control.rulebook import installed_rulebook
from mainstay.control.store.engine.open import open_store
from scenario import Scenario, unique


def events_of(client: Client, entity_id: str) -> list[Any]:
    found: list[Any] = client.get("/events", query={"entityId": entity_id, "sort": "sequenceNumber"})["items"]
    return found


def test_events_name_the_role_and_name_of_the_initiator(scenario: Scenario) -> None:
    service = scenario.order(scenario.service_type())
    scenario.complete(service)
    job = scenario.jobs(service)[0]
    by_type = {event["type"]: event for event in events_of(scenario.admin, job["id"])}
    assert by_type["job.created"]["initiatorRole"] == "participant"
    assert by_type["job.created"]["initiatorName"].startswith("consumer-")
    assert by_type["job.completed"]["initiatorRole"] == "agent"
    assert by_type["job.completed"]["initiatorName"].startswith("agent")
    made = scenario.admin.post("/participants", {"name": unique("x")})
    (event,) = events_of(scenario.admin, made["id"])
    assert (event["initiatorRole"], event["initiatorType"]) == ("admin", "user")
    assert event["initiatorName"]


def test_the_name_of_the_initiator_is_shown_to_its_own_participant_only(scenario: Scenario) -> None:
    service = scenario.order(scenario.service_type())
    scenario.complete(service)
    job = scenario.jobs(service)[0]
    seen = {
        who: {event["type"]: event.get("initiatorName") for event in events_of(client, job["id"])}
        for who, client in (("consumer", scenario.consumer), ("provider", scenario.provider))
    }
    assert seen["consumer"]["job.created"]
    assert seen["consumer"]["job.completed"] is None
    assert seen["provider"]["job.created"] is None
    assert seen["provider"]["job.completed"]
    for name in ("initiatorName", "initiatorParticipantId"):
        scenario.consumer.get("/events", query={name: "x"}, expect=400)
        scenario.consumer.get("/events", query={"sort": name}, expect=400)


def test_a_diff_tests_the_old_value_before_it_is_replaced_or_removed(scenario: Scenario) -> None:
    before, after = unique("before"), unique("after")
    made = scenario.admin.post("/participants", {"name": before})
    scenario.admin.patch(f"/participants/{made['id']}", {"name": after})
    scenario.admin.delete(f"/participants/{made['id']}")
    _, updated, deleted = events_of(scenario.admin, made["id"])
    change = [each for each in updated["properties"]["diff"] if each["path"] == "/name"]
    assert change == [
        {"op": "test", "path": "/name", "value": before},
        {"op": "replace", "path": "/name", "value": after},
    ]
    change = [each for each in deleted["properties"]["diff"] if each["path"] == "/name"]
    assert change == [{"op": "test", "path": "/name", "value": after}, {"op": "remove", "path": "/name"}]


HASHED = (
    "id sequenceNumber type initiatorType initiatorId initiatorRole entityId properties providerId consumerId agentId"
    " participantId createdAt chainVersion initiatorName initiatorParticipantId"
)


def chained(client: Client, entity_id: str) -> list[tuple[Any, str]]:
    """The events of the entity, once they are hashed, each with the hash of the event before it."""
    until = time.monotonic() + 10
    while any(event["hash"] is None for event in events_of(client, entity_id)):
        assert time.monotonic() < until, "events are hashed within a second"
        time.sleep(0.1)
    found = []
    for event in events_of(client, entity_id):
        (previous,) = client.get("/events", query={"sequenceNumber": event["sequenceNumber"] - 1})["items"]
        found.append((event, previous["hash"]))
    return found


def sorted_json(event: Any) -> str:
    """Independent of the product's own code; the canonical form of plain values."""
    members = {name: event[name] for name in HASHED.split() if event.get(name) is not None}
    return json.dumps(members, sort_keys=True, separators=(",", ":"), ensure_ascii=False)


def test_the_hash_of_an_event_is_computed_from_the_documented_members(scenario: Scenario) -> None:
    made = [scenario.admin.post("/participants", {"name": f"p{number}"})["id"] for number in range(2)]
    ((event, previous),) = chained(scenario.admin, made[1])
    assert event["chainVersion"] == 2
    assert event["hash"] == hashlib.sha256((previous + sorted_json(event)).encode()).hexdigest()


@pytest.mark.parametrize(
    ("sent", "canonical"),
    [
        ("[1.0,-0.0,-0,1e21,1E20,0.1,1e-7,5e-324,100]", "[1,0,0,1e+21,100000000000000000000,0.1,1e-7,5e-324,100]"),
        (
            "[9007199254740992,9007199254740993,-9007199254740995,1234567890123456]",
            "[9007199254740992,9007199254740992,-9007199254740996,1234567890123456]",
        ),
        (
            r'"\u00e9 \u0001\u007f\u2028 \/ \" \\ \n\t\b\f\r \ud83d\ude00 ,1.5 :2.5 12345678901234567890"',
            '"é \\u0001\x7f\u2028 / \\" \\\\ \\n\\t\\b\\f\\r 😀 ,1.5 :2.5 12345678901234567890"',
        ),
        (
            '{"\ufb33":1,"😀":[{"z":null,"a":true}],"é":2.50,"b":{},"B":[]}',
            '{"B":[],"b":{},"é":2.5,"😀":[{"a":true,"z":null}],"\ufb33":1}',
        ),
    ],
)
def test_the_hash_of_an_event_covers_the_canonical_form_of_every_value(
    scenario: Scenario, sent: str, canonical: str
) -> None:
    """RFC 8785: numbers as ECMAScript prints them, the shortest escapes, names in the order of UTF-16."""
    service = scenario.order(scenario.service_type())
    job = scenario.next_job(service)
    path = f"/api/v1/jobs/{job['id']}/complete"
    scenario.agent.call("POST", path, raw=f'{{"agentInstanceData":{sent}}}'.encode(), expect=204)
    place = "/agentInstanceData"
    changed = 0
    for event, previous in chained(scenario.admin, service["id"]):
        for operation in event["properties"]["diff"]:
            if operation["path"] == place and operation.get("value") is not None:
                operation["value"] = "CANONICAL"
                changed += 1
        text = sorted_json(event).replace('"CANONICAL"', canonical)
        assert event["hash"] == hashlib.sha256((previous + text).encode()).hexdigest()
    assert changed == 1


@pytest.fixture
def stopped(tmp_path: Path) -> Callable[..., None]:
    """Changes the database while no server runs."""

    def change(statement: str) -> None:
        with sqlite3.connect(tmp_path / "data" / "mainstay.db") as database:
            assert database.execute(statement).rowcount > 0

    return change


def make_events(server: Server) -> None:
    for number in range(20):
        server.admin.post("/participants", {"name": f"p{number}"})


def verify(server: Server, tmp_path: Path, code: int) -> str:
    token = (server.data_dir / "admin.token").read_text().strip()
    done = run_program(
        ["events", "verify"],
        environment={
            "MAINSTAY_URL": server.url,
            "MAINSTAY_TOKEN": token,
            "MAINSTAY_STATE_DIR": str(tmp_path / "state"),
        },
    )
    assert done.returncode == code, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def verified(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the data directory of a stopped server, and the state directory of a client that has verified it."""
    folder = tmp_path_factory.mktemp("verified")
    with running(folder / "data") as server:
        make_events(server)
        wait_until_hashed(server)
        assert "is intact" in verify(server, folder, 0)
        assert server.stop() == 0
    return folder


@pytest.mark.parametrize(
    ("tamper", "number"),
    [
        ("UPDATE events SET properties = '{}' WHERE sequence_number = 7", 7),
        ("UPDATE events SET initiator_id = 'x' WHERE sequence_number = 3", 3),
        ("UPDATE events SET created_at = created_at + 1 WHERE sequence_number = 9", 9),
        ("UPDATE events SET initiator_name = 'another' WHERE sequence_number = 4", 4),
        ("UPDATE events SET initiator_participant_id = 'x' WHERE sequence_number = 6", 6),
        ("UPDATE events SET chain_version = NULL WHERE sequence_number = 8", 8),
        ("DELETE FROM events WHERE sequence_number = 5", 5),
        ("DELETE FROM events WHERE sequence_number > 12", 13),
        ("UPDATE events SET properties = '{}', hash = NULL WHERE sequence_number = 7", 8),
    ],
)
def test_a_changed_or_missing_event_breaks_the_chain(
    tmp_path: Path, verified: Path, stopped: Callable[..., None], tamper: str, number: int
) -> None:
    shutil.copytree(verified, tmp_path, dirs_exist_ok=True)
    stopped(tamper)
    with running(tmp_path / "data") as server:
        # The address has another port after the restart.
        heads = tmp_path / "state" / "event-heads.json"
        (head,) = json.loads(heads.read_text()).values()
        heads.write_text(json.dumps({server.url: head}))
        wait_until_hashed(server)
        assert f"broken at {number}: " in verify(server, tmp_path, 1)


def test_a_chain_that_was_rewritten_as_a_whole_differs_from_the_last_verification(
    tmp_path: Path, stopped: Callable[..., None]
) -> None:
    with running(tmp_path / "data") as server:
        make_events(server)
        wait_until_hashed(server)
        verify(server, tmp_path, 0)
        (head,) = json.loads((tmp_path / "state" / "event-heads.json").read_text()).values()
        assert server.stop() == 0
    stopped("UPDATE events SET properties = '{}' WHERE sequence_number = 2")
    stopped("UPDATE events SET hash = NULL")
    with running(tmp_path / "data") as server:
        (tmp_path / "state" / "event-heads.json").write_text(json.dumps({server.url: head}))
        wait_until_hashed(server)
        assert "was changed since the last verification" in verify(server, tmp_path, 1)
        (tmp_path / "state" / "event-heads.json").unlink()
        assert "is intact" in verify(server, tmp_path, 0)


def test_a_number_of_an_earlier_release_does_not_stop_the_chain(tmp_path: Path, stopped: Callable[..., None]) -> None:
    with running(tmp_path / "data") as server:
        scenario = Scenario(server.admin)
        scenario.order(scenario.service_type(), {"port": 123454321})
        wait_until_hashed(server)
        assert server.stop() == 0
    stopped(f"UPDATE events SET hash = NULL, properties = replace(properties, '123454321', '{-(10**4000)}')")
    with running(tmp_path / "data") as server:
        wait_until_hashed(server)
        assert "is intact" in verify(server, tmp_path, 0)


def test_values_without_a_schema_contain_no_number_that_clients_cannot_read(scenario: Scenario) -> None:
    option_type = scenario.admin.post("/service-option-types", {"name": unique("o"), "type": f"o_{uuid4().hex}"})
    option = {"providerId": scenario.provider_id, "name": "o", "serviceOptionTypeId": option_type["id"]}
    refused = scenario.provider.post("/service-options", {**option, "value": {"a": [10**400]}}, expect=400)
    assert refused["errors"] == [{"path": "value", "message": "expected JSON, got a number that is too large"}]
    made = scenario.provider.post("/service-options", {**option, "value": 1})
    scenario.provider.patch(f"/service-options/{made['id']}", {"value": -(10**400)}, expect=400)
    pool: dict[str, Any] = {"name": "c", "type": unique("c"), "propertyType": "string", "generatorType": "list"}
    pool |= {"participantId": scenario.provider_id, "generatorConfig": {"a": 10**400}}
    scenario.provider.post("/config-pools", pool, expect=400)
    job = scenario.next_job(scenario.order(scenario.service_type()))
    complete = f"/jobs/{job['id']}/complete"
    scenario.agent.post(complete, {"agentInstanceData": {"a": 10**400}}, expect=400)
    scenario.agent.post(complete, {"agentInstanceData": {"a": 10**300}}, expect=204)


def test_only_an_admin_verifies(scenario: Scenario, tmp_path: Path) -> None:
    done = run_program(
        ["events", "verify"],
        environment={
            "MAINSTAY_URL": scenario.admin.url,
            "MAINSTAY_TOKEN": str(scenario.consumer.token),
            "HOME": str(tmp_path),
        },
    )
    assert (done.returncode, "needs an admin token" in done.stderr) == (2, True)


def delete_old_events(server: Server, days: int) -> None:
    """Runs retention in the stopped server's database, as if `days` had passed."""

    async def main() -> None:
        store = await open_store(f"sqlite:///{server.data_dir}/mainstay.db")
        tools = OperationTools(Definitions(installed_rulebook()), retention=RetentionPeriods())
        more = True
        while more:
            async with store.transaction() as tx:
                more = await delete_expired(UnitOfWork(tx, datetime.now(UTC) + timedelta(days=days), tools))
        await store.close()

    asyncio.run(main())


def make_old(stopped: Callable[..., None]) -> None:
    """All events become 401 days older, and are hashed again at the next start."""
    stopped(f"UPDATE events SET created_at = created_at - {401 * 86400 * 10**6}, hash = NULL")


FORGED = (
    "INSERT INTO events (id, created_at, updated_at, ordinal, type, initiator_type, initiator_id, entity_id, properties)"
    " SELECT lower(hex(randomblob(16))), created_at + {later}, updated_at, 0, 'events.deleted', 'system', initiator_id,"
    " entity_id, '{{\"upTo\":' || sequence_number || ',\"hash\":\"' || hash || '\"}}' FROM events"
    " WHERE sequence_number = (SELECT sequence_number FROM event_checkpoints)"
)


@pytest.mark.parametrize(
    "later_days", [None, 0, 500], ids=["silently", "with a record", "with a record of the future"]
)
def test_a_past_that_retention_did_not_delete_breaks_the_chain(
    tmp_path: Path, verified: Path, stopped: Callable[..., None], later_days: int | None
) -> None:
    shutil.copytree(verified, tmp_path, dirs_exist_ok=True)
    (head,) = json.loads((tmp_path / "state" / "event-heads.json").read_text()).values()
    with running(tmp_path / "data") as server:
        server.admin.post("/participants", {"name": "hidden"})
        server.admin.post("/participants", {"name": "last"})
        wait_until_hashed(server)
        assert server.stop() == 0
    stopped(
        "INSERT OR REPLACE INTO event_checkpoints SELECT 1, sequence_number, hash FROM events"
        " ORDER BY sequence_number DESC LIMIT 1 OFFSET 1"
    )
    if later_days is not None:
        stopped(FORGED.format(later=later_days * 86400 * 10**6))
    stopped("DELETE FROM events WHERE sequence_number <= (SELECT sequence_number FROM event_checkpoints)")
    with running(tmp_path / "data") as server:
        (tmp_path / "state" / "event-heads.json").write_text(json.dumps({server.url: head}))
        wait_until_hashed(server)
        reason = "no event records" if later_days is None else "was deleted before its retention period ended"
        assert reason in verify(server, tmp_path, 1)


def test_the_chain_and_streams_begin_after_deleted_events(tmp_path: Path, stopped: Callable[..., None]) -> None:
    with running(tmp_path / "data") as server:
        make_events(server)
        make_events(server)
        assert server.stop() == 0
    make_old(stopped)
    with running(tmp_path / "data") as server:
        wait_until_hashed(server)
        (known,) = server.admin.get("/events", query={"sequenceNumber": "20"})["items"]
        head = {name: known[name] for name in ("sequenceNumber", "hash", "createdAt")} | {"retentionDays": 400}
        make_events(server)
        wait_until_hashed(server)
        assert server.stop() == 0
    delete_old_events(server, 1)
    (tmp_path / "state").mkdir()
    with running(tmp_path / "data") as server:
        wait_until_hashed(server)
        events = server.admin.get("/events", query={"sort": "sequenceNumber", "pageSize": 100})["items"]
        event, record = events[0], events[-1]
        last = event["sequenceNumber"] - 1
        assert (record["type"], record["properties"]["upTo"], record["initiatorType"]) == (
            "events.deleted",
            last,
            "system",
        )
        assert server.admin.get("/events/checkpoint")["sequenceNumber"] == last > head["sequenceNumber"]
        (tmp_path / "state" / "event-heads.json").write_text(json.dumps({server.url: head}))
        printed = verify(server, tmp_path, 0)
        assert f"ended at event {head['sequenceNumber']}; events up to {last} have been deleted" in printed
        assert f"The chain of {len(events)} events is intact; it starts at event {last + 1}." in printed
        # The head is newer than the checkpoint now.
        assert "ended at event" not in verify(server, tmp_path, 0)
        with closing(server.admin.open_stream("/api/v1/events/stream", {"Last-Event-ID": "3"})) as stream:
            text = b""
            while b"participant.created" not in text:
                text += stream.read1(1000)
        assert f'id: {last}\nevent: reset\ndata: {{"deletedUpTo":{last}}}\n\nid: {last + 1}\n'.encode() in text
        with closing(server.admin.open_stream("/api/v1/events/stream", {"Last-Event-ID": str(last)})) as stream:
            text = b""
            while b"participant.created" not in text:
                text += stream.read1(1000)
        assert b"reset" not in text


def test_a_deleted_event_that_is_not_the_last_verified_one_breaks_the_chain(tmp_path: Path) -> None:
    with running(tmp_path / "data") as server:
        make_events(server)
        wait_until_hashed(server)
        verify(server, tmp_path, 0)
        (head,) = json.loads((tmp_path / "state" / "event-heads.json").read_text()).values()
        server.admin.post("/participants", {"name": "one more"})
        wait_until_hashed(server)
        assert server.stop() == 0
    delete_old_events(server, 401)
    with running(tmp_path / "data") as server:
        heads = {server.url: {"sequenceNumber": head["sequenceNumber"], "hash": "f" * 64}}
        (tmp_path / "state" / "event-heads.json").write_text(json.dumps(heads))
        assert "does not have the hash of the last verification" in verify(server, tmp_path, 1)
